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
    each_row(count, [&](i64 row, bool there) {
        const i64 length = there ? columns : 0;
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
    });
}

/// The same with rows held in registers, which are read once. Powers are computed twice, except in double precision, where they are
/// kept.
template <class T, int K>
GW_DEVICE void softmax_held(const T* x, T* out, i64 count, i64 columns, i32 logarithm) {
    using C = Compute<T>;
    using Row = RowRegisters<T, K>;
    constexpr bool KEPT = sizeof(T) == 8;
    __shared__ C greatest[32];
    __shared__ double sums[32];
    const C infinity = static_cast<C>(__int_as_float(0x7f800000));
    each_row(count, [&](i64 row, bool there) {
        const int length = there ? static_cast<int>(columns) : 0;
        T* const target = out + row * columns;
        Row values;
        values.read(x + row * columns, length, -infinity);
        C max = -infinity;
#pragma unroll
        for (int i = 0; i < Row::SIZE; ++i) max = values[i] > max ? values[i] : max;
        // A NaN may lose here; it reaches the whole row through the sum.
        max = row_max(max, greatest);
        values.anew();
        const C shift = max == -infinity ? C(0) : max;
        const Exponential<C> power(shift);
        C part = 0;
#pragma unroll
        for (int i = 0; i < Row::SIZE; ++i) {
            const C value = power(values[i]);
            part += value;
            if constexpr (KEPT) {
                if (!logarithm) values.packs[i / Row::WIDE].at[i % Row::WIDE] = value;
            }
        }
        const double total = row_sum(static_cast<double>(part), sums);
        values.anew();
        // The branch is uniform over the grid. Each side is a loop of its own, which needs fewer registers.
        if (logarithm) {
            const C offset = total == 0 ? infinity : static_cast<C>(log(total));
            values.write(target, length, [=](C value) { return value - shift - offset; });
        } else {
            const C scale = total == 0 ? C(0) : C(1) / static_cast<C>(total);
            values.write(target, length, [=](C value) {
                if constexpr (KEPT) return value * scale;
                else return power(value) * scale;
            });
        }
    });
}

}  // namespace

#define GW_HELD(T, NAME, K)                                                                      \
    extern "C" __global__ void __launch_bounds__((HELD_THREADS<T, K>), (HELD_BLOCKS<T, K>))      \
        gw_softmax_held_##K##_##NAME(const T* x, T* out, i64 rows, i64 columns, i32 logarithm) { \
        begin_kernel();                                                                          \
        softmax_held<T, K>(x, out, rows, columns, logarithm);                                    \
    }
#define GW_HELD_1(T, NAME) GW_HELD(T, NAME, 1)
#define GW_HELD_2(T, NAME) GW_HELD(T, NAME, 2)
#define GW_HELD_4(T, NAME) GW_HELD(T, NAME, 4)
#define GW_HELD_8(T, NAME) GW_HELD(T, NAME, 8)
GW_FOR_PACKS(GW_HELD)

#define GW_KERNELS(T, NAME)                                                                                   \
    extern "C" __global__ void __launch_bounds__(256)                                                         \
        gw_softmax_##NAME(const T* x, T* out, i64 rows, i64 columns, i32 logarithm) {                         \
        begin_kernel();                                                                                       \
        softmax(x, out, rows, columns, logarithm);                                                            \
    }
GW_FOR_DTYPES(GW_KERNELS)
