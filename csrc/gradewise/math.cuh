// Functions of one number, to the last digits of the type.
#pragma once

#include "gradewise/types.cuh"

GW_DEVICE float exponential(float x) { return expf(x); }
GW_DEVICE double exponential(double x) { return exp(x); }
GW_DEVICE float root(float x) { return sqrtf(x); }
GW_DEVICE double root(double x) { return sqrt(x); }

/// 1/(1 + e^-x), without overflow.
template <class C>
GW_DEVICE C sigmoid(C x) {
    return C(1) / (C(1) + exponential(-x));
}

/// The distribution function of the standard normal distribution. By erfc, which keeps its digits far out on the left.
GW_DEVICE float normal_cdf(float x) { return 0.5f * erfcf(-x * 0.70710678118654752f); }
GW_DEVICE double normal_cdf(double x) { return 0.5 * erfc(-x * 0.70710678118654752); }

/// Its density.
GW_DEVICE float normal_pdf(float x) { return 0.39894228040143268f * expf(-0.5f * x * x); }
GW_DEVICE double normal_pdf(double x) { return 0.39894228040143268 * exp(-0.5 * x * x); }
