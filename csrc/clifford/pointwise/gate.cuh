// Gates of multivectors by their scalar part: x·f(x_0), every blade times a function of the scalar one. x is [blades, plane].
//
// A gate F has, for arithmetic on C: `value(u)`, which is f(u), and `slope(u, value)`, its derivative where f(u) is `value`.
#pragma once

#include "gradewise/math.cuh"

/// The normal distribution function Φ.
struct NormalGate {
    template <class C>
    GW_DEVICE static C value(C u) {
        return normal_cdf(u);
    }
    template <class C>
    GW_DEVICE static C slope(C u, C) {
        return normal_pdf(u);
    }
};

/// ½(1 + tanh(√(2/π)(u + 0.044715 u³))), as the logistic function of twice that argument.
struct TanhGate {
    /// 2√(2/π), and the factor of u³.
    static constexpr double SCALE = 1.5957691216057308, CUBIC = 0.044715;

    template <class C>
    GW_DEVICE static C value(C u) {
        return sigmoid(C(SCALE) * (u + C(CUBIC) * u * u * u));
    }
    /// 0 where the gate is flat, also where u² is beyond the range of C. NaN stays NaN.
    template <class C>
    GW_DEVICE static C slope(C u, C value) {
        const C flat = value * (C(1) - value);
        return flat == C(0) ? flat : flat * C(SCALE) * (C(1) + C(3 * CUBIC) * u * u);
    }
};

template <class F, class T>
GW_DEVICE void gate(const T* x, T* out, i64 blades, i64 plane) {
    for (i64 position = thread_index(); position < plane; position += thread_count()) {
        const Compute<T> factor = F::value(widen(x[position]));
        for (i64 blade = 0; blade < blades; ++blade) {
            const i64 at = blade * plane + position;
            out[at] = narrow<T>(widen(x[at]) * factor);
        }
    }
}

/// ∂x_i = f·g_i, plus f'(x_0)·Σ g_i·x_i for the scalar. `out` may be `grad`.
template <class F, class T>
GW_DEVICE void gate_backward(const T* x, const T* grad, T* out, i64 blades, i64 plane) {
    for (i64 position = thread_index(); position < plane; position += thread_count()) {
        const Compute<T> scalar = widen(x[position]), factor = F::value(scalar);
        const Compute<T> first = widen(grad[position]);
        Compute<T> dot = scalar * first;
        for (i64 blade = 1; blade < blades; ++blade) {
            const i64 at = blade * plane + position;
            const Compute<T> g = widen(grad[at]);
            dot += widen(x[at]) * g;
            out[at] = narrow<T>(factor * g);
        }
        out[position] = narrow<T>(factor * first + F::slope(scalar, factor) * dot);
    }
}

/// The kernels of one gate, forward and backward.
#define GW_GATE(OPERATION, GATE, T, NAME)                                                                           \
    extern "C" __global__ void __launch_bounds__(256, 4)                                                            \
        gw_##OPERATION##_fwd_##NAME(const T* x, T* out, i64 blades, i64 plane) {                                    \
        begin_kernel();                                                                                             \
        gate<GATE, T>(x, out, blades, plane);                                                                       \
    }                                                                                                               \
    extern "C" __global__ void __launch_bounds__(256, 4)                                                            \
        gw_##OPERATION##_bwd_##NAME(const T* x, const T* grad, T* out, i64 blades, i64 plane) {                     \
        begin_kernel();                                                                                             \
        gate_backward<GATE, T>(x, grad, out, blades, plane);                                                        \
    }
