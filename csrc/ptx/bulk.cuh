// Copies of contiguous bytes by the copy engine, and the barriers they report to (sm_90 and later).
#pragma once

#include "ptx/async.cuh"

/// A barrier in shared memory one phase of which ends when one thread has arrived and all bytes it announced are there.
GW_DEVICE void bulk_barrier_init(u64* barrier) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(barrier)) : "memory");
}

/// Makes initialised barriers visible to the copy engine.
GW_DEVICE void bulk_barrier_fence() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

/// Arrives and announces `bytes` that copies will bring.
GW_DEVICE void bulk_expect(u64* barrier, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
                 : "memory");
}

/// Starts copying `bytes`, a multiple of 16, between addresses aligned to 16; they are counted at `barrier`.
GW_DEVICE void bulk_copy(void* target, const void* source, u32 bytes, u64* barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     shared_address(target)),
                 "l"(source), "r"(bytes), "r"(shared_address(barrier))
                 : "memory");
}

/// Waits until the phase of this parity has ended.
GW_DEVICE void bulk_wait(u64* barrier, u32 parity) {
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "again:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@!done bra again;\n"
        "}" ::"r"(shared_address(barrier)),
        "r"(parity)
        : "memory");
}

/// All threads of all blocks of the cluster.
GW_DEVICE void cluster_barrier() {
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
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
/// (`bulk_fence`) by every thread that wrote it.
GW_DEVICE void bulk_store(void* target, const void* source, u32 bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(target), "r"(shared_address(source)),
                 "r"(bytes)
                 : "memory");
}

/// Closes the group of stores that this thread started since the last call.
GW_DEVICE void bulk_store_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

/// Waits until this thread's stores have read shared memory.
GW_DEVICE void bulk_store_wait() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }

/// Makes this thread's writes to shared memory visible to the copy engine.
GW_DEVICE void bulk_fence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
