// Quadratic forms and smooth norms of multivectors (arXiv:2305.11141), shared by mv_silu, mv_normalization, mv_layer_norm and
// clifford/block.
#pragma once

#include "clifford/pointwise/square_sum.cuh"
#include "gradewise/math.cuh"

/// Added to the mean square under the root of an RMS norm.
constexpr double RMS_EPSILON = 1e-6;
/// Added to what mv_layer_norm and mv_normalization divide by.
constexpr double NORM_EPSILON = 1e-6;
/// Added to q² under the fourth root of the smooth norm, so that the norm has a derivative where q is 0.
constexpr double SMOOTH_EPSILON = 1e-16;

/// The least quadratic form that cs_grade_norm divides by the root of: its norms are 0.1 at least.
constexpr double LEAST_SQUARE = 0.01;

/// Square roots, quotients and sigmoids as IEEE 754 rounds them.
struct Exact {
    /// Whether norms are right where the square of a quadratic form overflows.
    static constexpr bool FULL_RANGE = true;

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

/// The same by the hardware's approximations, one instruction each: an error of about 2⁻²², e^x of |x|·2⁻²⁴ besides, and subnormal
/// numbers count as zeros.
struct Quick {
    static constexpr bool FULL_RANGE = false;

    GW_DEVICE static float root(float x) {
        float result;
        asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
        return result;
    }
    GW_DEVICE static float inverse(float x) {
        float result;
        asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
        return result;
    }
    GW_DEVICE static float quotient(float a, float b) { return a * inverse(b); }
    GW_DEVICE static float sigmoid(float x) {
        float power;
        asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x * -1.4426950408889634f));
        return inverse(1.0f + power);
    }
};

/// The smooth norm ‖x‖ = (q² + 1e-16)^¼ of the quadratic form q of x. `M` is Exact or Quick. Above 1 the summand is less than half a unit
/// in the last place of q², and the norm is √|q|: the square of q, which overflows where x is about 4e9 in float, is not formed.
/// Quick is for blocks of operators whose kernels have no register left for that: their features stay below 4e9 (docs/numerics.md).
template <class M, class C>
GW_DEVICE C smooth_norm(C q) {
    if constexpr (!M::FULL_RANGE) {
        return M::root(M::root(q * q + C(SMOOTH_EPSILON)));
    } else {
        const C size = q < C(0) ? -q : q;
        return M::root(size > C(1) ? size : M::root(q * q + C(SMOOTH_EPSILON)));
    }
}

/// q/‖x‖³: the derivative of ‖x‖ by x_i is this times metric_i·x_i. Above 1 it is ±1/‖x‖, without the cube, for Exact.
template <class M, class C>
GW_DEVICE C smooth_norm_slope(C q, C norm) {
    if constexpr (!M::FULL_RANGE) {
        return M::quotient(q, norm * norm * norm);
    } else {
        const bool is_large = norm > C(1);
        return M::quotient(is_large ? (q < C(0) ? C(-1) : C(1)) : q, is_large ? norm : norm * norm * norm);
    }
}

/// The quadratic form Σ metric_i·x_i² over the blades from `begin` to before `end`, summed in f64 if `DOUBLE`, in compensated f32
/// otherwise (docs/kernels/product.md). Element i of the multivector is at x[i·plane].
template <bool DOUBLE = FAST_DOUBLE, class T, class I>
GW_DEVICE Compute<T> quadratic(const T* x, const i32* metric, I begin, I end, i64 plane) {
    using C = Compute<T>;
    if constexpr (!DOUBLE && sizeof(C) == sizeof(float)) {
        SquareSum<float> sum;
        for (I blade = begin; blade < end; ++blade) sum.add(float(metric[blade]), widen(x[blade * plane]));
        const float q = sum.value();
        if (fabsf(q) <= 3.402823466e38f) return q;
        // A square is beyond the range of float, or NaN: in double precision, a difference of such squares may still be finite.
        SquareSum<double> wide;
#pragma unroll 1
        for (I blade = begin; blade < end; ++blade) wide.add(metric[blade], widen(x[blade * plane]));
        return C(wide.value());
    } else {
        SquareSum<double> sum;
        for (I blade = begin; blade < end; ++blade) sum.add(metric[blade], widen(x[blade * plane]));
        return C(sum.value());
    }
}

/// Σ x_i·g_i over the same blades.
template <class T, class I>
GW_DEVICE Compute<T> dot(const T* x, const T* g, I begin, I end, i64 plane) {
    Compute<T> sum = 0;
    for (I blade = begin; blade < end; ++blade) sum += widen(x[blade * plane]) * widen(g[blade * plane]);
    return sum;
}
