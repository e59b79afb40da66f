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

/// A long row in the registers of a block of kRowThreads threads: K packs of 16 bytes to each thread. Its length is a multiple of a pack
/// and at most K packs for every thread, and it is aligned to 16 bytes.
constexpr int kRowThreads = 256;
template <class T, int K>
struct RowRegisters {
    static constexpr int WIDE = 16 / sizeof(T);
    Compute<T> at[K][WIDE];

    GW_DEVICE static i64 column(int k) { return (static_cast<i64>(k) * kRowThreads + threadIdx.x) * WIDE; }

    /// Elements past the end become `rest`.
    GW_DEVICE void read(const T* row, i64 columns, Compute<T> rest) {
#pragma unroll
        for (int k = 0; k < K; ++k) {
            if (column(k) < columns) {
                load<WIDE>(row + column(k), at[k]);
            } else {
#pragma unroll
                for (int i = 0; i < WIDE; ++i) at[k][i] = rest;
            }
        }
    }

    GW_DEVICE void write(T* row, i64 columns) const {
#pragma unroll
        for (int k = 0; k < K; ++k) {
            if (column(k) < columns) store<WIDE>(row + column(k), at[k]);
        }
    }
};

/// Calls M(type, name, K) for the numbers of packs for which there are kernels (cuda/rows.rs knows them).
#define GW_FOR_PACKS(M, T, NAME) \
    M(T, NAME, 1)                \
    M(T, NAME, 2)                \
    M(T, NAME, 4)                \
    M(T, NAME, 8)
