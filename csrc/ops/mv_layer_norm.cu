// mv_layer_norm(x; a): a·x / (mean over features of ‖x‖ + 1e-6), with the smooth norm of the whole multivector
// (arXiv:2305.11141). x is [blades, rows, features], a is [features]; `metric` is the diagonal of the quadratic form.
//
// blockDim.x threads share a row, blockDim.y rows share a block (gradewise/group.cuh).
#include "gradewise/group.cuh"
#include "gradewise/math.cuh"

template <class T>
GW_DEVICE Compute<T> quadratic(const T* x, const i32* metric, i64 blades, i64 plane) {
    // In double precision: the squares of an indefinite form cancel, and the norm is nearly singular where they do.
    double q = 0;
    for (i64 blade = 0; blade < blades; ++blade) {
        const double value = widen(x[blade * plane]);
        q += metric[blade] * value * value;
    }
    return Compute<T>(q);
}

template <class C>
GW_DEVICE C smooth_norm(C q) {
    return root(root(q * q + C(1e-16)));
}

template <class T>
GW_DEVICE void mv_layer_norm(const T* x, const T* a, T* out, const i32* metric, i64 blades, i64 rows, i64 features) {
    using C = Compute<T>;
    __shared__ C scratch[32];
    const i64 plane = rows * features;
    for (i64 base = static_cast<i64>(blockIdx.x) * blockDim.y; base < rows; base += static_cast<i64>(gridDim.x) * blockDim.y) {
        const i64 row = base + threadIdx.y;
        const bool active = row < rows;
        const i64 line = row * features;
        C norms = 0;
        for (i64 i = threadIdx.x; active && i < features; i += blockDim.x) {
            norms += smooth_norm(quadratic(x + line + i, metric, blades, plane));
        }
        norms = row_sum(norms, scratch);
        if (!active) continue;
        const C scale = C(1) / (norms / C(features) + C(1e-6));
        for (i64 i = threadIdx.x; i < features; i += blockDim.x) {
            const C gain = widen(a[i]) * scale;
            for (i64 blade = 0; blade < blades; ++blade) {
                const i64 at = blade * plane + line + i;
                out[at] = narrow<T>(widen(x[at]) * gain);
            }
        }
    }
}

/// Writes the gradient of x, and 1/(mean norm) of each row for the gradient of a.
template <class T>
GW_DEVICE void mv_layer_norm_backward(const T* x, const T* a, const T* grad, T* out, Compute<T>* inverse_mean,
                                      const i32* metric, i64 blades, i64 rows, i64 features) {
    using C = Compute<T>;
    __shared__ C scratch[32];
    const i64 plane = rows * features;
    for (i64 base = static_cast<i64>(blockIdx.x) * blockDim.y; base < rows; base += static_cast<i64>(gridDim.x) * blockDim.y) {
        const i64 row = base + threadIdx.y;
        const bool active = row < rows;
        const i64 line = row * features;
        C norms = 0, dots = 0;
        for (i64 i = threadIdx.x; active && i < features; i += blockDim.x) {
            C dot = 0;
            for (i64 blade = 0; blade < blades; ++blade) {
                const i64 at = blade * plane + line + i;
                dot += widen(x[at]) * widen(grad[at]);
            }
            norms += smooth_norm(quadratic(x + line + i, metric, blades, plane));
            dots += widen(a[i]) * dot;
        }
        norms = row_sum(norms, scratch);
        dots = row_sum(dots, scratch);
        if (!active) continue;
        const C scale = C(1) / (norms / C(features) + C(1e-6));
        if (threadIdx.x == 0) inverse_mean[row] = scale;
        const C pull = -dots * scale * scale / C(features);
        for (i64 i = threadIdx.x; i < features; i += blockDim.x) {
            const C q = quadratic(x + line + i, metric, blades, plane);
            const C norm = smooth_norm(q);
            const C through = pull * (q / (norm * norm * norm)), gain = widen(a[i]) * scale;
            for (i64 blade = 0; blade < blades; ++blade) {
                const i64 at = blade * plane + line + i;
                out[at] = narrow<T>(widen(grad[at]) * gain + through * C(metric[blade]) * widen(x[at]));
            }
        }
    }
}

/// Partial gradients of a, [chunks, features]: Σ_rows Σ_blades x·grad / mean norm. One thread per feature, blockIdx.z the
/// chunk of `chunk` rows.
template <class T>
GW_DEVICE void mv_layer_norm_gain(const T* x, const T* grad, const Compute<T>* inverse_mean, Compute<T>* partial, i64 blades,
                                  i64 rows, i64 features, i64 chunk) {
    using C = Compute<T>;
    const i64 plane = rows * features;
    const i64 begin = blockIdx.z * chunk, end = begin + chunk < rows ? begin + chunk : rows;
    for (i64 feature = thread_index(); feature < features; feature += thread_count()) {
        C sum = 0;
        for (i64 row = begin; row < end; ++row) {
            C dot = 0;
            for (i64 blade = 0; blade < blades; ++blade) {
                const i64 at = blade * plane + row * features + feature;
                dot += widen(x[at]) * widen(grad[at]);
            }
            sum += dot * inverse_mean[row];
        }
        partial[blockIdx.z * features + feature] = sum;
    }
}

#define GW_KERNELS(T, NAME)                                                                                              \
    extern "C" __global__ void __launch_bounds__(256, 4) gw_mv_layer_norm_fwd_##NAME(                                       \
        const T* x, const T* a, T* out, const i32* metric, i64 blades, i64 rows, i64 features) {                         \
        begin_kernel();                                                                                                  \
        mv_layer_norm<T>(x, a, out, metric, blades, rows, features);                                                     \
    }                                                                                                                    \
    extern "C" __global__ void __launch_bounds__(256, 4)                                                                    \
        gw_mv_layer_norm_bwd_##NAME(const T* x, const T* a, const T* grad, T* out, Compute<T>* inverse_mean,             \
                                    const i32* metric, i64 blades, i64 rows, i64 features) {                             \
        begin_kernel();                                                                                                  \
        mv_layer_norm_backward<T>(x, a, grad, out, inverse_mean, metric, blades, rows, features);                        \
    }                                                                                                                    \
    extern "C" __global__ void __launch_bounds__(256, 2)                                                                    \
        gw_mv_layer_norm_gain_##NAME(const T* x, const T* grad, const Compute<T>* inverse_mean, Compute<T>* partial,     \
                                     i64 blades, i64 rows, i64 features, i64 chunk) {                                    \
        begin_kernel();                                                                                                  \
        mv_layer_norm_gain<T>(x, grad, inverse_mean, partial, blades, rows, features, chunk);                            \
    }
GW_FOR_DTYPES(GW_KERNELS)
