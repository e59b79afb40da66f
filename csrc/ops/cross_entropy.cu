// Cross-entropy of logits with class numbers, row by row. Blocks as in gradewise/group.cuh. Losses are double precision: a mean
// over many rows is the difference of large numbers where the model is good.
#include "gradewise/debug.cuh"
#include "gradewise/group.cuh"
#include "gradewise/math.cuh"

namespace {

/// out = [losses, whether they count, log Σ e^x], `count` of each. A row whose target is `ignored` does not count.
template <class T>
GW_DEVICE void forward(const T* x, const u32* targets, double* out, i64 count, i64 classes, i64 ignored, double smoothing) {
    using C = Compute<T>;
    __shared__ C greatest[32];
    __shared__ double sums[32];
    const C infinity = static_cast<C>(__int_as_float(0x7f800000));
    each_row(count, [&](i64 row, bool there) {
        const i64 length = there ? classes : 0;
        const T* source = x + row * classes;
        C max = -infinity;
        for (i64 i = threadIdx.x; i < length; i += blockDim.x) max = greater(max, widen(source[i]));
        max = row_max(max, greatest);
        const C shift = max == -infinity ? C(0) : max;
        double total = 0, plain = 0;
        for (i64 i = threadIdx.x; i < length; i += blockDim.x) {
            const C value = widen(source[i]);
            total += exponential(value - shift);
            plain += value;
        }
        total = row_sum(total, sums);
        plain = row_sum(plain, sums);
        if (!there || threadIdx.x != 0) return;
        const double log_sum_exp = shift + log(total);
        const i64 target = targets[row];
        GW_ASSERT(target == ignored || target < classes);
        const bool counts = target != ignored && target < classes;
        double loss = 0;
        if (counts) {
            loss = (1 - smoothing) * (log_sum_exp - static_cast<double>(widen(source[target])));
            if (smoothing > 0) loss += smoothing * (log_sum_exp - plain / classes);
        }
        out[row] = loss;
        out[count + row] = counts;
        out[2 * count + row] = log_sum_exp;
    });
}

/// (softmax - target)·scale in rows that count, 0 in others.
template <class T>
GW_DEVICE void backward(const T* x, const u32* targets, const double* log_sum_exps, const double* scale, T* out, i64 count,
                        i64 classes, i64 ignored, double smoothing) {
    using C = Compute<T>;
    const C factor = static_cast<C>(*scale), everywhere = static_cast<C>(smoothing / classes);
    const C at_target = static_cast<C>(1 - smoothing);
    for (i64 row = blockIdx.x * static_cast<i64>(blockDim.y) + threadIdx.y; row < count;
         row += gridDim.x * static_cast<i64>(blockDim.y)) {
        const i64 target = targets[row];
        GW_ASSERT(target == ignored || target < classes);
        const bool counts = target != ignored && target < classes;
        const double log_sum_exp = log_sum_exps[row];
        for (i64 i = threadIdx.x; i < classes; i += blockDim.x) {
            C value = 0;
            if (counts) {
                // The difference is in double precision: the exponential would amplify its rounding error.
                value = exponential(static_cast<C>(widen(x[row * classes + i]) - log_sum_exp)) - everywhere;
                if (i == target) value -= at_target;
            }
            out[row * classes + i] = narrow<T>(value * factor);
        }
    }
}

}  // namespace

#define GW_KERNELS(T, NAME)                                                                                              \
    extern "C" __global__ void __launch_bounds__(256)                                                                    \
        gw_cross_entropy_fwd_##NAME(const T* x, const u32* targets, double* out, i64 rows, i64 classes, i64 ignored,     \
                                    double smoothing) {                                                                  \
        begin_kernel();                                                                                                  \
        forward(x, targets, out, rows, classes, ignored, smoothing);                                                     \
    }                                                                                                                    \
    extern "C" __global__ void __launch_bounds__(256)                                                                    \
        gw_cross_entropy_bwd_##NAME(const T* x, const u32* targets, const double* log_sum_exp, const double* scale,      \
                                    T* out, i64 rows, i64 classes, i64 ignored, double smoothing) {                      \
        begin_kernel();                                                                                                  \
        backward(x, targets, log_sum_exp, scale, out, rows, classes, ignored, smoothing);                                \
    }
GW_FOR_DTYPES(GW_KERNELS)
