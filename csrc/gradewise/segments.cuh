// Sums over segments. A segment is the set of positions of a list that hold the same number.
#pragma once

#include "gradewise/debug.cuh"
#include "gradewise/types.cuh"

/// The positions of segment s are order[starts[s]..starts[s + 1]], ascending.
struct Segments {
    const u32* starts;
    const u32* order;

    GW_DEVICE u32 count(i64 segment) const { return starts[segment + 1] - starts[segment]; }
};

/// totals[n][w] = Σ source[p·pitch + w] over positions p of `segment` in lists[n], in their order: every `step`th from `first` on,
/// of `count` positions in all. Adjacent W elements are loaded together, and the loads of four positions of each list are in flight
/// at a time. A list that is shorter than the others contributes zeros.
template <int N, int W, class T>
GW_DEVICE void segment_totals(const T* source, const Segments (&lists)[N], i64 segment, i64 pitch, i64 count, u32 first,
                              u32 step, double (&totals)[N][W]) {
    i64 at[N], end[N];
#pragma unroll
    for (int n = 0; n < N; ++n) {
        at[n] = static_cast<i64>(lists[n].starts[segment]) + first;
        end[n] = lists[n].starts[segment + 1];
#pragma unroll
        for (int w = 0; w < W; ++w) totals[n][w] = 0;
    }
    for (bool more = true; more;) {
        Compute<T> terms[N][4][W];
        more = false;
#pragma unroll
        for (int n = 0; n < N; ++n) {
#pragma unroll
            for (int i = 0; i < 4; ++i, at[n] += step) {
#pragma unroll
                for (int w = 0; w < W; ++w) terms[n][i][w] = 0;
                if (at[n] < end[n]) {
                    const i64 position = GW_INDEX(lists[n].order[at[n]], count);
                    load(source + position * pitch, terms[n][i]);
                }
            }
            more = more || at[n] < end[n];
        }
#pragma unroll
        for (int n = 0; n < N; ++n) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
#pragma unroll
                for (int w = 0; w < W; ++w) totals[n][w] += terms[n][i][w];
            }
        }
    }
}

/// The sum of `total` over the 8 rows of threads of a block of 32 by 8, in a fixed order; threads of row 0 receive it. Contains
/// barriers: all threads of the block must call it.
GW_DEVICE double rows_total(double total, double (&sums)[8][32]) {
    __syncthreads();  // The previous sums may still be read.
    sums[threadIdx.y][threadIdx.x] = total;
    __syncthreads();
    if (threadIdx.y == 0) {
        for (int y = 1; y < 8; ++y) total += sums[y][threadIdx.x];
    }
    return total;
}
