// Strided views: where the element at a position of a space of several axes is.
#pragma once

#include "gradewise/types.cuh"

/// A size to divide positions by. For sizes and positions below 2^31 a multiplication does: n / size =
/// (high half of n·multiplier + n) >> shift (Granlund & Montgomery 1994), with the multiplier in the lower and the shift
/// in the upper half of `magic`.
struct Divisor {
    i64 size;
    u64 magic;
};

constexpr int kAxes = 8;

/// Sizes of a space, innermost axis first.
struct Axes {
    i64 rank;
    Divisor size[kAxes];
};

/// Distances in elements between neighbours along each axis, innermost first.
struct Strides {
    i64 at[kAxes];
};

/// An operand's first element and strides.
template <class T>
struct View {
    T* data;
    Strides strides;
};

/// n / size, rounded down; n is not negative.
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
        // Nothing is left beyond the outermost axis.
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

/// Parameters of a kernel that its functions take by reference: read where they are, not copied to each thread's stack.
#define GW_PARAMETER const __grid_constant__
