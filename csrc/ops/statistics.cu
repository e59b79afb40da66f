// Statistics of the values of an array: one set of partial results per block of 256 threads, which the host combines.
#include "gradewise/types.cuh"

namespace {

enum Column { kNan, kInfinite, kLarge, kMin, kMax, kSum, kColumns };

GW_DEVICE double infinity() { return __longlong_as_double(0x7ff0000000000000LL); }

GW_DEVICE double combine(int column, double a, double b) {
    if (column == kMin) return a < b ? a : b;
    if (column == kMax) return a > b ? a : b;
    return a + b;
}

/// Numbers of NaN, of infinities and of finite values beyond `large`; least, greatest and sum of the finite values.
template <class T>
GW_DEVICE void statistics(const T* x, i64 elements, double large, double* partial) {
    __shared__ double warps[8][kColumns];
    double values[kColumns] = {0, 0, 0, infinity(), -infinity(), 0};
    for (i64 i = thread_index(); i < elements; i += thread_count()) {
        const double value = widen(x[i]), magnitude = fabs(value);
        if (value != value) {
            values[kNan] += 1;
        } else if (magnitude == infinity()) {
            values[kInfinite] += 1;
        } else {
            values[kLarge] += magnitude > large ? 1 : 0;
            values[kMin] = combine(kMin, values[kMin], value);
            values[kMax] = combine(kMax, values[kMax], value);
            values[kSum] += value;
        }
    }
#pragma unroll
    for (int column = 0; column < kColumns; ++column) {
#pragma unroll
        for (int offset = 16; offset > 0; offset /= 2) {
            const double other = __shfl_xor_sync(0xffffffffu, values[column], offset);
            values[column] = combine(column, values[column], other);
        }
        if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32][column] = values[column];
    }
    __syncthreads();
    if (threadIdx.x < kColumns) {
        double total = warps[0][threadIdx.x];
        for (int warp = 1; warp < 8; ++warp) total = combine(threadIdx.x, total, warps[warp][threadIdx.x]);
        partial[blockIdx.x * static_cast<i64>(kColumns) + threadIdx.x] = total;
    }
}

/// The sum of the squared distances of the finite values from `centre`.
template <class T>
GW_DEVICE void deviation(const T* x, i64 elements, double centre, double* partial) {
    __shared__ double warps[8];
    double sum = 0;
    for (i64 i = thread_index(); i < elements; i += thread_count()) {
        const double value = widen(x[i]), distance = value - centre;
        if (fabs(value) < infinity()) sum += distance * distance;
    }
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int warp = 1; warp < 8; ++warp) sum += warps[warp];
        partial[blockIdx.x] = sum;
    }
}

}  // namespace

#define GW_KERNELS(T, NAME)                                                                                   \
    extern "C" __global__ void __launch_bounds__(256)                                                         \
        gw_statistics_##NAME(const T* x, i64 elements, double large, double* partial) {                       \
        begin_kernel();                                                                                       \
        statistics(x, elements, large, partial);                                                              \
    }                                                                                                         \
    extern "C" __global__ void __launch_bounds__(256)                                                         \
        gw_deviation_##NAME(const T* x, i64 elements, double centre, double* partial) {                       \
        begin_kernel();                                                                                       \
        deviation(x, elements, centre, partial);                                                              \
    }
GW_FOR_DTYPES(GW_KERNELS)
