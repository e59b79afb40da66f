// Cumulative sums along adjacent elements, in double precision. A block of 256 threads takes a row, 256 elements at a time.
#include "gradewise/types.cuh"

namespace {

template <class T>
GW_DEVICE void cumsum(const T* x, T* out, i64 rows, i64 columns, i32 reverse) {
    __shared__ double totals[8];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (i64 row = blockIdx.x; row < rows; row += gridDim.x) {
        double carry = 0;
        for (i64 first = 0; first < columns; first += 256) {
            const i64 i = first + threadIdx.x, at = row * columns + (reverse ? columns - 1 - i : i);
            double sum = i < columns ? widen(x[at]) : 0;
#pragma unroll
            for (int offset = 1; offset < 32; offset *= 2) {
                const double before = __shfl_up_sync(0xffffffffu, sum, offset);
                if (lane >= offset) sum += before;
            }
            if (lane == 31) totals[warp] = sum;
            __syncthreads();
            double before = carry;
            for (int w = 0; w < 8; ++w) {
                if (w < warp) before += totals[w];
                carry += totals[w];
            }
            __syncthreads();
            if (i < columns) out[at] = narrow<T>(before + sum);
        }
    }
}

}  // namespace

#define GW_KERNELS(T, NAME)                                                                \
    extern "C" __global__ void __launch_bounds__(256)                                      \
        gw_cumsum_##NAME(const T* x, T* out, i64 rows, i64 columns, i32 reverse) {         \
        begin_kernel();                                                                    \
        cumsum(x, out, rows, columns, reverse);                                            \
    }
GW_FOR_DTYPES(GW_KERNELS)
