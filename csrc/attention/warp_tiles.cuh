// Tiles of attention by warp-wide matrix instructions (sm_80 and later): how they arrive in shared memory, products of them, and how
// results leave.
#pragma once

#include "attention/problem.cuh"
#include "attention/rounding.cuh"
#include "ptx/mma.cuh"

template <class T, int D>
struct AttentionWarpTiles {
    static constexpr int THREADS = attention_warp::THREADS;
    /// Rows of tiles are padded by 16 bytes, so that the eight rows which a fragment reads start in different banks.
    static constexpr int ROW = attention_warp::pitch(D), CHUNKS = D / 8;

    /// Starts copying COUNT rows from `first` on. Rows from `rows` on and features past the end become zeros. Everything must be
    /// aligned to 16 bytes.
    template <int COUNT>
    GW_DEVICE static void fetch(T* tile, const T* source, i64 step, int first, int rows, int features) {
        static_assert(COUNT * CHUNKS % THREADS == 0, "every thread copies as much");
#pragma unroll
        for (int i = 0; i < COUNT * CHUNKS / THREADS; ++i) {
            const int e = threadIdx.x + i * THREADS, row = e / CHUNKS, feature = e % CHUNKS * 8;
            const bool inside = first + row < rows && feature < features;
            copy_async_16(tile + row * ROW + feature, inside ? source + (first + row) * step + feature : source, inside ? 16 : 0);
        }
    }

    /// Waits for all copies, including those that no step used: a block must not exit while copies into its shared memory are in
    /// flight.
    GW_DEVICE static void finish_copies() {
        copy_async_commit();
        copy_async_wait<0>();
    }

    /// sums[16×8·N] += A·Bᵀ over the features: rows of `a` from the warp's on, rows of `b`.
    template <int N>
    GW_DEVICE static void dots(const T* a, const T* b, float (&sums)[N][4]) {
        const int lane = threadIdx.x % 32;
#pragma unroll
        for (int k = 0; k < D; k += 16) {
            u32 left[4];
            load_matrices<false>(left, a + (threadIdx.x / 32 * 16 + lane % 16) * ROW + k + lane / 16 * 8);
            dot_step(left, b, k, sums);
        }
    }

    template <int N>
    GW_DEVICE static void dot_step(const u32 (&left)[4], const T* b, int k, float (&sums)[N][4]) {
        const int lane = threadIdx.x % 32;
#pragma unroll
        for (int n = 0; n < N; n += 2) {
            u32 right[4];
            load_matrices<false>(right, b + (n * 8 + lane % 8 + lane / 16 * 8) * ROW + k + lane / 8 % 2 * 8);
            const u32 first[2] = {right[0], right[1]}, second[2] = {right[2], right[3]};
            mma_16(sums[n], left, first, T{});
            mma_16(sums[n + 1], left, second, T{});
        }
    }

    /// out[16×D] += W·B, with weights W [16×8·N] in the layout of accumulators, and rows of `b`.
    template <int N>
    GW_DEVICE static void add(const float (&weights)[N][4], const T* b, float (&out)[D / 8][4]) {
        const int lane = threadIdx.x % 32;
#pragma unroll
        for (int k = 0; k < N; k += 2) {
            const u32 left[4] = {pair(weights[k][0], weights[k][1], T{}), pair(weights[k][2], weights[k][3], T{}),
                                 pair(weights[k + 1][0], weights[k + 1][1], T{}), pair(weights[k + 1][2], weights[k + 1][3], T{})};
#pragma unroll
            for (int n = 0; n < D / 8; n += 2) {
                u32 right[4];
                load_matrices<true>(right, b + (k * 8 + lane % 16) * ROW + n * 8 + lane / 16 * 8);
                const u32 first[2] = {right[0], right[1]}, second[2] = {right[2], right[3]};
                mma_16(out[n], left, first, T{});
                mma_16(out[n + 1], left, second, T{});
            }
        }
    }

    /// Writes the warp's 16 rows.
    GW_DEVICE static void write(T* target, i64 step, int first, int rows, int features, const float (&out)[D / 8][4]) {
        const int lane = threadIdx.x % 32, row = first + threadIdx.x / 32 * 16 + lane / 4;
#pragma unroll
        for (int n = 0; n < D / 8; ++n) {
            const int feature = n * 8 + lane % 4 * 2;
            if (feature >= features) continue;
            const float upper[2] = {out[n][0], out[n][1]}, lower[2] = {out[n][2], out[n][3]};
            if (row < rows) store<2>(target + row * step + feature, upper);
            if (row + 8 < rows) store<2>(target + (row + 8) * step + feature, lower);
        }
    }

    GW_DEVICE static float across_quad_max(float value) {
        value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, 1));
        return fmaxf(value, __shfl_xor_sync(0xffffffffu, value, 2));
    }
    GW_DEVICE static float across_quad_sum(float value) {
        value += __shfl_xor_sync(0xffffffffu, value, 1);
        return value + __shfl_xor_sync(0xffffffffu, value, 2);
    }
};
