// Tile products for the convolution of fields: the operands come from loaders that gather, everything else is as in mma/.
#pragma once

#include "fields/problem.cuh"
#include "mma/simt.cuh"
#include "mma/warp.cuh"

/// Ordinary multiply-adds, see mma/simt.cuh. `fetch(step, a, b)` loads a thread's share of both tiles of a step; `write(i, j, sum)` takes
/// the results by their place in the tile.
template <class S, class C, int BM, int BN, int BK, int TM, int TN, class Fetch, class Write>
GW_DEVICE void field_simt(i64 begin, i64 end, Fetch&& fetch, Write&& write) {
    __shared__ typename S::Shared shared;
    const int tx = threadIdx.x % (BN / TN), ty = threadIdx.x / (BN / TN);
    C total[TM][TN] = {}, sum[TM][TN] = {};
    C a_next[S::PER_A], b_next[S::PER_B];
    if (begin < end) fetch(begin, a_next, b_next);
    int since = 0;
    for (i64 step = begin; step < end; ++step) {
        S::deposit(shared, a_next, b_next);
        __syncthreads();
        if (step + 1 < end) fetch(step + 1, a_next, b_next);
#pragma unroll
        for (int k = 0; k < BK; ++k) {
            C a[TM], b[TN];
            S::read(&shared.a[k][ty * TM], a);
            S::read(&shared.b[k][tx * TN], b);
#pragma unroll
            for (int i = 0; i < TM; ++i) {
#pragma unroll
                for (int j = 0; j < TN; ++j) sum[i][j] += a[i] * b[j];
            }
        }
        __syncthreads();
        // Long sums are added up in stretches, so that the rounding error does not grow with their length.
        if (++since == S::PROMOTE) {
            since = 0;
#pragma unroll
            for (int i = 0; i < TM; ++i) {
#pragma unroll
                for (int j = 0; j < TN; ++j) {
                    total[i][j] += sum[i][j];
                    sum[i][j] = 0;
                }
            }
        }
    }
#pragma unroll
    for (int i = 0; i < TM; ++i) {
#pragma unroll
        for (int j = 0; j < TN; ++j) write(ty * TM + i, tx * TN + j, total[i][j] + sum[i][j]);
    }
}

/// Warp-wide matrix instructions, see mma/warp.cuh. With EXACT, f32 operands are split into two TF32 numbers each and multiplied in three
/// parts (mma/hopper_exact.cuh says why each step is summed apart).
template <class T, int BM, int BN, int STAGES, bool TA, bool TB, bool EXACT>
struct FieldWarp : Warp<T, BM, BN, 2, 2, STAGES, TA, TB> {
    using Base = Warp<T, BM, BN, 2, 2, STAGES, TA, TB>;
    using Base::A_ROW, Base::A_ROWS, Base::B_ROW, Base::BK, Base::DEPTH, Base::STAGE, Base::TILES_M, Base::TILES_N;
    static_assert(!EXACT || sizeof(T) == 4, "three parts of f32");

    /// The elements of A that a thread needs for one instruction, unconverted.
    GW_DEVICE static void raw_a(const T* tile, int row, int k, u32 (&a)[4]) {
        const int lane = threadIdx.x % 32;
        if constexpr (TA) {
            const u32* at = reinterpret_cast<const u32*>(tile + (k + lane % 4) * A_ROW + row + lane / 4);
            a[0] = at[0];
            a[1] = at[8];
            a[2] = at[4 * A_ROW];
            a[3] = at[4 * A_ROW + 8];
        } else {
            load_matrices<false>(a, tile + (row + lane % 16) * A_ROW + k + lane / 16 * 4);
        }
    }

    /// Two adjacent columns of tiles of B, unconverted.
    GW_DEVICE static void raw_b(const T* tile, int column, int k, u32 (&b)[2][2]) {
        const int lane = threadIdx.x % 32;
        if constexpr (TB) {
            u32 r[4];
            load_matrices<false>(r, tile + (column + lane % 8 + lane / 16 * 8) * B_ROW + k + lane / 8 % 2 * 4);
#pragma unroll
            for (int i = 0; i < 4; ++i) b[i / 2][i % 2] = r[i];
        } else {
            const u32* at = reinterpret_cast<const u32*>(tile + (k + lane % 4) * B_ROW + column + lane / 4);
#pragma unroll
            for (int side = 0; side < 2; ++side) {
                b[side][0] = at[side * 8];
                b[side][1] = at[4 * B_ROW + side * 8];
            }
        }
    }

    GW_DEVICE static void split(u32 value, u32& top, u32& rest) {
        const float x = __uint_as_float(value), nearest = nearest_tf32(x);
        top = __float_as_uint(nearest);
        rest = __float_as_uint(x - nearest);
    }

