// Functions of single multivectors in the blocks of equivariant networks (clifford/block/definition.cuh), shared by all kernels of the block:
// quadratic forms, and the grade-wise factors of silu and normalisation with their gradients. A lane holds all blades of an element.
#pragma once

#include "clifford/pointwise/grades.cuh"
#include "clifford/product/multivectors.cuh"

/// A sum of signed squares: in plain f32 where they have one sign, compensated where they cancel.
template <bool CANCELS>
struct BlockSquares {
    float sum = 0;

    GW_DEVICE void add(float sign, float value) { sum += sign * value * value; }
    GW_DEVICE float value() const { return sum; }
};
template <>
struct BlockSquares<true> : SquareSum<float> {};

/// Approximations by the hardware, with the full range of norms.
struct QuickFullRange : Quick {
    static constexpr bool FULL_RANGE = true;
};

/// `M` computes roots and quotients of norms (clifford/pointwise/norms.cuh).
template <class A, class M = Quick>
struct BlockElement {
    static constexpr int BLADES = A::BLADES, GRADES = A::GRADES, PATHS = A::PATHS;
    static constexpr auto tables = A::make();
    static constexpr float SQRT_HALF = 0.70710678118654752f;
    using Product = Multivectors<A, float, 1>;
    using Element = typename Product::Element;
    using SiluGate = Silu<float, Quick>;
    using Norms = M;
    using Normalizer = Normalization<float, M>;

    /// Whether squares of both signs are in the form of this grade; in that of all blades for -1.
    static constexpr bool cancels(int grade) {
        bool positive = false, negative = false;
        for (int blade = 0; blade < BLADES; ++blade) {
            if (grade >= 0 && tables.grade[blade] != grade) continue;
            positive = positive || tables.metric[blade] > 0;
            negative = negative || tables.metric[blade] < 0;
        }
        return positive && negative;
    }

    template <int GRADE>
    static constexpr bool CANCELS = cancels(GRADE);

    /// The quadratic form of the blades of `GRADE`, of all for -1.
    template <int GRADE>
    GW_DEVICE static float form(const Element& x) {
        BlockSquares<CANCELS<GRADE>> sum;
        each<BLADES>([&](auto index) {
            constexpr int blade = decltype(index)::value, grade = tables.grade[blade], metric = tables.metric[blade];
            if constexpr (metric != 0 && (GRADE < 0 || grade == GRADE)) sum.add(float(metric), x.at[blade][0]);
        });
        return sum.value();
    }

    /// The quadratic form of each grade.
    GW_DEVICE static void quadratic(const Element& x, float (&q)[GRADES]) {
        each<GRADES>([&](auto index) {
            constexpr int grade = decltype(index)::value;
            q[grade] = form<grade>(x);
        });
    }

    /// The quadratic form of the whole multivector.
    GW_DEVICE static float total(const Element& x) { return form<-1>(x); }

    /// Σ x·g of each grade.
    GW_DEVICE static void dot_grades(const Element& x, const float (&g)[BLADES], float (&dots)[GRADES]) {
#pragma unroll
        for (int grade = 0; grade < GRADES; ++grade) dots[grade] = 0;
        each<BLADES>([&](auto index) {
            constexpr int blade = decltype(index)::value, grade = tables.grade[blade];
            dots[grade] += x.at[blade][0] * g[blade];
        });
    }

    /// The grade-wise function F of an element: its arguments and factors.
    template <class F>
    GW_DEVICE static void factors(const F (&f)[GRADES], const Element& x, typename F::At (&at)[GRADES]) {
        float u[GRADES];
        quadratic(x, u);
        if constexpr (F::SCALAR) u[0] = x.at[0][0];
#pragma unroll
        for (int grade = 0; grade < GRADES; ++grade) at[grade] = f[grade].at(u[grade]);
    }

    /// out = x with each grade multiplied by its factor; out may be x.
    template <class At>
    GW_DEVICE static void apply(const At (&at)[GRADES], const Element& x, Element& out) {
        each<BLADES>([&](auto index) {
            constexpr int blade = decltype(index)::value, grade = tables.grade[blade];
            out.at[blade][0] = x.at[blade][0] * at[grade].factor;
        });
    }

    /// The gradient of x from that of the result, g; adds those of the parameters to `sums`. `out` may be g.
    template <class F>
    GW_DEVICE static void differentiate(const F (&f)[GRADES], const typename F::At (&at)[GRADES], const Element& x,
                                        const float (&g)[BLADES], float (&sums)[GRADES][F::COUNT], float (&out)[BLADES]) {
        float d_argument[GRADES];
        dot_grades(x, g, d_argument);
#pragma unroll
        for (int grade = 0; grade < GRADES; ++grade) d_argument[grade] = f[grade].argument_grad(at[grade], d_argument[grade], sums[grade]);
        each<BLADES>([&](auto index) {
            constexpr int blade = decltype(index)::value, grade = tables.grade[blade], metric = tables.metric[blade];
            float value = g[blade] * at[grade].factor;
            if constexpr (F::SCALAR && grade == 0) {
                value += d_argument[0];
            } else if constexpr (metric != 0) {
                value += float(F::FORM * metric) * d_argument[grade] * x.at[blade][0];
            }
            out[blade] = value;
        });
    }
};
