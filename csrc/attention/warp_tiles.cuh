// Tiles of attention by warp-wide matrix instructions (sm_80 and later): how they arrive in shared memory, and how results leave.
#pragma once

#include "attention/problem.cuh"
#include "ptx/async.cuh"

template <class T, int D>
struct AttentionWarpTiles {
    static constexpr int THREADS = attention_warp::THREADS;
    /// Elements of 16 bytes, from one row of a tile to the next, and such pieces of a row.
    static constexpr int WIDE = 16 / sizeof(T), ROW = attention_warp::pitch(D, sizeof(T)), CHUNKS = D / WIDE;

    /// Starts copying COUNT rows from `first` on. Rows from `rows` on and features past the end become zeros. Everything must be
    /// aligned to 16 bytes.
    template <int COUNT>
    GW_DEVICE static void fetch(T* tile, const T* source, i64 step, int first, int rows, int features) {
        constexpr int PIECES = COUNT * CHUNKS;
        int thread = threadIdx.x;
        // Computed anew by each call: kept from step to step, the places of the pieces take registers that products of f32 need.
        if constexpr (sizeof(T) == 4) asm volatile("" : "+r"(thread));
#pragma unroll
        for (int i = 0; i < (PIECES + THREADS - 1) / THREADS; ++i) {
            if (PIECES % THREADS != 0 && thread >= PIECES - i * THREADS) break;
            const int e = thread + i * THREADS, row = e / CHUNKS, feature = e % CHUNKS * WIDE;
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
