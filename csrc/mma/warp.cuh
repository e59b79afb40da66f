// Tile products by warp-wide matrix instructions (sm_80 and later): f32 storage in TF32, bf16 and f16, accumulated in f32.
#pragma once

#include "mma/problem.cuh"
#include "ptx/mma.cuh"

/// Blocks of WARPS_M·WARPS_N warps compute tiles of BM×BN in steps of BK along k, with copies STAGES − 1 steps ahead.
template <class T, int BM, int BN, int WARPS_M, int WARPS_N, int STAGES, bool TA, bool TB>
struct Warp {
    static constexpr int THREADS = 32 * WARPS_M * WARPS_N;
    /// Depth of a step: 64 bytes along k.
    static constexpr int BK = warp_tile::terms(sizeof(T));
    static constexpr int WIDE = 16 / sizeof(T);
    static constexpr int WM = BM / WARPS_M, WN = BN / WARPS_N;
    static constexpr int TILES_M = WM / 16, TILES_N = WN / 8;
    /// Depth of one instruction along k.
    static constexpr int DEPTH = 32 / sizeof(T);
    static_assert(WM % 16 == 0 && WN % 16 == 0, "whole instructions, B in pairs");

    // Rows of a tile in shared memory are padded by 16 bytes along k and by 8 elements across it, so that the eight rows
    // that a fragment reads start in different banks.
    static constexpr int ACROSS = warp_tile::PAD_ACROSS;
    static constexpr int A_ROWS = TA ? BK : BM, A_ROW = TA ? BM + ACROSS : BK + WIDE;
    static constexpr int B_ROWS = TB ? BN : BK, B_ROW = TB ? BK + WIDE : BN + ACROSS;
    static constexpr int STAGE = A_ROWS * A_ROW + B_ROWS * B_ROW;
    static constexpr int SHARED_BYTES = warp_tile::shared(BM, BN, TA, TB, sizeof(T));
    static_assert(SHARED_BYTES == STAGES * STAGE * static_cast<int>(sizeof(T)) && THREADS == warp_tile::THREADS, "as launched");
    static_assert(A_ROW * sizeof(T) % 16 == 0 && B_ROW * sizeof(T) % 16 == 0, "16-byte copies");

    /// Copies tiles of ROWS×COLUMNS elements of a matrix, step by step along k, which is the tiles' inner axis if K_INNER and their
    /// outer axis otherwise. Every thread copies 16 bytes in each of SLOTS rows.
    template <int ROWS, int COLUMNS, int STRIDE, bool K_INNER>
    struct Loader {
        static constexpr int PER_ROW = COLUMNS / WIDE, STEP = THREADS / PER_ROW, SLOTS = ROWS / STEP;
        static_assert(COLUMNS % WIDE == 0 && THREADS % PER_ROW == 0 && ROWS % STEP == 0, "every thread copies as much");

        int row, column;
        /// Rows or columns from the tile's corner to the end of the axis that is not k.
        int extent;
        i64 ld;
        bool aligned;

        GW_DEVICE Loader(i64 extent, i64 ld, bool aligned)
            : row(threadIdx.x / PER_ROW),
              column(threadIdx.x % PER_ROW * WIDE),
              extent(extent < (1 << 20) ? static_cast<int>(extent) : 1 << 20),
              ld(ld),
              aligned(aligned) {}

        /// Starts copying the tile whose corner is at `tile`, with `left` elements along k until its end.
        GW_DEVICE void fetch(T* target, const T* tile, i64 left) const {
            const int along = left < BK ? static_cast<int>(left) : BK;
            const T* source = tile + row * ld + column;
            T* place = target + row * STRIDE + column;
            // Elements to read in each slot whose row exists.
            int count = (K_INNER ? along : extent) - column;
            count = count < 0 ? 0 : count > WIDE ? WIDE : count;
            const int rows = K_INNER ? extent : along;
            if (aligned && along == BK && extent >= (K_INNER ? ROWS : COLUMNS)) {
                // The whole tile is inside.
#pragma unroll
                for (int slot = 0; slot < SLOTS; ++slot) {
                    copy_async_16(place + slot * (STEP * STRIDE), source, 16);
                    source += STEP * ld;
                }
                return;
            }
#pragma unroll
            for (int slot = 0; slot < SLOTS; ++slot) {
                const int elements = row + slot * STEP < rows ? count : 0;
                if (aligned) {
                    // Past the end, the copy reads nothing and writes zeros.
                    copy_async_16(place, elements > 0 ? source : tile, elements * static_cast<int>(sizeof(T)));
                } else {
#pragma unroll
                    for (int e = 0; e < WIDE; ++e) place[e] = e < elements ? source[e] : T{};
                }
                source += STEP * ld;
                place += STEP * STRIDE;
            }
        }
    };
    using LoaderA = Loader<A_ROWS, TA ? BM : BK, A_ROW, !TA>;
    using LoaderB = Loader<B_ROWS, TB ? BK : BN, B_ROW, TB>;

