// Copies of contiguous bytes by the copy engine (sm_90 and later).
#pragma once

#include "ptx/barrier.cuh"

/// Starts copying `bytes` from global to shared memory; `barrier` counts them. Size and both addresses must be multiples of 16.
GW_DEVICE void bulk_copy(void* target, const void* source, u32 bytes, u64* barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     shared_address(target)),
                 "l"(source), "r"(bytes), "r"(shared_address(barrier))
                 : "memory");
}

/// The value at the same offset in the shared memory of block `rank` of the cluster.
GW_DEVICE float cluster_read(const float* place, u32 rank) {
    float value;
    asm volatile(
        "{\n"
        ".reg .b32 remote;\n"
        "mapa.shared::cluster.u32 remote, %1, %2;\n"
        "ld.shared::cluster.f32 %0, [remote];\n"
        "}"
        : "=f"(value)
        : "r"(shared_address(place)), "r"(rank)
        : "memory");
    return value;
}

/// Starts copying `bytes`, a multiple of 16, from shared to global memory. Before: every thread that wrote the data by ordinary
/// stores has called `shared_fence`, and a barrier followed.
GW_DEVICE void bulk_store(void* target, const void* source, u32 bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(target), "r"(shared_address(source)),
                 "r"(bytes)
                 : "memory");
}

/// Starts bringing `bytes` of global memory, a multiple of 16 as is the address, to the second-level cache.
GW_DEVICE void bulk_prefetch(const void* source, u32 bytes) {
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(source), "r"(bytes));
}
