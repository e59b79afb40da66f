// Operands of a block of the equivariant networks, and the places of their gradients, see clifford/block/simt.cuh.
#pragma once

#include "gradewise/types.cuh"

/// Operands and sizes, by value. The parameters are of type T, or f32 where T has 16 bits (mixed precision).
template <class T>
struct MvBlockWeights {
    const void *linear, *bias;          // [grades, inputs, features], [features] or null
    const void *slope, *shift;          // silu: [features, grades]
    const void *right, *normalization;  // [grades, features, features], [features, grades]
    const void *product;                // [features, paths]
    const void *left, *left_bias;       // [grades, features, features], [features]
    const void *gain;                   // layer norm: [features]
    i64 rows, inputs, features;
    i64 warps;                          // Warps of a block that have rows, in the kernel of few rows.
    i64 wide;                           // Whether the parameters are f32.

    GW_DEVICE float at(const void* parameter, int index) const {
        return sizeof(T) == 4 || wide ? static_cast<const float*>(parameter)[index] : widen(static_cast<const T*>(parameter)[index]);
    }

    /// Calls f with a value of the parameters' type. A branch for each load would keep loads from being in flight together.
    template <class F>
    GW_DEVICE void typed(F f) const {
        if constexpr (sizeof(T) == 4) {
            f(T{});
        } else if (wide) {
            f(float{});
        } else {
            f(T{});
        }
    }
};

/// Where each gradient begins in the partial sums of a block of threads, at a multiple of 4, in the order of the operands. Without
/// `MATRICES`, those of matrices have no place.
template <class A, bool MATRICES = true>
struct MvBlockPlaces {
    static constexpr int GRADES = A::GRADES, PATHS = A::PATHS;
    i64 linear, bias, slope, shift, right, normalization, product, left, left_bias, gain, count;

    /// Also writes zeros to the padding of `sums`, if that is given.
    GW_DEVICE MvBlockPlaces(i64 inputs, i64 features, float* sums = nullptr) {
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
        left = next(MATRICES ? GRADES * features * features : 0);
        left_bias = next(features);
        gain = next(features);
        count = at;
    }
};
