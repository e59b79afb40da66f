// mv_layer_norm(x; a): a·x / (mean over features of ‖x‖ + 1e-6), with the smooth norm of the whole multivector
// (arXiv:2305.11141). x is [blades, rows, features], a is [features]; `metric` is the diagonal of the quadratic form.
//
// blockDim.x threads share a row, blockDim.y rows share a block (gradewise/group.cuh).
#include "clifford/chunk.cuh"
#include "clifford/norms.cuh"
#include "gradewise/group.cuh"

template <class T>
GW_DEVICE void mv_layer_norm(const T* x, const T* a, T* out, const i32* metric, i64 blades, i64 rows, i64 features) {
    using C = Compute<T>;
    __shared__ C scratch[32];
    const i64 plane = rows * features;
    each_row(rows, [&](i64 row, bool there) {
        const i64 line = row * features;
        C norms = 0;
        for (i64 i = threadIdx.x; there && i < features; i += blockDim.x) {
            norms += smooth_norm<Exact>(quadratic(x + line + i, metric, i64(0), blades, plane));
        }
        norms = row_sum(norms, scratch);
        if (!there) return;
        const C scale = C(1) / (norms / C(features) + C(NORM_EPSILON));
        for (i64 i = threadIdx.x; i < features; i += blockDim.x) {
            const C gain = widen(a[i]) * scale;
            for (i64 blade = 0; blade < blades; ++blade) {
                const i64 at = blade * plane + line + i;
                out[at] = narrow<T>(widen(x[at]) * gain);
            }
        }
    });
}

/// Writes the gradient of x, and 1/(mean norm + ε) of each row, which the gradient of a takes.
template <class T>
GW_DEVICE void mv_layer_norm_backward(const T* x, const T* a, const T* grad, T* out, Compute<T>* inverse_mean,
                                      const i32* metric, i64 blades, i64 rows, i64 features) {
    using C = Compute<T>;
    __shared__ C scratch[32];
    const i64 plane = rows * features;
    each_row(rows, [&](i64 row, bool there) {
        const i64 line = row * features;
        C norms = 0, dots = 0;
        for (i64 i = threadIdx.x; there && i < features; i += blockDim.x) {
            const C along = dot(x + line + i, grad + line + i, i64(0), blades, plane);
            norms += smooth_norm<Exact>(quadratic(x + line + i, metric, i64(0), blades, plane));
            dots += widen(a[i]) * along;
        }
        norms = row_sum(norms, scratch);
        dots = row_sum(dots, scratch);
        if (!there) return;
        const C scale = C(1) / (norms / C(features) + C(NORM_EPSILON));
        if (threadIdx.x == 0) inverse_mean[row] = scale;
        const C norm_grad = -dots * scale * scale / C(features);
        for (i64 i = threadIdx.x; i < features; i += blockDim.x) {
            const C q = quadratic(x + line + i, metric, i64(0), blades, plane);
            const C form_grad = norm_grad * smooth_norm_slope<Exact>(q, smooth_norm<Exact>(q)), gain = widen(a[i]) * scale;
            for (i64 blade = 0; blade < blades; ++blade) {
                const i64 at = blade * plane + line + i;
                out[at] = narrow<T>(widen(grad[at]) * gain + form_grad * C(metric[blade]) * widen(x[at]));
            }
        }
    });
}

/// Partial gradients of a, [chunks, features]: Σ_rows Σ_blades x·grad / (mean norm + ε).
template <class T>
GW_DEVICE void mv_layer_norm_gain(const T* x, const T* grad, const Compute<T>* inverse_mean, Compute<T>* partial, i64 blades,
                                  const Chunk& chunk) {
    const i64 plane = chunk.rows * chunk.features;
    chunk.each_feature([&](i64 feature) {
        Compute<T> sum = 0;
        chunk.each_row(feature, [&](i64 row, i64 position) {
            sum += dot(x + position, grad + position, i64(0), blades, plane) * inverse_mean[row];
        });
        partial[chunk.place(feature)] = sum;
    });
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
        mv_layer_norm_gain<T>(x, grad, inverse_mean, partial, blades, {rows, features, chunk});                            \
    }
GW_FOR_DTYPES(GW_KERNELS)
