// Tile products by ordinary multiply-adds: exact in the compute type, on every target.
#pragma once

#include "mma/problem.cuh"

/// Blocks of (BM/TM)·(BN/TN) threads compute tiles of BM×BN, each thread TM×TN of it, in steps of BK along k.
///
/// C is the type of the arithmetic. Sums longer than PROMOTE steps are added up in stretches, so that the rounding error does not
/// grow with k.
template <class T, int BM, int BN, int BK, int TM, int TN, bool TA, bool TB, class C = Compute<T>>
struct Simt {
    static constexpr int THREADS = (BM / TM) * (BN / TN);
    static_assert(THREADS == simt_tile::THREADS, "as launched");
    static constexpr int PER_A = BM * BK / THREADS, PER_B = BN * BK / THREADS;
    static constexpr int PROMOTE = 256 / BK;
    static_assert(BM * BK % THREADS == 0 && BN * BK % THREADS == 0, "every thread loads as many elements");
    // One word of padding per 16 bytes' worth keeps the rows aligned for wide loads.
    static constexpr int PAD = 16 / sizeof(C);
    static constexpr int WIDE = 16 / sizeof(C) < TN ? 16 / sizeof(C) : TN;

    struct Shared {
        alignas(16) C a[BK][BM + PAD];
        alignas(16) C b[BK][BN + PAD];
    };

    template <int N>
    GW_DEVICE static void read(const C* source, C (&values)[N]) {
#pragma unroll
        for (int i = 0; i < N; i += WIDE) {
            const Pack<C, WIDE> pack = *reinterpret_cast<const Pack<C, WIDE>*>(source + i);
#pragma unroll
            for (int j = 0; j < WIDE; ++j) values[i + j] = pack.at[j];
        }
    }

    /// The element (i, k) of a tile that is this thread's `slot`-th to load: adjacent threads load elements adjacent in memory.
    template <int EXTENT, bool K_IS_ADJACENT>
    GW_DEVICE static void place(int slot, int& i, int& k) {
        const int at = slot * THREADS + threadIdx.x;
        if constexpr (K_IS_ADJACENT) {
            k = at % BK;
            i = at / BK;
        } else {
            i = at % EXTENT;
            k = at / EXTENT;
        }
    }

    GW_DEVICE static void fetch(const Part<T>& part, const typename Part<T>::Cursor& cursor, C (&a)[PER_A],
                                C (&b)[PER_B]) {
        const Problem& p = part.problem;
        const i64 depth = cursor.depth;
        const T *a_source = cursor.a, *b_source = cursor.b;
#pragma unroll
        for (int slot = 0; slot < PER_A; ++slot) {
            int i, k;
            place<BM, !TA>(slot, i, k);
            const i64 row = part.row + i, at = depth + k;
            const bool inside = row < p.m && at < p.k;
            a[slot] = inside ? widen(a_source[TA ? at * p.lda + row : row * p.lda + at]) : C(0);
        }
#pragma unroll
        for (int slot = 0; slot < PER_B; ++slot) {
            int j, k;
            place<BN, TB>(slot, j, k);
            const i64 column = part.column + j, at = depth + k;
            const bool inside = column < p.n && at < p.k;
            b[slot] = inside ? widen(b_source[TB ? column * p.ldb + at : at * p.ldb + column]) : C(0);
        }
    }

    GW_DEVICE static void deposit(Shared& shared, const C (&a)[PER_A], const C (&b)[PER_B]) {
#pragma unroll
        for (int slot = 0; slot < PER_A; ++slot) {
            int i, k;
            place<BM, !TA>(slot, i, k);
            shared.a[k][i] = a[slot];
        }
#pragma unroll
        for (int slot = 0; slot < PER_B; ++slot) {
            int j, k;
            place<BN, TB>(slot, j, k);
            shared.b[k][j] = b[slot];
        }
    }

    GW_DEVICE static void run(const Problem& problem) {
        __shared__ Shared shared;
        const Part<T> part(problem, BM, BN, BK);
        const int tx = threadIdx.x % (BN / TN), ty = threadIdx.x / (BN / TN);
        C total[TM][TN] = {}, sum[TM][TN] = {};
        C a_next[PER_A], b_next[PER_B];
        auto cursor = part.start();
        if (part.begin < part.end) fetch(part, cursor, a_next, b_next);
        int since = 0;
        for (i64 step = part.begin; step < part.end; ++step) {
            deposit(shared, a_next, b_next);
            __syncthreads();
            if (step + 1 < part.end) {
                part.advance(cursor);
                fetch(part, cursor, a_next, b_next);
            }
#pragma unroll
            for (int k = 0; k < BK; ++k) {
                C a[TM], b[TN];
                read(&shared.a[k][ty * TM], a);
                read(&shared.b[k][tx * TN], b);
#pragma unroll
                for (int i = 0; i < TM; ++i) {
#pragma unroll
                    for (int j = 0; j < TN; ++j) sum[i][j] += a[i] * b[j];
                }
            }
            __syncthreads();
            if (++since == PROMOTE) {
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
            for (int j = 0; j < TN; ++j) {
                part.write(part.row + ty * TM + i, part.column + tx * TN + j, Compute<T>(total[i][j] + sum[i][j]));
            }
        }
    }
};
