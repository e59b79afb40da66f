// Copies of boxes of tensors by the copy engine (sm_90 and later).
#pragma once

#include "ptx/barrier.cuh"

/// The descriptor that `cuTensorMapEncodeTiled` writes; passed by value as a `__grid_constant__` parameter.
struct alignas(64) TensorMap {
    u64 opaque[16];
};

GW_DEVICE void tensor_map_prefetch(const TensorMap& map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

/// Starts copying the box at (x, y, z), x innermost; `barrier` counts its bytes. Elements outside the tensor become zeros.
GW_DEVICE void copy_box(void* target, const TensorMap& map, i32 x, i32 y, i32 z, u64* barrier) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];" ::"r"(
            shared_address(target)),
        "l"(&map), "r"(shared_address(barrier)), "r"(x), "r"(y), "r"(z)
        : "memory");
}

/// The box at (x, y, z, w) of a tensor of four axes.
GW_DEVICE void copy_box(void* target, const TensorMap& map, i32 x, i32 y, i32 z, i32 w, u64* barrier) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(
            shared_address(target)),
        "l"(&map), "r"(shared_address(barrier)), "r"(x), "r"(y), "r"(z), "r"(w)
        : "memory");
}

/// The box at (x, y, z, w, v) of a tensor of five axes.
GW_DEVICE void copy_box(void* target, const TensorMap& map, i32 x, i32 y, i32 z, i32 w, i32 v, u64* barrier) {
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6, %7}], [%2];" ::"r"(
            shared_address(target)),
        "l"(&map), "r"(shared_address(barrier)), "r"(x), "r"(y), "r"(z), "r"(w), "r"(v)
        : "memory");
}

/// The box at (x, y, z) of a tensor of three axes, to the same offset in every block of the cluster whose bit is set in `blocks`.
GW_DEVICE void copy_box_to(u16 blocks, void* target, const TensorMap& map, i32 x, i32 y, i32 z, u64* barrier) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%3, %4, "
        "%5}], [%2], %6;" ::"r"(shared_address(target)),
        "l"(&map), "r"(shared_address(barrier)), "r"(x), "r"(y), "r"(z), "h"(blocks)
        : "memory");
}

/// Starts copying a box from shared memory to (x, y, z). Elements outside the tensor are skipped. Before: every thread that wrote
/// the box by ordinary stores has called `shared_fence`, and a barrier followed.
GW_DEVICE void store_box(const TensorMap& map, const void* source, i32 x, i32 y, i32 z) {
    asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(&map),
                 "r"(shared_address(source)), "r"(x), "r"(y), "r"(z)
                 : "memory");
}

/// The same, adding to the tensor in its type.
GW_DEVICE void add_box(const TensorMap& map, const void* source, i32 x, i32 y, i32 z) {
    asm volatile("cp.reduce.async.bulk.tensor.3d.global.shared::cta.add.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(&map),
                 "r"(shared_address(source)), "r"(x), "r"(y), "r"(z)
                 : "memory");
}
