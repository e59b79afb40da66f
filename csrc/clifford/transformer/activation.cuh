// The functions of numbers that gates and scalars of transformers go through, with their slopes.
#pragma once

#include "gradewise/math.cuh"

enum Activation { NONE, RELU, SIGMOID, TANH, SILU, GELU, GELU_TANH };

/// A value and a slope.
template <class C>
struct Jet {
    C value, slope;
};

template <class C>
GW_DEVICE Jet<C> activation(i32 kind, C x) {
    switch (kind) {
        case RELU: return {x > 0 ? x : C(0), x > 0 ? C(1) : C(0)};
        case SIGMOID: {
            const C s = sigmoid(x);
            return {s, s * (1 - s)};
        }
        case TANH: {
            const C t = tanh(x);
            return {t, 1 - t * t};
        }
        case SILU: {
            const C s = sigmoid(x);
            return {x * s, s * (1 + x * (1 - s))};
        }
        case GELU: {
            const C p = normal_cdf(x);
            return {x * p, p + x * normal_pdf(x)};
        }
        case GELU_TANH: {
            // Hendrycks and Gimpel 2016, arXiv:1606.08415.
            const C k = C(0.79788456080286536), c = C(0.044715);
            const C t = tanh(k * (x + c * x * x * x));
            return {C(0.5) * x * (1 + t), C(0.5) * (1 + t) + C(0.5) * x * (1 - t * t) * k * (1 + 3 * c * x * x)};
        }
        default: return {C(1), C(0)};
    }
}
