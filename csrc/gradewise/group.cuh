// Groups of threads that work on one row together.
//
// A block is blockDim.x threads along a row by blockDim.y rows; blockDim.x is a power of two. All threads of a block must
// call the functions below together, those of rows past the end included.
#pragma once

#include "gradewise/types.cuh"

/// The sum of `value` over the threads of a row, in a fixed order; every thread of the row gets it. `scratch` is shared
/// memory for one value per warp of the block.
template <class C>
GW_DEVICE C row_sum(C value, C* scratch) {
    const int width = blockDim.x < 32 ? blockDim.x : 32;
    for (int offset = width / 2; offset > 0; offset /= 2) {
        value += __shfl_xor_sync(0xffffffffu, value, offset, width);
    }
    if (blockDim.x <= 32) return value;
    const int warps = blockDim.x / 32;
    __syncthreads();  // The scratch may still be in use by the previous call.
    if (threadIdx.x % 32 == 0) scratch[threadIdx.y * warps + threadIdx.x / 32] = value;
    __syncthreads();
    C total = scratch[threadIdx.y * warps];
    for (int warp = 1; warp < warps; ++warp) total += scratch[threadIdx.y * warps + warp];
    return total;
}

/// The greater of two numbers; NaN if either is.
template <class C>
GW_DEVICE C greater(C a, C b) {
    return a > b || a != a ? a : b;
}

/// The greatest of the values of the threads of a row; every thread of the row gets it.
template <class C>
GW_DEVICE C row_max(C value, C* scratch) {
    const int width = blockDim.x < 32 ? blockDim.x : 32;
    for (int offset = width / 2; offset > 0; offset /= 2) {
        value = greater(value, __shfl_xor_sync(0xffffffffu, value, offset, width));
    }
    if (blockDim.x <= 32) return value;
    const int warps = blockDim.x / 32;
    __syncthreads();  // The scratch may still be in use by the previous call.
    if (threadIdx.x % 32 == 0) scratch[threadIdx.y * warps + threadIdx.x / 32] = value;
    __syncthreads();
    for (int warp = 0; warp < warps; ++warp) value = greater(value, scratch[threadIdx.y * warps + warp]);
    return value;
}
