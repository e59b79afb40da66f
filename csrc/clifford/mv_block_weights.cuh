// Operands of a block of the equivariant networks, see clifford/mv_block.cuh.
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
