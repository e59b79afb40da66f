// Elementary functions of one number, accurate to the last digits of the type.
#pragma once

#include "gradewise/types.cuh"

GW_DEVICE float exponential(float x) { return expf(x); }
GW_DEVICE double exponential(double x) { return exp(x); }
/// e^(x - shift) in two instructions, with an error of one or two units of the last place, plus that of rounding x - shift.
template <class C>
struct Exponential {
    static constexpr float LOG2_E = 1.4426950408889634f;
    float shift;
    GW_DEVICE explicit Exponential(float shift) : shift(shift * -LOG2_E) {}
    GW_DEVICE float operator()(float x) const {
        float power;
        asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(fmaf(x, LOG2_E, shift)));
        return power;
    }
};
template <>
struct Exponential<double> {
    double shift;
    GW_DEVICE explicit Exponential(double shift) : shift(shift) {}
    GW_DEVICE double operator()(double x) const { return exp(x - shift); }
};
GW_DEVICE float root(float x) { return sqrtf(x); }
GW_DEVICE double root(double x) { return sqrt(x); }

/// √x to about one unit of the last place, without the branches of the exact root.
GW_DEVICE float quick_root(float x) {
    float result;
    asm("sqrt.approx.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}

/// 1/√x to about one unit of the last place.
GW_DEVICE float inverse_root(float x) {
    const float r = rsqrtf(x);
    return r * fmaf(-0.5f * x * r, r, 1.5f);
}
GW_DEVICE double inverse_root(double x) { return 1 / sqrt(x); }

/// a/b to two units of the last place, if b is neither subnormal nor above 2¹²⁶.
GW_DEVICE float quotient(float a, float b) { return __fdividef(a, b); }
GW_DEVICE double quotient(double a, double b) { return a / b; }

/// x, or 0 if x is subnormal; NaN stays. For values that are stored and read again in every step: on a CPU, arithmetic on subnormal
/// numbers is about a hundred times slower, and a checkpoint written here may be resumed there.
GW_DEVICE float flushed(float x) { return fabsf(x) < 1.17549435e-38f ? 0.0f : x; }
GW_DEVICE double flushed(double x) { return fabs(x) < 2.2250738585072014e-308 ? 0.0 : x; }

/// 1/(1 + e^-x), without overflow.
template <class C>
GW_DEVICE C sigmoid(C x) {
    return C(1) / (C(1) + exponential(-x));
}

/// The standard normal distribution at a point: its distribution function Φ and its density φ.
template <class C>
struct Normal {
    C cdf, pdf;
};

/// Without branches, to 3e-7 of either value, also far out on the left (0 below -13): Φ(-t) = φ(t)·M(t) with Mills' ratio M, and
/// M(t)·(t + 3) by a polynomial in (t - 3)/(t + 3), of relative error 6e-8.
GW_DEVICE Normal<float> normal(float x) {
    const float far = fabsf(x), t = far > 15.0f ? 15.0f : far;
    // -t²/2 in units of ln 2, and its rounding error: without this, the error of the power would grow with the exponent.
    const float square = t * t, left = fmaf(t, t, -square);
    const float exponent = square * -0.72134752044448170f;
    const float rest = fmaf(left, -0.72134752044448170f,
                            fmaf(square, -9.6298149e-9f, fmaf(square, -0.72134752044448170f, -exponent)));
    float power, ratio;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(exponent));
    power = fmaf(power * 0.69314718f, rest, power) * 0.39894228040143268f;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(ratio) : "f"(t + 3.0f));
    const float q = fmaf(ratio, -6.0f, 1.0f);
    float mills = -0.000649986672f;
    mills = fmaf(mills, q, -0.00223723706f);
    mills = fmaf(mills, q, 0.00269020465f);
    mills = fmaf(mills, q, 0.0173362605f);
    mills = fmaf(mills, q, -0.0262698252f);
    mills = fmaf(mills, q, -0.118449375f);
    mills = fmaf(mills, q, 0.576573193f);
    mills = fmaf(mills, q, -1.27670693f);
    mills = fmaf(mills, q, 1.82754171f);
    const float tail = mills * ratio * power;
    return {x < 0.0f ? tail : 1.0f - tail, power};
}
GW_DEVICE Normal<double> normal(double x) {
    return {0.5 * erfc(-x * 0.70710678118654752), 0.39894228040143268 * exp(-0.5 * x * x)};
}

/// The same to 2e-5, for results that are rounded to 16 bits.
GW_DEVICE Normal<float> coarse_normal(float x) {
    const float far = fabsf(x), t = far > 15.0f ? 15.0f : far;
    float power, ratio;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(t * t * -0.72134752044448170f));
    power *= 0.39894228040143268f;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(ratio) : "f"(t + 3.0f));
    const float q = fmaf(ratio, -6.0f, 1.0f);
    float mills = 0.0125058164f;
    mills = fmaf(mills, q, -0.0244961962f);
    mills = fmaf(mills, q, -0.116219209f);
    mills = fmaf(mills, q, 0.576161471f);
    mills = fmaf(mills, q, -1.27693505f);
    mills = fmaf(mills, q, 1.82755986f);
    const float tail = mills * ratio * power;
    return {x < 0.0f ? tail : 1.0f - tail, power};
}

/// The distribution function of the standard normal distribution, by erfc, which keeps its digits far out on the left.
GW_DEVICE float normal_cdf(float x) { return 0.5f * erfcf(-x * 0.70710678118654752f); }
GW_DEVICE double normal_cdf(double x) { return 0.5 * erfc(-x * 0.70710678118654752); }

/// Its density.
GW_DEVICE float normal_pdf(float x) { return 0.39894228040143268f * expf(-0.5f * x * x); }
GW_DEVICE double normal_pdf(double x) { return 0.39894228040143268 * exp(-0.5 * x * x); }
