// The functions of numbers that gates and scalars of transformers go through, with their slopes.
#pragma once

#include "gradewise/math.cuh"

enum Activation { NONE, RELU, SIGMOID, TANH, SILU, GELU, GELU_TANH };

/// A value and a slope.
template <class C>
struct Jet {
    C value, slope;
};

/// Whether a function is s(x) or x·s(x) with s(x) = 1/(1 + e^-p(x)) and an odd polynomial p: GELU's approximation by tanh (Hendrycks and
/// Gimpel 2016, arXiv:1606.08415) is, for (1 + tanh(u))/2 = 1/(1 + e^-2u).
GW_DEVICE constexpr bool is_logistic(i32 kind) { return kind == SIGMOID || kind == SILU || kind == GELU_TANH; }

/// Such a function, without branches.
template <class C>
GW_DEVICE Jet<C> logistic(i32 kind, C x) {
    const C linear = kind == GELU_TANH ? C(1.5957691216057308) : C(1);
    // Zero for the others, also where x² overflows.
    const C cubic = kind == GELU_TANH ? C(0.071354816272600246) * x * x : C(0);
    const C s = quotient(C(1), 1 + exponential(-x * (linear + cubic)));
    const C slope = s * (1 - s) * (linear + 3 * cubic);
    if (kind == SIGMOID) return {s, slope};
    return {x * s, s + x * slope};
}

template <class C>
GW_DEVICE Jet<C> activation(i32 kind, C x) {
    if (is_logistic(kind)) return logistic(kind, x);
    if (kind == GELU) {
        const C p = normal_cdf(x);
        return {x * p, p + x * normal_pdf(x)};
    }
    if (kind == TANH) {
        const C t = tanh(x);
        return {t, 1 - t * t};
    }
    if (kind == RELU) return {x > 0 ? x : C(0), x > 0 ? C(1) : C(0)};
    return {C(1), C(0)};
}
