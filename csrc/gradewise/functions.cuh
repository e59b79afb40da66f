// Functions of elements: what the kernels of one operator compute, and those generated for several at once.
//
// Products and sums are rounded one by one, never contracted to a multiply-add: which ones the compiler would contract depends on the
// code around them, and a generated kernel has the bits of the kernels that it replaces.
#pragma once

#include "gradewise/math.cuh"

GW_DEVICE float times(float a, float b) { return __fmul_rn(a, b); }
GW_DEVICE double times(double a, double b) { return __dmul_rn(a, b); }
GW_DEVICE float plus(float a, float b) { return __fadd_rn(a, b); }
GW_DEVICE double plus(double a, double b) { return __dadd_rn(a, b); }
GW_DEVICE float minus(float a, float b) { return __fadd_rn(a, -b); }
GW_DEVICE double minus(double a, double b) { return __dadd_rn(a, -b); }
GW_DEVICE float over(float a, float b) { return __fdiv_rn(a, b); }
GW_DEVICE double over(double a, double b) { return __ddiv_rn(a, b); }

/// Functions of one number, numbered as in crates/kernels/src/ops/pointwise/unary/functions.rs.
#define GW_FOR_UNARY_FUNCTIONS(M)                                                                                              \
    M(kNeg) M(kAbs) M(kSign) M(kExp) M(kLog) M(kSqrt) M(kRsqrt) M(kRecip) M(kSquare) M(kSin) M(kCos) M(kTanh) M(kErf)          \
    M(kSigmoid) M(kSilu) M(kGelu) M(kSiluDerivative) M(kGeluDerivative) M(kRelu) M(kNotFinite) M(kAddScalar) M(kMulScalar)     \
    M(kClamp) M(kPow) M(kPowInteger)

/// Functions of two numbers, numbered as in crates/kernels/src/ops/pointwise/binary/cuda.rs.
#define GW_FOR_BINARY_FUNCTIONS(M)                                                                                             \
    M(kAdd) M(kSub) M(kMul) M(kDiv) M(kMax) M(kMin) M(kEqual) M(kNotEqual) M(kGreater) M(kGreaterEqual) M(kLess) M(kLessEqual)

#define GW_ENUMERATOR(NAME) NAME,
enum UnaryFunction : i32 { GW_FOR_UNARY_FUNCTIONS(GW_ENUMERATOR) };
enum BinaryFunction : i32 { GW_FOR_BINARY_FUNCTIONS(GW_ENUMERATOR) };
#undef GW_ENUMERATOR

/// x^n by repeated squaring, for either sign of x.
template <class C>
GW_DEVICE C integer_power(C x, i64 n) {
    C power = 1, square = x;
    for (u64 rest = n < 0 ? -n : n; rest > 0; rest >>= 1) {
        if (rest & 1) power = times(power, square);
        square = times(square, square);
    }
    return n < 0 ? over(C(1), power) : power;
}

/// 1/(1 + e^-x), without overflow.
template <class C>
GW_DEVICE C logistic(C x) {
    return over(C(1), plus(C(1), exponential(-x)));
}

/// The distribution function of the standard normal distribution and its density.
template <class C>
GW_DEVICE C gaussian_cdf(C x) {
    return times(C(0.5), erfc(times(-x, C(0.70710678118654752))));
}
template <class C>
GW_DEVICE C gaussian_pdf(C x) {
    return times(C(0.39894228040143268), exponential(times(times(C(-0.5), x), x)));
}

/// F(x) with the parameters p and q.
template <UnaryFunction F, class C>
GW_DEVICE C unary(C x, double p = 0, double q = 0) {
    const C a = static_cast<C>(p), b = static_cast<C>(q);
    if constexpr (F == kNeg) return -x;
    if constexpr (F == kAbs) return x < C(0) ? -x : (x == C(0) ? C(0) : x);
    if constexpr (F == kSign) return x > C(0) ? C(1) : x < C(0) ? C(-1) : x;
    if constexpr (F == kExp) return exponential(x);
    if constexpr (F == kLog) return log(x);
    if constexpr (F == kSqrt) return root(x);
    if constexpr (F == kRsqrt) return over(C(1), root(x));
    if constexpr (F == kRecip) return over(C(1), x);
    if constexpr (F == kSquare) return times(x, x);
    if constexpr (F == kSin) return sin(x);
    if constexpr (F == kCos) return cos(x);
    if constexpr (F == kTanh) return tanh(x);
    if constexpr (F == kErf) return erf(x);
    if constexpr (F == kSigmoid) return logistic(x);
    if constexpr (F == kSilu) return times(x, logistic(x));
    if constexpr (F == kGelu) return times(x, gaussian_cdf(x));
    if constexpr (F == kSiluDerivative) {
        const C s = logistic(x);
        return plus(s, times(x, times(s, minus(C(1), s))));
    }
    if constexpr (F == kGeluDerivative) return plus(gaussian_cdf(x), times(x, gaussian_pdf(x)));
    if constexpr (F == kRelu) return x < C(0) ? C(0) : x;
    // Infinity minus itself is NaN as well.
    if constexpr (F == kNotFinite) return minus(x, x) == C(0) ? C(0) : C(1);
    if constexpr (F == kAddScalar) return plus(x, a);
    if constexpr (F == kMulScalar) return times(x, a);
    if constexpr (F == kClamp) {
        const C limited = x < a ? a : x;
        return limited > b ? b : limited;
    }
    if constexpr (F == kPow) return pow(x, a);
    if constexpr (F == kPowInteger) return integer_power(x, static_cast<i64>(p));
}

/// F(a, b).
template <BinaryFunction F, class C>
GW_DEVICE C binary(C a, C b) {
    if constexpr (F == kAdd) return plus(a, b);
    if constexpr (F == kSub) return minus(a, b);
    if constexpr (F == kMul) return times(a, b);
    if constexpr (F == kDiv) return over(a, b);
    if constexpr (F == kMax) return a > b || a != a ? a : b;
    if constexpr (F == kMin) return a < b || a != a ? a : b;
    if constexpr (F == kEqual) return C(a == b);
    if constexpr (F == kNotEqual) return C(a != b);
    if constexpr (F == kGreater) return C(a > b);
    if constexpr (F == kGreaterEqual) return C(a >= b);
    if constexpr (F == kLess) return C(a < b);
    if constexpr (F == kLessEqual) return C(a <= b);
}

/// a where mask is not 0 (NaN is not), else b.
template <class C>
GW_DEVICE C choose(C mask, C a, C b) {
    return mask != C(0) ? a : b;
}

/// Rounds to odd: rounding the result again, to a type with at least two digits less, gives the same as rounding once.
GW_DEVICE float round_to_odd(double value) {
    const float truncated = __double2float_rz(value);
    const bool exact = static_cast<double>(truncated) == value || value != value;
    return exact ? truncated : __uint_as_float(__float_as_uint(truncated) | 1u);
}

/// Conversions between element types, rounded to nearest, ties to even.
template <class S, class T>
struct Convert {
    GW_DEVICE static T one(Compute<S> value) { return narrow<T>(value); }
};
template <>
struct Convert<double, f16> {
    GW_DEVICE static f16 one(double value) { return narrow<f16>(round_to_odd(value)); }
};
template <>
struct Convert<double, bf16> {
    GW_DEVICE static bf16 one(double value) { return narrow<bf16>(round_to_odd(value)); }
};
