// Sums over segments. A segment is the set of positions of a list that hold the same number.
#pragma once

#include "gradewise/debug.cuh"
#include "gradewise/types.cuh"

/// The positions of a segment, ascending.
struct Members {
    const u32* positions;
    u32 count;
};

/// The positions of segment s are order[starts[s]..starts[s + 1]].
struct Segments {
    const u32* starts;
    const u32* order;

    GW_DEVICE Members members(u32 segment) const {
        const u32* start = starts + segment;
        return {order + start[0], start[1] - start[0]};
    }
};

/// totals[n][u][w] = Σ source[u·spacing + p·pitch + w] over the positions p in lists[n], in their order: every `step`th from `first`
/// on, of `count` positions in all. Adjacent W elements are loaded together, and the loads of U blocks for four positions of each list
/// are in flight at a time. A list that is shorter than the others contributes zeros.
template <int N, int U, int W, class T>
GW_DEVICE void segment_totals(const T* source, i64 spacing, const Members (&lists)[N], i64 pitch, i64 count, u32 first,
                              u32 step, double (&totals)[N][U][W]) {
    const u32* at[N];
    u32 left[N];
#pragma unroll
    for (int n = 0; n < N; ++n) {
        at[n] = lists[n].positions + first;
        left[n] = lists[n].count > first ? lists[n].count - first : 0;
#pragma unroll
        for (int u = 0; u < U; ++u) {
#pragma unroll
            for (int w = 0; w < W; ++w) totals[n][u][w] = 0;
        }
    }
#pragma unroll 1
    for (bool more = true; more;) {
        Compute<T> terms[N][4][U][W];
        more = false;
#pragma unroll
        for (int n = 0; n < N; ++n) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
#pragma unroll
                for (int u = 0; u < U; ++u) {
#pragma unroll
                    for (int w = 0; w < W; ++w) terms[n][i][u][w] = 0;
                }
                if (i * step < left[n]) {
                    const u32 position = static_cast<u32>(GW_INDEX(at[n][i * step], count));
                    const T* term = source + position * pitch;
#pragma unroll
                    for (int u = 0; u < U; ++u, term += spacing) load(term, terms[n][i][u]);
                }
            }
            at[n] += 4 * step;
            left[n] = left[n] > 4 * step ? left[n] - 4 * step : 0;
            more = more || left[n] > 0;
        }
#pragma unroll
        for (int n = 0; n < N; ++n) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
#pragma unroll
                for (int u = 0; u < U; ++u) {
#pragma unroll
                    for (int w = 0; w < W; ++w) totals[n][u][w] += terms[n][i][u][w];
                }
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
