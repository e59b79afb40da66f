// The symmetric traceless part of the product of two vectors: S = ½(u⊗v + v⊗u) − (u·v)/n · g⁻¹ with g = diag(+1 × positive, −1 × the rest).
// u and v are [n, plane], the result is [n(n+1)/2 − 1, plane]: S_ij for i ≤ j, row by row, without S_nn, which the trace determines.
#include "gradewise/math.cuh"

/// The diagonal of the metric, which is its own inverse.
GW_DEVICE i32 metric_of(i64 component, i64 positive) { return component < positive ? 1 : -1; }

/// One thread per position. The components of u and v are read again for each result: they stay in the first-level cache.
template <class T>
GW_DEVICE void traceless_product(const T* u, const T* v, T* out, i64 positive, i64 n, i64 plane) {
    using C = Compute<T>;
    for (i64 position = thread_index(); position < plane; position += thread_count()) {
        C dot = 0;
        for (i64 k = 0; k < n; ++k) {
            dot += C(metric_of(k, positive)) * widen(u[k * plane + position]) * widen(v[k * plane + position]);
        }
        const C mean = dot / C(n);
        T* result = out + position;
        for (i64 i = 0; i + 1 < n; ++i) {
            const C u_i = widen(u[i * plane + position]), v_i = widen(v[i * plane + position]);
            *result = narrow<T>(u_i * v_i - C(metric_of(i, positive)) * mean);
            result += plane;
            for (i64 j = i + 1; j < n; ++j) {
                const C u_j = widen(u[j * plane + position]), v_j = widen(v[j * plane + position]);
                *result = narrow<T>(C(0.5) * (u_i * v_j + v_i * u_j));
                result += plane;
            }
        }
    }
}

/// Gradients of both factors. With M_ij = M_ji = ½·grad_ij off the diagonal and M_ii = grad_ii − t·g_ii, where t = Σ g_ii·grad_ii / n, they are
/// M·v and M·u. One thread per position.
template <class T>
GW_DEVICE void traceless_product_backward(const T* u, const T* v, const T* grad, T* u_grad, T* v_grad, i64 positive, i64 n,
                                          i64 plane) {
    using C = Compute<T>;
    for (i64 position = thread_index(); position < plane; position += thread_count()) {
        const auto slope = [&](i64 i, i64 j) { return C(widen(grad[(i * n - i * (i + 1) / 2 + j) * plane + position])); };
        C trace = 0;
        for (i64 i = 0; i + 1 < n; ++i) trace += C(metric_of(i, positive)) * slope(i, i);
        trace /= C(n);
        for (i64 k = 0; k < n; ++k) {
            C of_u = 0, of_v = 0;
            for (i64 j = 0; j < n; ++j) {
                C entry = 0;
                if (j != k) {
                    entry = C(0.5) * slope(j < k ? j : k, j < k ? k : j);
                } else {
                    entry = (k + 1 < n ? slope(k, k) : C(0)) - C(metric_of(k, positive)) * trace;
                }
                of_u += entry * widen(v[j * plane + position]);
                of_v += entry * widen(u[j * plane + position]);
            }
            u_grad[k * plane + position] = narrow<T>(of_u);
            v_grad[k * plane + position] = narrow<T>(of_v);
        }
    }
}

#define GW_KERNELS(T, NAME)                                                                                             \
    extern "C" __global__ void __launch_bounds__(256) gw_traceless_product_fwd_##NAME(                                  \
        const T* u, const T* v, T* out, i64 positive, i64 n, i64 plane) {                                               \
        begin_kernel();                                                                                                 \
        traceless_product<T>(u, v, out, positive, n, plane);                                                            \
    }                                                                                                                   \
    extern "C" __global__ void __launch_bounds__(256, 2) gw_traceless_product_bwd_##NAME(                                  \
        const T* u, const T* v, const T* grad, T* u_grad, T* v_grad, i64 positive, i64 n, i64 plane) {                  \
        begin_kernel();                                                                                                 \
        traceless_product_backward<T>(u, v, grad, u_grad, v_grad, positive, n, plane);                                  \
    }
GW_FOR_DTYPES(GW_KERNELS)
