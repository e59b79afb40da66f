// Copies of contiguous bytes by the copy engine (sm_90 and later).
#pragma once

#include "ptx/barrier.cuh"

/// Starts copying `bytes`, a multiple of 16, between addresses aligned to 16; they are counted at `barrier`.
GW_DEVICE void bulk_copy(void* target, const void* source, u32 bytes, u64* barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     shared_address(target)),
                 "l"(source), "r"(bytes), "r"(shared_address(barrier))
                 : "memory");
}

/// The value at the same place in the shared memory of block `rank` of the cluster.
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

/// Starts copying `bytes`, a multiple of 16, from shared memory; what ordinary stores wrote there must have been fenced
/// (`shared_fence`) by every thread that wrote it.
GW_DEVICE void bulk_store(void* target, const void* source, u32 bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(target), "r"(shared_address(source)),
                 "r"(bytes)
                 : "memory");
}
