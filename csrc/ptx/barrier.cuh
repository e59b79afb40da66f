// Barriers in shared memory (mbarrier), clusters of blocks, and ordering of the copy engine's accesses (sm_90 and later).
#pragma once

#include "ptx/async.cuh"

/// Hardware barrier `number` among `threads` threads, all of which must call it; on every architecture.
GW_DEVICE void named_barrier(u32 number, u32 threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

/// Initialises a barrier: a phase ends when `arrivals` threads have arrived and all announced bytes have been copied.
GW_DEVICE void barrier_init(u64* barrier, u32 arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals));
}

/// Makes initialised barriers visible to the other blocks of the cluster and to the copy engine. A barrier of the block or cluster
/// must follow.
GW_DEVICE void barrier_init_fence() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

/// Arrives, and announces `bytes` that copies will write.
GW_DEVICE void barrier_expect(u64* barrier, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes) : "memory");
}

/// Arrives (release): data that this thread read before may be overwritten after the phase.
GW_DEVICE void barrier_arrive(u64* barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}

/// Arrives at the barrier at the same offset in block `rank` of the cluster. Data that this thread read before may then be
/// overwritten by the copy engine only: ordinary accesses of other blocks are not ordered by it.
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

/// Waits until the phase of this parity has ended (acquire).
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

/// A barrier of all threads of all blocks of the cluster.
GW_DEVICE void cluster_sync() {
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/// Starts storing a number at the same offset in block `rank` of the cluster; the barrier there counts its four bytes.
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

/// Waits until all but the last N groups of stores of this thread have read their shared memory.
template <int N>
GW_DEVICE void store_wait() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory");
}

/// Makes this thread's writes to shared memory visible to the copy engine and the matrix instructions.
GW_DEVICE void shared_fence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
