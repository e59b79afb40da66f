// Functions of single multivectors in the blocks of equivariant networks (clifford/block/definition.cuh), shared by all kernels of the block:
// quadratic forms, and the grade-wise factors of silu and normalisation with their gradients. A lane holds all blades of an element.
#pragma once

#include "clifford/pointwise/grades.cuh"
#include "clifford/product/multivectors.cuh"

template <class A>
struct BlockElement {
    static constexpr int BLADES = A::BLADES, GRADES = A::GRADES, PATHS = A::PATHS;
    static constexpr auto tables = A::make();
    static constexpr float SQRT_HALF = 0.70710678118654752f;
    using Product = Multivectors<A, float, 1>;
    using Element = typename Product::Element;
    using SiluGate = Silu<float, Quick>;
    using Normalizer = Normalization<float, Quick>;

    static constexpr bool definite() {
        for (int blade = 0; blade < BLADES; ++blade) {
            if (tables.metric[blade] < 0) return false;
        }
        return true;
    }
    static_assert(definite(), "sums of squares are plain f32 here; squares of an indefinite form cancel and need SquareSum");

    /// The quadratic form of each grade.
    GW_DEVICE static void quadratic(const Element& x, float (&q)[GRADES]) {
#pragma unroll
        for (int grade = 0; grade < GRADES; ++grade) q[grade] = 0;
        each<BLADES>([&](auto index) {
            constexpr int blade = decltype(index)::value, grade = tables.grade[blade], metric = tables.metric[blade];
            const float value = x.at[blade][0];
            if constexpr (metric != 0) q[grade] += float(metric) * value * value;
        });
    }

    /// The quadratic form of the whole multivector.
    GW_DEVICE static float total(const Element& x) {
        float sum = 0;
        each<BLADES>([&](auto index) {
            constexpr int blade = decltype(index)::value, metric = tables.metric[blade];
            const float value = x.at[blade][0];
            if constexpr (metric != 0) sum += float(metric) * value * value;
        });
        return sum;
    }

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
