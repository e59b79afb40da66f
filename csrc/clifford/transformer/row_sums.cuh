// Sums over the warps of a block, for each of the rows that its lanes have.
#pragma once

#include "gradewise/types.cuh"

/// Adds each of N values up over the warps, in their order. The scratch has room for N values or more.
template <int N, class C, int M, int WARPS, int TILE>
GW_DEVICE void row_sums(C (&values)[N], C (&scratch)[M][WARPS][TILE]) {
    static_assert(N <= M, "the scratch has room for all values");
    __syncthreads();  // The scratch may still be in use by the previous call.
#pragma unroll
    for (int n = 0; n < N; ++n) scratch[n][threadIdx.y][threadIdx.x] = values[n];
    __syncthreads();
#pragma unroll
    for (int n = 0; n < N; ++n) {
        values[n] = scratch[n][0][threadIdx.x];
#pragma unroll
        for (int warp = 1; warp < WARPS; ++warp) values[n] += scratch[n][warp][threadIdx.x];
    }
}