    /// The products of one step, added to `sums`.
    GW_DEVICE static void step(const T* a_tile, const T* b_tile, int row, int column, float (&sums)[TILES_M][TILES_N][4]) {
        if constexpr (EXACT) {
            float part[TILES_M][TILES_N][4] = {};
#pragma unroll
            for (int k = 0; k < BK; k += DEPTH) {
                u32 a[TILES_M][4], a_rest[TILES_M][4], b[TILES_N / 2][2][2], b_rest[TILES_N / 2][2][2];
#pragma unroll
                for (int i = 0; i < TILES_M; ++i) {
                    raw_a(a_tile, row + i * 16, k, a[i]);
#pragma unroll
                    for (int e = 0; e < 4; ++e) split(a[i][e], a[i][e], a_rest[i][e]);
                }
#pragma unroll
                for (int j = 0; j < TILES_N / 2; ++j) {
                    raw_b(b_tile, column + j * 16, k, b[j]);
#pragma unroll
                    for (int e = 0; e < 4; ++e) split(b[j][e / 2][e % 2], b[j][e / 2][e % 2], b_rest[j][e / 2][e % 2]);
                }
#pragma unroll
                for (int i = 0; i < TILES_M; ++i) {
#pragma unroll
                    for (int j = 0; j < TILES_N; ++j) {
                        // The smallest terms first.
                        mma_tf32(part[i][j], a_rest[i], b[j / 2][j % 2]);
                        mma_tf32(part[i][j], a[i], b_rest[j / 2][j % 2]);
                        mma_tf32(part[i][j], a[i], b[j / 2][j % 2]);
                    }
                }
            }
#pragma unroll
            for (int i = 0; i < TILES_M; ++i) {
#pragma unroll
                for (int j = 0; j < TILES_N; ++j) {
#pragma unroll
                    for (int e = 0; e < 4; ++e) sums[i][j][e] += part[i][j][e];
                }
            }
        } else {
#pragma unroll
            for (int k = 0; k < BK; k += DEPTH) {
                u32 a[TILES_M][4], b[TILES_N / 2][2][2];
#pragma unroll
                for (int i = 0; i < TILES_M; ++i) Base::read_a(a_tile, row + i * 16, k, a[i]);
#pragma unroll
                for (int j = 0; j < TILES_N / 2; ++j) Base::read_b(b_tile, column + j * 16, k, b[j]);
#pragma unroll
                for (int i = 0; i < TILES_M; ++i) {
#pragma unroll
                    for (int j = 0; j < TILES_N; ++j) {
                        if constexpr (sizeof(T) == 4) {
                            mma_tf32(sums[i][j], a[i], b[j / 2][j % 2]);
                        } else {
                            mma_16(sums[i][j], a[i], b[j / 2][j % 2], T{});
                        }
                    }
                }
            }
        }
    }

    /// Computes a tile over `count` steps. `fetch(a_tile, b_tile)` starts the copies of the next step, in order; `write(i, j, first,
    /// second)` takes two adjacent results of a row, the first in an even column.
    template <class Fetch, class Write>
    GW_DEVICE static void multiply(i64 count, Fetch&& fetch, Write&& write) {
        extern __shared__ __align__(16) unsigned char memory[];
        T* shared = reinterpret_cast<T*>(memory);
        const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        const int warp_row = warp / 2 * Base::WM, warp_column = warp % 2 * Base::WN;
        float sums[TILES_M][TILES_N][4] = {};
        i64 ahead = 0;
        auto fetch_next = [&](int stage) {
            if (ahead < count) {
                T* tile = shared + stage * STAGE;
                fetch(tile, tile + A_ROWS * A_ROW);
                ++ahead;
            }
            copy_async_commit();
        };
#pragma unroll
        for (int stage = 0; stage < STAGES - 1; ++stage) fetch_next(stage);
        int current = 0, next = STAGES - 1;
        for (i64 at = 0; at < count; ++at) {
            copy_async_wait<STAGES - 2>();
            // Makes this step's copies visible to all threads, and ends all reads of the stage that is filled next.
            __syncthreads();
            fetch_next(next);
            const T* a_tile = shared + current * STAGE;
            step(a_tile, a_tile + A_ROWS * A_ROW, warp_row, warp_column, sums);
            current = current + 1 == STAGES ? 0 : current + 1;
            next = next + 1 == STAGES ? 0 : next + 1;
        }
        copy_async_wait<0>();
        const int g = lane / 4, t = lane % 4;
#pragma unroll
        for (int i = 0; i < TILES_M; ++i) {
#pragma unroll
            for (int j = 0; j < TILES_N; ++j) {
                const int row = warp_row + i * 16 + g, column = warp_column + j * 8 + 2 * t;
                write(row, column, sums[i][j][0], sums[i][j][1]);
                write(row + 8, column, sums[i][j][2], sums[i][j][3]);
            }
        }
    }
};
