// Softmax and its logarithm along adjacent elements. Blocks as in gradewise/group.cuh.
#include "gradewise/group.cuh"
#include "gradewise/math.cuh"

namespace {

/// e^(x - max) / Σ e^(x - max), or the logarithm. Rows of -∞ alone give zeros, or -∞; NaN spreads over its row.
template <class T>
GW_DEVICE void softmax(const T* x, T* out, i64 count, i64 columns, i32 logarithm) {
    using C = Compute<T>;
    __shared__ C greatest[32];
    __shared__ double sums[32];
    const C infinity = static_cast<C>(__int_as_float(0x7f800000));
    for (i64 start = blockIdx.x * static_cast<i64>(blockDim.y); start < count; start += gridDim.x * static_cast<i64>(blockDim.y)) {
        const i64 row = start + threadIdx.y;
        const i64 length = row < count ? columns : 0;
        const T* source = x + row * columns;
        T* target = out + row * columns;
        C max = -infinity;
        for (i64 i = threadIdx.x; i < length; i += blockDim.x) {
            max = greater(max, widen(source[i]));
        }
        max = row_max(max, greatest);
        const C shift = max == -infinity ? C(0) : max;
        double total = 0;
        for (i64 i = threadIdx.x; i < length; i += blockDim.x) total += exponential(widen(source[i]) - shift);
        total = row_sum(total, sums);
        if (logarithm) {
            const C offset = static_cast<C>(log(total));
            for (i64 i = threadIdx.x; i < length; i += blockDim.x) {
                target[i] = narrow<T>(total == 0 ? -infinity : widen(source[i]) - shift - offset);
            }
        } else {
            const C scale = total == 0 ? C(0) : static_cast<C>(1 / total);
            for (i64 i = threadIdx.x; i < length; i += blockDim.x) {
                target[i] = narrow<T>(exponential(widen(source[i]) - shift) * scale);
            }
        }
    }
}

/// The same for long rows, which are read once.
template <class T, int K>
GW_DEVICE void softmax_of_long_rows(const T* x, T* out, i64 count, i64 columns, i32 logarithm) {
    using C = Compute<T>;
    constexpr int W = RowRegisters<T, K>::WIDE;
    __shared__ C greatest[32];
    __shared__ double sums[32];
    const C infinity = static_cast<C>(__int_as_float(0x7f800000));
    for (i64 row = blockIdx.x; row < count; row += gridDim.x) {
        RowRegisters<T, K> values;
        values.read(x + row * columns, columns, -infinity);
        C max = -infinity;
#pragma unroll
        for (int i = 0; i < K * W; ++i) max = greater(max, values.at[i / W][i % W]);
        max = row_max(max, greatest);
        const C shift = max == -infinity ? C(0) : max;
        C part = 0;
#pragma unroll
        for (int i = 0; i < K * W; ++i) {
            C& value = values.at[i / W][i % W];
            const C power = exponential(value - shift);
            part += power;
            value = logarithm ? value - shift : power;
        }
        const double total = row_sum(static_cast<double>(part), sums);
        const C offset = static_cast<C>(log(total)), scale = total == 0 ? C(0) : static_cast<C>(1 / total);
#pragma unroll
        for (int i = 0; i < K * W; ++i) {
            C& value = values.at[i / W][i % W];
            value = !logarithm ? value * scale : total == 0 ? -infinity : value - offset;
        }
        values.write(out + row * columns, columns);
    }
}

}  // namespace

#define GW_LONG(T, NAME, K)                                                                                   \
    extern "C" __global__ void __launch_bounds__(kRowThreads, K == 8 ? 1 : 2)                                    \
        gw_softmax_long_##K##_##NAME(const T* x, T* out, i64 rows, i64 columns, i32 logarithm) {              \
        softmax_of_long_rows<T, K>(x, out, rows, columns, logarithm);                                         \
    }
#define GW_LONGS(T, NAME) GW_FOR_PACKS(GW_LONG, T, NAME)
GW_FOR_DTYPES(GW_LONGS)

#define GW_KERNELS(T, NAME)                                                                                   \
    extern "C" __global__ void __launch_bounds__(256)                                                         \
        gw_softmax_##NAME(const T* x, T* out, i64 rows, i64 columns, i32 logarithm) {                         \
        softmax(x, out, rows, columns, logarithm);                                                            \
    }
GW_FOR_DTYPES(GW_KERNELS)
