// Powers of two, and pairs of 16-bit numbers as operands of matrix instructions.
#pragma once

#include "gradewise/types.cuh"

/// Two numbers rounded to 16 bits and packed, the first in the lower half (sm_80 and later).
GW_DEVICE u32 pair(float low, float high, bf16) {
    u32 both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}
GW_DEVICE u32 pair(float low, float high, f16) {
    u32 both;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}

/// 2^x, to two units of the last place; 0 for -∞.
GW_DEVICE float power_of_two(float x) {
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}
