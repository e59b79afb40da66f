// Strided views: the offset of the element at a position of an index space with several axes.
#pragma once

#include "gradewise/types.cuh"

/// A divisor of positions, with a multiplier that replaces the division: n / size = (high half of n·multiplier + n) >> shift for
/// sizes and positions below 2^31 (Granlund & Montgomery 1994). `magic` has the multiplier in its lower and the shift in its upper
/// half.
struct Divisor {
    i64 size;
    u64 magic;
};

constexpr int MOST_AXES = 8;

/// Sizes of an index space, innermost axis first.
struct Axes {
    i64 rank;
    Divisor size[MOST_AXES];
};

/// Strides in elements along each axis, innermost first.
struct Strides {
    i64 at[MOST_AXES];
};

/// An operand's first element and strides.
template <class T>
struct View {
    T* data;
    Strides strides;
};

/// n / size, rounded down; n must not be negative.
GW_DEVICE i64 operator/(i64 n, const Divisor& divisor) {
    if ((n | divisor.size) >> 31 != 0) return static_cast<i64>(static_cast<u64>(n) / static_cast<u64>(divisor.size));
    const u32 low = static_cast<u32>(n);
    return (__umulhi(low, static_cast<u32>(divisor.magic)) + low) >> static_cast<u32>(divisor.magic >> 32);
}

/// Offsets of the element at `position`, for several operands over the same axes.
template <int N>
GW_DEVICE void locate(const Axes& axes, const Strides* const (&strides)[N], i64 position, i64 (&offset)[N]) {
#pragma unroll
    for (int n = 0; n < N; ++n) offset[n] = 0;
    i64 rest = position;
#pragma unroll 1
    for (int axis = 0; axis < axes.rank; ++axis) {
        i64 coordinate = rest;
        // The remainder is the index along the outermost axis.
        if (axis + 1 < axes.rank) {
            const i64 quotient = rest / axes.size[axis];
            coordinate = rest - quotient * axes.size[axis].size;
            rest = quotient;
        }
#pragma unroll
        for (int n = 0; n < N; ++n) offset[n] += coordinate * strides[n]->at[axis];
    }
}

/// The offset of the element at `position`, for one operand.
GW_DEVICE i64 locate(const Axes& axes, const Strides& strides, i64 position) {
    const Strides* const list[1] = {&strides};
    i64 offset[1];
    locate(axes, list, position, offset);
    return offset[0];
}

/// For kernel parameters that functions take by reference: they are read in place, not copied to each thread's stack.
#define GW_PARAMETER const __grid_constant__
