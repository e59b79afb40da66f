// Rows of several arrays in shared memory ahead of their use, and results back (clifford/product/four_lanes.cuh).
//
// Threads copy 16 bytes at a time (`cp.async`). The pieces of a row are its blades, 512 bytes each at most: a warp copies one by three
// instructions, for which the copy engine takes about forty.
//
// blockDim is (four threads for each feature of a row, a multiple of 32; rows worked on at a time), at most THREADS threads in all.
// blockIdx.x selects the first row, blockIdx.y the slice of blockDim.x/4 features. Features·sizeof(T) must be a multiple of 16,
// addresses aligned to 16, and rows, with those of a few steps past the last, fewer than 2³¹.
#pragma once

#include "clifford/product/product_launch.cuh"
#include "algebra/even_part.cuh"
#include "ptx/bulk.cuh"

/// A ring of three or four stages. A stage holds rows of `IN` arrays; results overwrite the first `OUT` of them and leave from there.
///
/// A step: read `present_stage`; `wait_next_stage`; a barrier of the block; write results to the stage; `advance`. After the barrier,
/// `next_stage` may be read, too.
template <class A, class T, int THREADS, int IN, int OUT>
struct FourLanesStages {
    static constexpr int BLADES = A::BLADES;
    /// Most elements of a blade in a stage, and the distance of two places: eight elements more than a multiple of all banks, so that
    /// lanes whose places differ modulo 4 access different banks.
    static constexpr int WIDTH = THREADS / product_four_lanes::LANES, PITCH = product_four_lanes::PITCH;
    static_assert(THREADS == product_four_lanes::THREADS, "as launched");
    /// Elements of an array of a stage, and of a stage.
    static constexpr int ARRAY = BLADES * PITCH, STAGE = IN * ARRAY;
    /// Elements per copy, and lanes that copy a blade.
    static constexpr int PACK = 16 / sizeof(T), LANES = WIDTH / PACK;
    static_assert(32 % LANES == 0 && WIDTH * A::PATHS <= STAGE);

    /// Where a blade begins: in an array, and in one of a stage.
    struct alignas(16) Piece {
        i64 offset;
        i32 place, unused;
    };
    using Pieces = Piece[BLADES];

    const T* source[IN];
    T* target[OUT];
    T* buffer;
    /// In shared memory: computed for each row, they would cost a tenth of the arithmetic.
    Pieces& pieces;
    i32 rows, features, stages;
    i32 first;   // The slice's first feature.
    i32 across;  // Number of features of the slice.
    i32 stage;

    /// Blocks take rows in turn, so that rows in flight are adjacent in memory.
    GW_DEVICE static i32 begin() { return blockIdx.x * blockDim.y; }
    GW_DEVICE static i32 step() { return gridDim.x * blockDim.y; }
    GW_DEVICE static i32 thread() { return threadIdx.y * blockDim.x + threadIdx.x; }
    GW_DEVICE static i32 threads() { return blockDim.x * blockDim.y; }

    /// The place of a blade. Blades n and 31 - n are each other's product with the pseudoscalar but for the sign: a couple, at 2n and
    /// 2n + 1.
    GW_DEVICE static i32 place(i32 blade) { return blade < BLADES / 2 ? 2 * blade : 2 * BLADES - 1 - 2 * blade; }

    /// The present stage and the next.
    GW_DEVICE T* present_stage() const { return buffer + stage * STAGE; }
    GW_DEVICE T* next_stage() const { return buffer + (stage + 1 == stages ? 0 : stage + 1) * STAGE; }

    /// Starts the copies of the first stages and waits for the first. Before, it copies the weights of the slice's features, of those at
    /// `weights` [features, paths], to shared memory, where `read` finds them. All threads call it.
    template <class F>
    GW_DEVICE void open(const T* weights, F read) {
        const i32 most = blockDim.x / 4, rest = features - blockIdx.y * most;
        first = blockIdx.y * most;
        across = rest < most ? rest : most;
        stage = 0;
        for (i32 blade = thread(); blade < BLADES; blade += threads()) {
            pieces[blade] = {blade * (static_cast<i64>(rows) * features), place(blade) * PITCH, 0};
        }
        // Ahead of all rows but the first, behind which they would wait.
        T* const space = buffer + STAGE;
        weights += static_cast<i64>(first) * A::PATHS;
        for (i32 i = thread() * PACK; i < across * A::PATHS; i += threads() * PACK) copy(space + i, weights + i);
        commit();
        __syncthreads();
        store_and_load(0, -1, begin());
        wait_copies<1>();
        __syncthreads();
        read(space);
        // The copies below overwrite what was read.
        __syncthreads();
        // The last stage is left to the first step: a block's first row would wait for what other blocks ask for meanwhile.
#pragma unroll 1
        for (i32 i = 1; i < stages - 1; ++i) store_and_load(i, -1, begin() + i * step());
        stages == 3 ? wait_copies<1>() : wait_copies<2>();
        __syncthreads();
    }

