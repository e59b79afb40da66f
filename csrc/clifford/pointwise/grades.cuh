// Functions that multiply each grade of a multivector by a factor of that grade: mv_silu, mv_normalization (arXiv:2305.11141)
// and cs_grade_norm (arXiv:2402.14730).
//
// x is [blades, rows, features]; parameters are [features, grades]; `first` has the first blade of each grade and one past the
// last, and `metric` the diagonal of the quadratic form.
//
// A function F of one feature and grade has, for arithmetic on C:
// - `F::Parameters<T>`, pointers to its parameters, and F(parameters, index), which reads those at `index`;
// - `F::COUNT`, the number of its parameters;
// - `F::SCALAR`: whether its argument in grade 0 is the scalar part; elsewhere it is the quadratic form q of the grade;
// - `F::DOUBLE`: whether q is summed in f64;
// - `at(u)`: the values derived from the argument u, among them `factor`;
// - `argument_grad(at, dot, sums)`: from dot = Σ x_i·g_i, with g the gradient of the result, adds the parameters' gradients to `sums`
//   and returns p such that the gradient of x_i is factor·g_i + F::FORM·p·metric_i·x_i, or factor·g_0 + p where the argument is the
//   scalar part;
// - `finish(sum)`: turns one of `sums` over rows into the gradient of a parameter.
#pragma once

#include "gradewise/chunk.cuh"
#include "clifford/pointwise/norms.cuh"

/// The gate σ(a·u + b).
template <class C, class M = Exact>
struct Silu {
    static constexpr int COUNT = 2, FORM = 2;
    // Compensated f32 is faster on every architecture (docs/kernels/product.md).
    static constexpr bool SCALAR = true, DOUBLE = false;
    C slope, shift;

    template <class T>
    struct Parameters {
        const T *a, *b;
    };

    Silu() = default;
    template <class T>
    GW_DEVICE Silu(const Parameters<T>& p, i64 index) : slope(widen(p.a[index])), shift(widen(p.b[index])) {}

    struct At {
        C u, factor;
    };
    GW_DEVICE At at(C u) const { return {u, M::sigmoid(slope * u + shift)}; }

    GW_DEVICE C argument_grad(const At& at, C dot, C (&sums)[COUNT]) const {
        const C gate_grad = dot * (at.factor * (C(1) - at.factor));
        sums[0] += gate_grad * at.u;
        sums[1] += gate_grad;
        return gate_grad * slope;
    }
    GW_DEVICE C finish(C sum) const { return sum; }
};

/// 1/(σ(a)·(‖x‖ - 1) + 1 + ε).
template <class C, class M = Exact>
struct Normalization {
    static constexpr int COUNT = 1, FORM = 1;
    static constexpr bool SCALAR = false, DOUBLE = FAST_DOUBLE;
    /// σ(a), and 1 - σ(a) as σ(-a), which keeps its digits.
    C share, rest;

    template <class T>
    struct Parameters {
        const T* a;
    };

    Normalization() = default;
    GW_DEVICE explicit Normalization(C a) : share(M::sigmoid(a)), rest(M::sigmoid(-a)) {}
    template <class T>
    GW_DEVICE Normalization(const Parameters<T>& p, i64 index) : Normalization(widen(p.a[index])) {}

    struct At {
        C q, norm, factor;
    };
    GW_DEVICE At at(C q) const {
        const C norm = smooth_norm<M>(q);
        return {q, norm, M::quotient(C(1), share * norm + rest + C(NORM_EPSILON))};
    }

    GW_DEVICE C argument_grad(const At& at, C dot, C (&sums)[COUNT]) const {
        const C divisor_grad = -dot * at.factor * at.factor;
        sums[0] += divisor_grad * (at.norm - C(1));
        return divisor_grad * share * smooth_norm_slope<M>(at.q, at.norm);
    }
    GW_DEVICE C finish(C sum) const { return sum * share * rest; }
};

/// The same with the norm of max(q, LEAST_SQUARE) (arXiv:2402.14730).
template <class C, class M = Exact>
struct ClampedNormalization : Normalization<C, M> {
    using Base = Normalization<C, M>;
    using Base::Base;
    using At = typename Base::At;

    /// A comparison, so that NaN stays NaN. `q` is that of the multivector.
    GW_DEVICE At at(C q) const {
        At at = Base::at(q < C(LEAST_SQUARE) ? C(LEAST_SQUARE) : q);
        at.q = q;
        return at;
    }

    GW_DEVICE C argument_grad(const At& at, C dot, C (&sums)[Base::COUNT]) const {
        const C gradient = Base::argument_grad(at, dot, sums);
        return at.q < C(LEAST_SQUARE) ? C(0) : gradient;
    }
};

/// The argument of F at one position.
template <class F, class T>
GW_DEVICE Compute<T> argument(const T* x, const u32* first, const i32* metric, i64 grade, i64 plane) {
    if (F::SCALAR && grade == 0) return widen(x[0]);
    return quadratic<F::DOUBLE>(x, metric, first[grade], first[grade + 1], plane);
}

/// One thread per position; blockIdx.y is the grade.
template <class F, class T>
GW_DEVICE void scale_grades(const T* x, const typename F::template Parameters<T>& parameters, T* out, const u32* first,
                            const i32* metric, i64 plane, i64 features) {
    const i64 grade = blockIdx.y, grades = gridDim.y;
    for (i64 position = thread_index(); position < plane; position += thread_count()) {
        const F f(parameters, position % features * grades + grade);
        const auto factor = f.at(argument<F>(x + position, first, metric, grade, plane)).factor;
        for (u32 blade = first[grade]; blade < first[grade + 1]; ++blade) {
            const i64 at = blade * plane + position;
            out[at] = narrow<T>(widen(x[at]) * factor);
        }
    }
}

/// Writes the gradient of x and partial gradients of each parameter, [chunks, features, grades]. One thread per feature; blockIdx.y
/// is the grade, blockIdx.z the chunk of rows.
template <class F, class T>
GW_DEVICE void scale_grades_backward(const T* x, const typename F::template Parameters<T>& parameters, const T* grad, T* out,
                                     Compute<T>* const (&partial)[F::COUNT], const u32* first, const i32* metric,
                                     const Chunk& chunk) {
    using C = Compute<T>;
    const i64 grade = blockIdx.y, grades = gridDim.y, plane = chunk.rows * chunk.features;
    chunk.each_feature([&](i64 feature) {
        const F f(parameters, feature * grades + grade);
        C sums[F::COUNT] = {};
        chunk.each_row(feature, [&](i64, i64 position) {
            const auto at_position = f.at(argument<F>(x + position, first, metric, grade, plane));
            const C along = dot(x + position, grad + position, first[grade], first[grade + 1], plane);
            const C d_argument = f.argument_grad(at_position, along, sums);
            if (F::SCALAR && grade == 0) {
                out[position] = narrow<T>(widen(grad[position]) * at_position.factor + d_argument);
                return;
            }
            const C form = C(F::FORM) * d_argument;
            for (u32 blade = first[grade]; blade < first[grade + 1]; ++blade) {
                const i64 at = blade * plane + position;
                out[at] = narrow<T>(widen(grad[at]) * at_position.factor + form * C(metric[blade]) * widen(x[at]));
            }
        });
#pragma unroll
        for (int n = 0; n < F::COUNT; ++n) partial[n][chunk.place(feature) * grades + grade] = f.finish(sums[n]);
    });
}
