// Quadratic forms and smooth norms of multivectors (arXiv:2305.11141), shared by mv_silu, mv_normalization, mv_layer_norm and mv_block.
#pragma once

#include "gradewise/math.cuh"

/// Added to the mean square under the root of an RMS norm.
constexpr double RMS_EPSILON = 1e-6;
/// Added to what mv_layer_norm and mv_normalization divide by.
constexpr double NORM_EPSILON = 1e-6;
/// Added to q² under the fourth root of the smooth norm, so that the norm has a derivative where q is 0.
constexpr double SMOOTH_EPSILON = 1e-16;

/// Square roots, quotients and sigmoids as IEEE 754 rounds them.
struct Exact {
    template <class C>
    GW_DEVICE static C root(C x) {
        return ::root(x);
    }
    template <class C>
    GW_DEVICE static C quotient(C a, C b) {
        return a / b;
    }
    template <class C>
    GW_DEVICE static C sigmoid(C x) {
        return ::sigmoid(x);
    }
};

/// The same by the hardware's approximations: an error of about 2⁻²² and no branches.
struct Quick {
    GW_DEVICE static float root(float x) { return quick_root(x); }
    GW_DEVICE static float quotient(float a, float b) { return ::quotient(a, b); }
    GW_DEVICE static float sigmoid(float x) { return ::quotient(1.0f, 1.0f + exponential(-x)); }
};

/// The smooth norm ‖x‖ = (q² + 1e-16)^¼ of the quadratic form q of x. `M` is Exact or Quick.
template <class M, class C>
GW_DEVICE C smooth_norm(C q) {
    return M::root(M::root(q * q + C(SMOOTH_EPSILON)));
}

/// q/‖x‖³: the derivative of ‖x‖ by x_i is this times metric_i·x_i.
template <class M, class C>
GW_DEVICE C smooth_norm_slope(C q, C norm) {
    return M::quotient(q, norm * norm * norm);
}

/// A sum of signed squares, in which those of an indefinite form may cancel. For float, the rounding error of every product and of
/// every sum is added up beside the sum: |error| ≤ n·2⁻⁴⁶·Σ v² for n terms, before the result is rounded to float. On consumer GPUs this
/// takes an eighth of the cycles that double precision does (docs/kernels.md). Squares beyond the range of float make it infinite or NaN.
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

/// The quadratic form Σ metric_i·x_i² over the blades from `begin` to before `end`. Element i of the multivector is at x[i·plane].
template <class T, class I>
GW_DEVICE Compute<T> quadratic(const T* x, const i32* metric, I begin, I end, i64 plane) {
    using C = Compute<T>;
    SquareSum<C> sum;
    for (I blade = begin; blade < end; ++blade) sum.add(C(metric[blade]), widen(x[blade * plane]));
    const C q = sum.value();
    if constexpr (sizeof(C) == sizeof(float)) {
        if (fabsf(q) <= 3.402823466e38f) return q;
        // A square is beyond the range of float, or NaN: in double precision, a difference of such squares may still be finite.
        SquareSum<double> wide;
#pragma unroll 1
        for (I blade = begin; blade < end; ++blade) wide.add(metric[blade], widen(x[blade * plane]));
        return C(wide.value());
    } else {
        return q;
    }
}

/// Σ x_i·g_i over the same blades.
template <class T, class I>
GW_DEVICE Compute<T> dot(const T* x, const T* g, I begin, I end, i64 plane) {
    Compute<T> sum = 0;
    for (I blade = begin; blade < end; ++blade) sum += widen(x[blade * plane]) * widen(g[blade * plane]);
    return sum;
}
