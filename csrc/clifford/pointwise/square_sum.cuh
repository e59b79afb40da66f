// Sums of signed squares that may cancel: quadratic forms of indefinite signature.
#pragma once

#include "gradewise/integers.cuh"

/// Whether the target does f64 at half the rate of f32, as GPUs for data centres do, and not at 1/32 or 1/64 of it.
#if defined(__CUDA_ARCH__)
constexpr bool FAST_DOUBLE = __CUDA_ARCH__ == 700 || __CUDA_ARCH__ == 800 || __CUDA_ARCH__ == 900 || __CUDA_ARCH__ == 1000;
#else
constexpr bool FAST_DOUBLE = false;
#endif

/// A sum of signed squares. For float, the rounding errors of all products and sums are added up beside the sum, so that |error| ≤
/// (2⁻²⁴·|result| + n·2⁻⁴⁵·Σ v²) for n terms: as accurate as double precision unless squares cancel to 20 bits, at a twentieth of
/// its cycles on consumer GPUs, which do 128 f32 operations and 2 in f64 per cycle (docs/kernels/product.md). Squares beyond the range of
/// float make the result infinite or NaN; the error of squares below 2⁻¹⁰² is that of subnormal numbers.
template <class C>
struct SquareSum {
    C high = 0, low = 0;

    /// Adds sign·value², for a sign of -1, 0 or 1.
    GW_DEVICE void add(C sign, C value) {
        // By intrinsics: contracted into the sum, the product would not be rounded on its own.
        const C signed_value = sign * value, square = __fmul_rn(signed_value, value);
        const C sum = high + square, rounded = sum - high;
        // What the product lost, and what the sum lost (Knuth's two-sum).
        low += fmaf(signed_value, value, -square) + ((high - (sum - rounded)) + (square - rounded));
        high = sum;
    }

    GW_DEVICE C value() const { return high + low; }
};
template <>
struct SquareSum<double> {
    double sum = 0;

    GW_DEVICE void add(double sign, double value) { sum += sign * value * value; }
    GW_DEVICE double value() const { return sum; }
};