    GW_DEVICE static void copy(T* to, const T* from) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
        copy_async_16(to, from, 16);
#else
        *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(from);
#endif
    }

    /// Closes the group of copies since the last call.
    GW_DEVICE static void commit() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
        copy_async_commit();
#endif
    }

    /// Waits until all but the last N groups of this thread's copies have arrived.
    template <int N>
    GW_DEVICE static void wait_copies() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
        copy_async_wait<N>();
#endif
    }

    /// Elements of one blade of the rows from `row` on; 0 or less past the end.
    GW_DEVICE i32 count(i32 row) const {
        const i32 left = rows - row, most = blockDim.y;
        return (left < most ? left : most) * across;
    }

    /// Stores the results for the rows from `old` on that a stage holds, or none if `old` is negative, and starts the copies of those
    /// from `next` on into it.
    GW_DEVICE void store_and_load(i32 into, i32 old, i32 next) const {
        const i32 lane = thread() % LANES * PACK, together = threads() / LANES;
        const bool stores = old >= 0 && lane < count(old), loads = lane < count(next);
        // The lane's pack of blade 0.
        const i64 stored_at = static_cast<i64>(old) * features + (first + lane);
        const i64 loaded_from = static_cast<i64>(next) * features + (first + lane);
        T* const stage = buffer + into * STAGE + lane;
        // Blades by twos, so that their accesses overlap.
#pragma unroll 1
        for (i32 blade = thread() / LANES; blade < BLADES; blade += 2 * together) {
            const bool two = blade + together < BLADES;
            const Piece piece[2] = {pieces[blade], pieces[two ? blade + together : blade]};
            if (stores) {
#pragma unroll
                for (int i = 0; i < OUT; ++i) {
                    if (target[i] == nullptr) continue;
                    uint4 packs[2];
#pragma unroll
                    for (int n = 0; n < 2; ++n) packs[n] = *reinterpret_cast<const uint4*>(stage + piece[n].place + i * ARRAY);
#pragma unroll
                    for (int n = 0; n < 2; ++n) {
                        T* const to = target[i] + (piece[n].offset + stored_at);
                        if (n == 0 || two) *reinterpret_cast<uint4*>(to) = packs[n];
                    }
                }
            }
            // The copies below overwrite what was read above, of which the compiler knows nothing.
            asm volatile("" ::: "memory");
            if (loads) {
#pragma unroll
                for (int n = 0; n < 2; ++n) {
                    if (n == 1 && !two) continue;
#pragma unroll
                    for (int i = 0; i < IN; ++i) copy(stage + piece[n].place + i * ARRAY, source[i] + (piece[n].offset + loaded_from));
                }
            }
        }
        commit();
    }

    /// Before the step's barrier: after that, all threads may read the next stage.
    GW_DEVICE void wait_next_stage() const { stages == 3 ? wait_copies<0>() : wait_copies<1>(); }

    GW_DEVICE i32 previous_stage() const { return stage == 0 ? stages - 1 : stage - 1; }

    /// Stores the results of the step before and starts the copies of the rows that replace them. After the step's barrier; `row` is the
    /// present one. Ends the step.
    GW_DEVICE void advance(i32 row) {
        store_and_load(previous_stage(), row - step(), row + (stages - 1) * step());
        stage = stage + 1 == stages ? 0 : stage + 1;
    }

    /// Stores the results of the last step; `row` is one past its rows. After this, no copy is under way, and all threads of the block
    /// may use the stages.
    GW_DEVICE void close(i32 row) const {
        wait_copies<0>();
        __syncthreads();
        store_and_load(previous_stage(), row - step(), rows);
        __syncthreads();
    }
};
