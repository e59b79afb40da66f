// The gate x·Φ(x_0): every blade times the normal distribution function of the scalar one. x is [blades, plane].
#include "gradewise/math.cuh"

template <class T>
GW_DEVICE void gate(const T* x, T* out, i64 blades, i64 plane) {
    for (i64 position = thread_index(); position < plane; position += thread_count()) {
        const Compute<T> phi = normal_cdf(widen(x[position]));
        for (i64 blade = 0; blade < blades; ++blade) {
            const i64 at = blade * plane + position;
            out[at] = narrow<T>(widen(x[at]) * phi);
        }
    }
}

/// ∂x_i = Φ·g_i, plus φ(x_0)·Σ g_i·x_i for the scalar. `out` may be `grad`.
template <class T>
GW_DEVICE void gate_backward(const T* x, const T* grad, T* out, i64 blades, i64 plane) {
    for (i64 position = thread_index(); position < plane; position += thread_count()) {
        const Compute<T> scalar = widen(x[position]), phi = normal_cdf(scalar);
        const Compute<T> first = widen(grad[position]);
        Compute<T> dot = scalar * first;
        for (i64 blade = 1; blade < blades; ++blade) {
            const i64 at = blade * plane + position;
            const Compute<T> g = widen(grad[at]);
            dot += widen(x[at]) * g;
            out[at] = narrow<T>(phi * g);
        }
        out[position] = narrow<T>(phi * first + normal_pdf(scalar) * dot);
    }
}

#define GW_KERNELS(T, NAME)                                                                                      \
    extern "C" __global__ void __launch_bounds__(256, 4) gw_gate_fwd_##NAME(const T* x, T* out, i64 blades, i64 plane) { \
        begin_kernel();                                                                                                  \
        gate<T>(x, out, blades, plane);                                                                          \
    }                                                                                                            \
    extern "C" __global__ void __launch_bounds__(256, 4)                                                            \
        gw_gate_bwd_##NAME(const T* x, const T* grad, T* out, i64 blades, i64 plane) {                           \
        begin_kernel();                                                                                          \
        gate_backward<T>(x, grad, out, blades, plane);                                                           \
    }
GW_FOR_DTYPES(GW_KERNELS)
