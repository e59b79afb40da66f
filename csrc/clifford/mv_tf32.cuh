// Operands of the warp-wide matrix instructions in TF32, one part or two.
#pragma once

#include "ptx/mma.cuh"

/// N values of an operand. With `PARTS` = 3, a product is computed in three parts (x = high + low, each a TF32 number; low·low is negligible),
/// which has the accuracy of f32; with 1, of the nearest TF32 numbers.
template <int PARTS, int N>
struct MvTf32 {
    u32 high[N], low[N];

    GW_DEVICE void set(int i, float value) {
        if constexpr (PARTS == 1) {
            high[i] = to_tf32(value);
        } else {
            // Truncated, which takes one instruction where rounding takes four; the instructions would truncate it anyway.
            high[i] = __float_as_uint(value) & 0xffffe000u;
            low[i] = __float_as_uint(value - __uint_as_float(high[i]));
        }
    }
};