    GW_DEVICE static void read_a(const T* tile, int row, int k, u32 (&a)[4]) {
        const int lane = threadIdx.x % 32;
        if constexpr (sizeof(T) == 4 && TA) {
            const T* at = tile + (k + lane % 4) * A_ROW + row + lane / 4;
            a[0] = to_tf32(at[0]);
            a[1] = to_tf32(at[8]);
            a[2] = to_tf32(at[4 * A_ROW]);
            a[3] = to_tf32(at[4 * A_ROW + 8]);
        } else if constexpr (sizeof(T) == 4) {
            // A 32-bit element counts as two of 16 bits, so that the same instruction serves.
            load_matrices<false>(a, tile + (row + lane % 16) * A_ROW + k + lane / 16 * 4);
#pragma unroll
            for (int i = 0; i < 4; ++i) a[i] = to_tf32(__uint_as_float(a[i]));
        } else if constexpr (TA) {
            load_matrices<true>(a, tile + (k + lane % 8 + lane / 16 * 8) * A_ROW + row + lane / 8 % 2 * 8);
        } else {
            load_matrices<false>(a, tile + (row + lane % 16) * A_ROW + k + lane / 16 * 8);
        }
    }

    /// Two adjacent columns of tiles.
    GW_DEVICE static void read_b(const T* tile, int column, int k, u32 (&b)[2][2]) {
        const int lane = threadIdx.x % 32;
        if constexpr (sizeof(T) == 4 && !TB) {
            const T* at = tile + (k + lane % 4) * B_ROW + column + lane / 4;
#pragma unroll
            for (int side = 0; side < 2; ++side) {
                b[side][0] = to_tf32(at[side * 8]);
                b[side][1] = to_tf32(at[4 * B_ROW + side * 8]);
            }
        } else if constexpr (sizeof(T) == 4) {
            u32 r[4];
            load_matrices<false>(r, tile + (column + lane % 8 + lane / 16 * 8) * B_ROW + k + lane / 8 % 2 * 4);
#pragma unroll
            for (int i = 0; i < 4; ++i) b[i / 2][i % 2] = to_tf32(__uint_as_float(r[i]));
        } else {
            u32 r[4];
            if constexpr (TB) {
                load_matrices<false>(r, tile + (column + lane % 8 + lane / 16 * 8) * B_ROW + k + lane / 8 % 2 * 8);
            } else {
                load_matrices<true>(r, tile + (k + lane % 16) * B_ROW + column + lane / 16 * 8);
            }
            b[0][0] = r[0];
            b[0][1] = r[1];
            b[1][0] = r[2];
            b[1][1] = r[3];
        }
    }

    GW_DEVICE static void run(const Problem& problem) {
        extern __shared__ __align__(16) unsigned char memory[];
        T* shared = reinterpret_cast<T*>(memory);
        const Part<T> part(problem, BM, BN, BK);
        const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        const int warp_row = warp / WARPS_N * WM, warp_column = warp % WARPS_N * WN;
        float sums[TILES_M][TILES_N][4] = {};
        i64 ahead = part.begin;
        auto cursor = part.start();
        const Problem& p = part.problem;
        const LoaderA load_a(p.m - part.row, p.lda, p.a_aligned);
        const LoaderB load_b(p.n - part.column, p.ldb, p.b_aligned);
        auto fetch_next = [&](int stage) {
            if (ahead < part.end) {
                const i64 depth = cursor.depth, left = p.k - depth;
                T* tile = shared + stage * STAGE;
                load_a.fetch(tile, cursor.a + (TA ? depth * p.lda + part.row : part.row * p.lda + depth), left);
                load_b.fetch(tile + A_ROWS * A_ROW,
                             cursor.b + (TB ? part.column * p.ldb + depth : depth * p.ldb + part.column), left);
                if (++ahead < part.end) part.advance(cursor);
            }
            copy_async_commit();
        };
#pragma unroll
        for (int stage = 0; stage < STAGES - 1; ++stage) fetch_next(stage);
        int current = 0, next = STAGES - 1;
        for (i64 step = part.begin; step < part.end; ++step) {
            copy_async_wait<STAGES - 2>();
            // Makes this step's copies visible to all threads, and ends all reads of the stage that is filled next.
            __syncthreads();
            fetch_next(next);
            const T* a_tile = shared + current * STAGE;
            const T* b_tile = a_tile + A_ROWS * A_ROW;
#pragma unroll
            for (int k = 0; k < BK; k += DEPTH) {
                u32 a[TILES_M][4], b[TILES_N / 2][2][2];
#pragma unroll
                for (int i = 0; i < TILES_M; ++i) read_a(a_tile, warp_row + i * 16, k, a[i]);
#pragma unroll
                for (int j = 0; j < TILES_N / 2; ++j) read_b(b_tile, warp_column + j * 16, k, b[j]);
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
            current = current + 1 == STAGES ? 0 : current + 1;
            next = next + 1 == STAGES ? 0 : next + 1;
        }
        copy_async_wait<0>();
        const int g = lane / 4, t = lane % 4;
#pragma unroll
        for (int i = 0; i < TILES_M; ++i) {
#pragma unroll
            for (int j = 0; j < TILES_N; ++j) {
                const i64 row = part.row + warp_row + i * 16 + g, column = part.column + warp_column + j * 8 + 2 * t;
                part.write_pair(row, column, sums[i][j][0], sums[i][j][1]);
                part.write_pair(row + 8, column, sums[i][j][2], sums[i][j][3]);
            }
        }
    }
};

/// Runs a kernel's engine of warp-wide instructions on its parameter `problem`. Compiled to a trap on targets without the instructions; the
/// launcher checks the architecture of the kernel.
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
#define GW_RUN_WARP(ENGINE) ENGINE::run(problem)
#else
#define GW_RUN_WARP(ENGINE) __trap()
#endif
