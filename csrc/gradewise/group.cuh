// Groups of threads that work on one row together.
//
// A block is blockDim.x threads along a row by blockDim.y rows; blockDim.x is a power of two. The functions below contain barriers:
// all threads of a block must call them, those of rows past the end included.
#pragma once

#include "gradewise/rows_launch.cuh"
#include "gradewise/types.cuh"

/// Calls f(row, there) for each row that this thread works on. All threads of the block make the same number of calls, so that f
/// may use the functions below; for rows past the end, `there` is false.
template <class F>
GW_DEVICE void each_row(i64 rows, F f) {
    for (i64 base = static_cast<i64>(blockIdx.x) * blockDim.y; base < rows; base += static_cast<i64>(gridDim.x) * blockDim.y) {
        f(base + threadIdx.y, base + threadIdx.y < rows);
    }
}

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
    if (warps <= 4) {
        C total = scratch[threadIdx.y * warps];
        for (int warp = 1; warp < warps; ++warp) total += scratch[threadIdx.y * warps + warp];
        return total;
    }
    value = static_cast<int>(threadIdx.x % 32) < warps ? scratch[threadIdx.y * warps + threadIdx.x % 32] : C(0);
    for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(0xffffffffu, value, offset);
    return value;
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
    value = scratch[threadIdx.y * warps + threadIdx.x % warps];
    for (int offset = warps / 2; offset > 0; offset /= 2) {
        value = greater(value, __shfl_xor_sync(0xffffffffu, value, offset));
    }
    return value;
}

/// A row in the registers of the blockDim.x threads that share it, as it is stored: K packs of 16 bytes per thread. The row must be
/// aligned to 16 bytes, a multiple of a pack long, and at most K packs per thread.
template <class T, int K>
struct RowRegisters {
    static constexpr int WIDE = 16 / sizeof(T), SIZE = K * WIDE;
    Pack<T, WIDE> packs[K];

    GW_DEVICE static int column(int k) { return (k * blockDim.x + threadIdx.x) * WIDE; }

    GW_DEVICE Compute<T> operator[](int i) const { return widen(packs[i / WIDE].at[i % WIDE]); }

    /// Makes the compiler forget values derived from the elements, so that it computes them again: kept, they need more registers
    /// than the row.
    GW_DEVICE void anew() {
        if constexpr (sizeof(T) <= 4) {
#pragma unroll
            for (int k = 0; k < K; ++k) {
                u32(&words)[4] = reinterpret_cast<u32(&)[4]>(packs[k]);
#pragma unroll
                for (int i = 0; i < 4; ++i) asm volatile("" : "+r"(words[i]));
            }
        }
    }

    /// Loads the row; elements past the end become `rest`.
    GW_DEVICE void read(const T* row, int columns, Compute<T> rest) {
#pragma unroll
        for (int k = 0; k < K; ++k) {
            if (column(k) < columns) {
                packs[k] = *reinterpret_cast<const Pack<T, WIDE>*>(row + column(k));
            } else {
#pragma unroll
                for (int i = 0; i < WIDE; ++i) packs[k].at[i] = narrow<T>(rest);
            }
        }
    }

    /// Writes f of every element, a pack at a time.
    template <class F>
    GW_DEVICE void write(T* row, int columns, const F& f) const {
#pragma unroll
        for (int k = 0; k < K; ++k) {
            Compute<T> results[WIDE];
#pragma unroll
            for (int i = 0; i < WIDE; ++i) results[i] = f((*this)[k * WIDE + i]);
            if (column(k) < columns) store<WIDE>(row + column(k), results);
        }
    }
};

/// Most threads of a block that holds rows.
template <class T, int K>
constexpr int HELD_THREADS = held_rows::threads(sizeof(T), K);
/// How many such blocks fit on a multiprocessor, so that one computes while others wait for memory.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
template <class T, int K>
constexpr int HELD_BLOCKS = sizeof(T) == 8 || HELD_THREADS<T, K> == 1024 ? 1 : RowRegisters<T, K>::SIZE <= 32 ? 3 : 2;
#else
template <class T, int K>
constexpr int HELD_BLOCKS = sizeof(T) == 8 || HELD_THREADS<T, K> == 1024 ? 1 : 2;
#endif

/// Calls M_K(type, name) for the numbers of packs K for which there are kernels (they must agree with crates/kernels/src/array/rows.rs).
#define GW_FOR_PACKS(M)   \
    GW_FOR_DTYPES(M##_1)  \
    GW_FOR_DTYPES(M##_2)  \
    GW_FOR_DTYPES(M##_4)  \
    GW_FOR_DTYPES(M##_8)
