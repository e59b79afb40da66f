// mv_layer_norm(x; a): a·x / (mean over features of ‖x‖ + 1e-6), with the smooth norm of the whole multivector (arXiv:2305.11141).
// Shapes are those of clifford/pointwise/layer_norm.cuh.
#include "clifford/pointwise/layer_norm.cuh"

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
        layer_norm<SmoothNorm, true>(x, a, out, metric, blades, rows, features);                                                     \
    }                                                                                                                    \
    extern "C" __global__ void __launch_bounds__(256, 4)                                                                    \
        gw_mv_layer_norm_bwd_##NAME(const T* x, const T* a, const T* grad, T* out, Compute<T>* inverse_mean,             \
                                    const i32* metric, i64 blades, i64 rows, i64 features) {                             \
        begin_kernel();                                                                                                  \
        layer_norm_backward<SmoothNorm, true>(x, a, grad, out, inverse_mean, metric, blades, rows, features);                        \
    }                                                                                                                    \
    extern "C" __global__ void __launch_bounds__(256, 2)                                                                    \
        gw_mv_layer_norm_gain_##NAME(const T* x, const T* grad, const Compute<T>* inverse_mean, Compute<T>* partial,     \
                                     i64 blades, i64 rows, i64 features, i64 chunk) {                                    \
        begin_kernel();                                                                                                  \
        mv_layer_norm_gain<T>(x, grad, inverse_mean, partial, blades, {rows, features, chunk});                            \
    }
GW_FOR_DTYPES(GW_KERNELS)
