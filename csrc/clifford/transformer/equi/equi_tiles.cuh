// What the kernels of tiles of equivariant maps share: operands of the instructions, lines of a pair of planes, and matrices in fragments.
#pragma once

#include "clifford/transformer/equi/equi_launch.cuh"
#include "clifford/transformer/equi/equi_regions.cuh"
#include "ptx/mma.cuh"

using equi_tiles::THREADS, equi_tiles::FRAGMENT, equi_tiles::FRAGMENT_LINES, equi_tiles::FRAGMENT_TERMS;
constexpr int WARPS = THREADS / 32;
/// Elements of a load.
constexpr int WIDE = 4;

/// An operand of an instruction for TF32: the number, and in exact products what is left of it.
template <bool EXACT, int N>
struct Split {
    u32 high[N], low[EXACT ? N : 1];

    GW_DEVICE void set(int i, float value) {
        if constexpr (EXACT) {
            const float nearest = nearest_tf32(value);
            high[i] = __float_as_uint(nearest);
            low[i] = __float_as_uint(value - nearest);
        } else {
            high[i] = to_tf32(value);
        }
    }
};

/// sums += left · right.
template <bool EXACT>
GW_DEVICE void add_product(float (&sums)[4], const Split<EXACT, 4>& left, const Split<EXACT, 2>& right) {
    if constexpr (EXACT) {
        mma_tf32(sums, left.low, right.high);
        mma_tf32(sums, left.high, right.low);
    }
    mma_tf32(sums, left.high, right.high);
}

/// Four adjacent elements, or zeros.
GW_DEVICE void load_four(bool there, const float* source, float (&values)[WIDE]) {
    float4 four = make_float4(0, 0, 0, 0);
    if (there) four = *reinterpret_cast<const float4*>(source);
    values[0] = four.x, values[1] = four.y, values[2] = four.z, values[3] = four.w;
}

/// As one store, which the compiler would take apart.
GW_DEVICE void store_four(float* target, float a, float b, float c, float d) {
    asm volatile("st.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(target), "f"(a), "f"(b), "f"(c), "f"(d) : "memory");
}

/// sums += parts.
template <int N>
GW_DEVICE void add_parts(float (&sums)[N][4][4], const float (&parts)[N][4][4]) {
#pragma unroll
    for (int m = 0; m < N; ++m) {
#pragma unroll
        for (int n = 0; n < 4; ++n) {
#pragma unroll
            for (int e = 0; e < 4; ++e) sums[m][n][e] += parts[m][n][e];
        }
    }
}

/// The lines of a pair on one side of a map: line `index` is at lines(index), the first `scalars` of which are scalars.
template <class T>
struct PairLines {
    T *scalar, *plane;
    u32 scalars, rows;

    GW_DEVICE PairLines(const EquiSide<T>& side, u32 scalars, u32 channels, u32 pair, u32 rows)
        : scalar(side.scalars), plane(side.planes + (static_cast<i64>(2 * channels) * pair - (pair == 0 ? scalars : 0)) * rows),
          scalars(pair == 0 ? scalars : 0), rows(rows) {}

    GW_DEVICE T* operator()(u32 index) const { return (index < scalars ? scalar : plane) + static_cast<u64>(index) * rows; }
};

/// Whether all elements that map scalars to planes or planes to scalars are zero, for lines and terms that begin and end so (`scalars` of
/// each come first), because the map has no such parameters.
GW_DEVICE bool is_zero(const void* planes_of_scalars, const void* scalars_of_planes, u32 line, u32 line_end, u32 line_scalars, u32 term,
                       u32 term_end, u32 term_scalars) {
    const bool planes_only = line >= line_scalars, scalars_only = line_end <= line_scalars;
    return (planes_of_scalars == nullptr && planes_only && term_end <= term_scalars) ||
           (scalars_of_planes == nullptr && scalars_only && term >= term_scalars);
}

/// The sizes of a map, or with `transposed` of the one from gradients of results to those of features.
struct Direction {
    u32 scalars_in, channels_in, scalars_out, channels_out;

    GW_DEVICE Direction(const EquiSizes& size, bool transposed)
        : scalars_in(transposed ? size.scalars_out : size.scalars_in), channels_in(transposed ? size.channels_out : size.channels_in),
          scalars_out(transposed ? size.scalars_in : size.scalars_out), channels_out(transposed ? size.channels_in : size.channels_out) {}

    GW_DEVICE u32 lines(u32 pair) const { return (pair == 0 ? scalars_out : 0) + 2 * channels_out; }
    GW_DEVICE u32 terms(u32 pair) const { return (pair == 0 ? scalars_in : 0) + 2 * channels_in; }

    /// Where the fragments of a pair's matrix begin: those of 16 lines after each other, along the terms.
    GW_DEVICE u32 fragments(u32 pair) const {
        return pair == 0 ? 0 : equi_tiles::fragments(lines(0), terms(0)) + (pair - 1) * equi_tiles::fragments(lines(1), terms(1));
    }
};
