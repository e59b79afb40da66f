// A block of the Clifford-group-equivariant networks (arXiv:2305.11141) in one launch, forward and backward:
//
//     y = linear(x) + bias, h = silu(y), r = linear_right(h), l = linear_left(h) + bias,
//     s = (l + sgp(h, normalization(r), w))/√2, out = layer_norm(s), plus a residual if one is given
//
// x is [blades, rows, inputs]; the other arrays with rows are [blades, rows, features], matrices [grades, in, out].
//
// Four families of kernels compute it, with the operands and the layout of gradients that are defined here:
//
//     simt          at most 32 features, every target and algebra        simt.cuh
//     sm90_f32x3    at most 32 features, many rows of f32                sm90_f32x3.cuh
//     sm90_16bit    at most 32 features, many rows of 16 bits            sm90_16bit.cuh
//     sm90_64       33 to 64 features                                    sm90_64.cuh
#pragma once

#include "gradewise/types.cuh"

/// Operands and sizes, by value. The parameters are of type T, or f32 where T has 16 bits (mixed precision).
template <class T>
struct BlockOperands {
    const void *linear, *bias;          // [grades, inputs, features], [features] or null
    const void *slope, *shift;          // silu: [features, grades]
    const void *right, *normalization;  // [grades, features, features], [features, grades]
    const void *product;                // [features, paths]
    const void *left, *left_bias;       // [grades, features, features], [features]
    const void *gain;                   // layer norm: [features]
    i64 rows, inputs, features;
    i64 groups;                         // Groups of lanes of a block that have rows, in the kernel of few rows.
    i64 f32_parameters;                           // Whether the parameters are f32.

    GW_DEVICE float at(const void* parameter, int index) const {
        return sizeof(T) == 4 || f32_parameters ? static_cast<const float*>(parameter)[index] : widen(static_cast<const T*>(parameter)[index]);
    }

    /// Calls f with a value of the parameters' type. A branch for each load would keep loads from being in flight together.
    template <class F>
    GW_DEVICE void typed(F f) const {
        if constexpr (sizeof(T) == 4) {
            f(T{});
        } else if (f32_parameters) {
            f(float{});
        } else {
            f(T{});
        }
    }
};

/// Where each gradient begins in the partial sums of a block of threads, at a multiple of 4, in the order of the operands. Without
/// `MATRICES`, those of matrices have no place.
template <class A, bool MATRICES = true>
struct BlockGradientLayout {
    static constexpr int GRADES = A::GRADES, PATHS = A::PATHS;
    i64 linear, bias, slope, shift, right, normalization, product, left, left_bias, gain, count;

    /// Also writes zeros to the padding of `sums`, if that is given. Of `maps` square matrices, 1 leaves out those of the left map.
    GW_DEVICE BlockGradientLayout(i64 inputs, i64 features, float* sums = nullptr, int maps = 2) {
        i64 at = 0;
        auto next = [&](i64 size) {
            const i64 place = at, end = at + size;
            at += (size + 3) / 4 * 4;
            if (sums != nullptr && end + threadIdx.x < at) sums[end + threadIdx.x] = 0;
            return place;
        };
        linear = next(MATRICES ? GRADES * inputs * features : 0);
        bias = next(features);
        slope = next(features * GRADES);
        shift = next(features * GRADES);
        right = next(MATRICES ? GRADES * features * features : 0);
        normalization = next(features * GRADES);
        product = next(features * PATHS);
        left = next(MATRICES && maps == 2 ? GRADES * features * features : 0);
        left_bias = next(features);
        gain = next(features);
        count = at;
    }
};
