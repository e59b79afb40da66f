// Barriers in shared memory, clusters of blocks, and the order of what the copy engine stores (sm_90 and later).
#pragma once

#include "ptx/async.cuh"

/// Barrier `number` of the first `threads` threads that come; on every architecture.
GW_DEVICE void named_barrier(u32 number, u32 threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

/// One phase ends when `arrivals` threads have arrived and all bytes that were announced are there.
GW_DEVICE void barrier_init(u64* barrier, u32 arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals));
}

/// Makes initialised barriers visible to the other blocks of the cluster and to the copy engine.
GW_DEVICE void barrier_init_fence() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

/// Arrives and announces `bytes` that copies will bring.
GW_DEVICE void barrier_expect(u64* barrier, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes) : "memory");
}

/// Arrives. What was read before may be overwritten then.
GW_DEVICE void barrier_arrive(u64* barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}

/// Arrives at the barrier at the same place in block `rank` of the cluster. What was read before may be overwritten then, by the
/// copy engine only; for ordinary memory accesses of other blocks this orders too little.
GW_DEVICE void barrier_arrive(u64* barrier, u32 rank) {
    asm volatile(
        "{\n"
        ".reg .b32 remote;\n"
        "mapa.shared::cluster.u32 remote, %0, %1;\n"
        "mbarrier.arrive.shared::cluster.b64 _, [remote];\n"
        "}" ::"r"(shared_address(barrier)),
        "r"(rank)
        : "memory");
}

/// Waits until the phase of this parity has ended.
GW_DEVICE void barrier_wait(u64* barrier, u32 parity) {
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
GW_DEVICE void cluster_sync() {
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/// Starts writing a number to the same place in block `rank` of the cluster; its four bytes are counted at the barrier there.
GW_DEVICE void cluster_send(float* place, float value, u64* barrier, u32 rank) {
    asm volatile(
        "{\n"
        ".reg .b32 there, counted;\n"
        "mapa.shared::cluster.u32 there, %0, %3;\n"
        "mapa.shared::cluster.u32 counted, %2, %3;\n"
        "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [there], %1, [counted];\n"
        "}" ::"r"(shared_address(place)),
        "r"(__float_as_uint(value)), "r"(shared_address(barrier)), "r"(rank)
        : "memory");
}

GW_DEVICE u32 cluster_rank() {
    u32 rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

/// Closes the group of stores started since the last call.
GW_DEVICE void store_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

/// Waits until at most N groups of stores of this thread still have to read shared memory.
template <int N>
GW_DEVICE void store_wait() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory");
}

/// Makes this thread's writes to shared memory visible to the copy engine and the matrix instructions.
GW_DEVICE void shared_fence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
