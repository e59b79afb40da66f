// Products of tiles by warp-wide matrix instructions (sm_80 and later), 16 rows to a warp, accumulated in f32: of bf16 and f16 as they are,
// of f32 in TF32 or, if EXACT, with the accuracy of f32.
//
// Weights are left operands in the layout of accumulators. A product sums over keys in any order that both operands share, so in TF32 the
// lane with the weights of keys 2t and 2t + 1 takes them as terms t and t + 4 of an instruction, and nothing moves between lanes.
#pragma once

#include "attention/rounding.cuh"
#include "attention/warp_tiles.cuh"
#include "ptx/mma.cuh"

/// The rows of a block as left operands, in a tile of shared memory.
template <class T, int D, bool RESIDENT>
struct AttentionRows {
    const T* tile;

    GW_DEVICE explicit AttentionRows(const T* tile) : tile(tile) {}
    /// The tile is there.
    GW_DEVICE void arrive() {}
};

template <class T, int D, bool EXACT>
struct AttentionProducts {
    static_assert(sizeof(T) == 2 && !EXACT, "products of 16 bits are exact");
    static constexpr int ROW = AttentionWarpTiles<T, D>::ROW;
    using Rows = AttentionRows<T, D, false>;

    /// sums[16×8·N] += A·Bᵀ over the features, with the warp's rows of A and all rows of `b`.
    template <int N>
    GW_DEVICE static void dots(const Rows& rows, const T* b, float (&sums)[N][4]) {
        const T* const a = rows.tile;
        const int lane = threadIdx.x % 32;
#pragma unroll
        for (int k = 0; k < D; k += 16) {
            u32 left[4];
            load_matrices<false>(left, a + (threadIdx.x / 32 * 16 + lane % 16) * ROW + k + lane / 16 * 8);
            dot_step(left, b, k, sums);
        }
    }

    template <int N>
    GW_DEVICE static void dot_step(const u32 (&left)[4], const T* b, int k, float (&sums)[N][4]) {
        const int lane = threadIdx.x % 32;
#pragma unroll
        for (int n = 0; n < N; n += 2) {
            u32 right[4];
            load_matrices<false>(right, b + (n * 8 + lane % 8 + lane / 16 * 8) * ROW + k + lane / 8 % 2 * 8);
            const u32 first[2] = {right[0], right[1]}, second[2] = {right[2], right[3]};
            mma_16(sums[n], left, first, T{});
            mma_16(sums[n + 1], left, second, T{});
        }
    }

    /// out[16×D] += W·B, with weights W [16×8·N] in the layout of accumulators, and rows of `b`.
    template <int N>
    GW_DEVICE static void add(const float (&weights)[N][4], const T* b, float (&out)[D / 8][4]) {
        const int lane = threadIdx.x % 32;
#pragma unroll
        for (int k = 0; k < N; k += 2) {
            const u32 left[4] = {pair(weights[k][0], weights[k][1], T{}), pair(weights[k][2], weights[k][3], T{}),
                                 pair(weights[k + 1][0], weights[k + 1][1], T{}), pair(weights[k + 1][2], weights[k + 1][3], T{})};
#pragma unroll
            for (int n = 0; n < D / 8; n += 2) {
                u32 right[4];
                load_matrices<true>(right, b + (k * 8 + lane % 16) * ROW + n * 8 + lane / 16 * 8);
                const u32 first[2] = {right[0], right[1]}, second[2] = {right[2], right[3]};
                mma_16(out[n], left, first, T{});
                mma_16(out[n + 1], left, second, T{});
            }
        }
    }
};

/// A warp's rows of f32 in TF32 at features k to k + 7. A 32-bit element counts as two of 16 bits, so that the same instruction serves.
template <int ROW>
GW_DEVICE void read_tf32_rows(const float* tile, int k, u32 (&left)[4]) {
    const int lane = threadIdx.x % 32;
    load_matrices<false>(left, tile + (threadIdx.x / 32 * 16 + lane % 16) * ROW + k + lane / 16 * 4);
#pragma unroll
    for (int i = 0; i < 4; ++i) left[i] = to_tf32(__uint_as_float(left[i]));
}

/// In TF32 and in registers, once the tile is there.
template <int D>
struct AttentionRows<float, D, true> {
    const float* tile;
    u32 left[D / 8][4];

    GW_DEVICE explicit AttentionRows(const float* tile) : tile(tile) {}
    GW_DEVICE void arrive() {
#pragma unroll
        for (int k = 0; k < D / 8; ++k) read_tf32_rows<AttentionWarpTiles<float, D>::ROW>(tile, k * 8, left[k]);
    }
};

template <int D>
struct AttentionProducts<float, D, false> {
    static constexpr int ROW = AttentionWarpTiles<float, D>::ROW;
    using Rows = AttentionRows<float, D, false>;

    template <int N>
    GW_DEVICE static void dots(const AttentionRows<float, D, true>& rows, const float* b, float (&sums)[N][4]) {
#pragma unroll
        for (int k = 0; k < D / 8; ++k) dot_step(rows.left[k], b, k * 8, sums);
    }
    template <int N>
    GW_DEVICE static void dots(const Rows& rows, const float* b, float (&sums)[N][4]) {
#pragma unroll
        for (int k = 0; k < D; k += 8) {
            u32 left[4];
            read_tf32_rows<ROW>(rows.tile, k, left);
            dot_step(left, b, k, sums);
        }
    }

    template <int N>
    GW_DEVICE static void dot_step(const u32 (&left)[4], const float* b, int k, float (&sums)[N][4]) {
        const int lane = threadIdx.x % 32;
#pragma unroll
        for (int n = 0; n < N; n += 2) {
            u32 right[4];
            load_matrices<false>(right, b + (n * 8 + lane % 8 + lane / 16 * 8) * ROW + k + lane / 8 % 2 * 4);
#pragma unroll
            for (int i = 0; i < 4; ++i) right[i] = to_tf32(__uint_as_float(right[i]));
            const u32 first[2] = {right[0], right[1]}, second[2] = {right[2], right[3]};
            mma_tf32(sums[n], left, first);
            mma_tf32(sums[n + 1], left, second);
        }
    }

    /// out[16×D] += W·B, with weights W [16×8·N] in the layout of accumulators, and rows of `b`.
    template <int N>
    GW_DEVICE static void add(const float (&weights)[N][4], const float* b, float (&out)[D / 8][4]) {
        const int lane = threadIdx.x % 32;
        const float* const mine = b + lane % 4 * 2 * ROW + lane / 4;
#pragma unroll
        for (int k = 0; k < N; ++k) {
            const u32 left[4] = {to_tf32(weights[k][0]), to_tf32(weights[k][2]), to_tf32(weights[k][1]), to_tf32(weights[k][3])};
#pragma unroll
            for (int n = 0; n < D / 8; ++n) {
                const u32 right[2] = {to_tf32(mine[k * 8 * ROW + n * 8]), to_tf32(mine[(k * 8 + 1) * ROW + n * 8])};
                mma_tf32(out[n], left, right);
            }
        }
    }
};

/// Three products of the nearest TF32 numbers and the remainders, see mma/hopper_exact.cuh. The instructions truncate each sum they form;
/// so they sum at most 32 terms, and f32 additions sum those.
template <int D>
struct AttentionProducts<float, D, true> {
    static constexpr int ROW = AttentionWarpTiles<float, D>::ROW;
    using Rows = AttentionRows<float, D, false>;

    /// Terms that instructions sum: 32, or fewer to divide the features.
    static constexpr int STRETCH = D % 32 == 0 ? 32 : 24;
    static_assert(D % STRETCH == 0, "whole stretches");

    template <int N>
    struct Parts {
        u32 high[N], low[N];

        GW_DEVICE explicit Parts(const float (&values)[N]) {
#pragma unroll
            for (int i = 0; i < N; ++i) {
                const float top = nearest_tf32(values[i]);
                high[i] = __float_as_uint(top);
                low[i] = __float_as_uint(values[i] - top);
            }
        }
    };

    /// The sum of at most 32 terms: products with a remainder, which are smaller, apart from the others, where there are registers for it.
    struct Sum {
        static constexpr bool APART = D <= 64;
        float large[4] = {}, small[APART ? 4 : 1] = {};

        GW_DEVICE void add(const Parts<4>& left, const Parts<2>& right) {
            if constexpr (APART) {
                mma_tf32(small, left.low, right.high);
                mma_tf32(small, left.high, right.low);
            } else {
                mma_tf32(large, left.low, right.high);
                mma_tf32(large, left.high, right.low);
            }
            mma_tf32(large, left.high, right.high);
        }
        GW_DEVICE void add_to(float (&sums)[4]) const {
#pragma unroll
            for (int e = 0; e < 4; ++e) sums[e] += APART ? small[APART ? e : 0] + large[e] : large[e];
        }
    };

    template <int N>
    GW_DEVICE static void dots(const Rows& rows, const float* b, float (&sums)[N][4]) {
        const int lane = threadIdx.x % 32;
        const float* const left_rows = rows.tile + (threadIdx.x / 32 * 16 + lane % 16) * ROW + lane / 16 * 4;
        const float* const right_rows = b + (lane % 8 + lane / 16 * 8) * ROW + lane / 8 % 2 * 4;
        // Not unrolled: there are no registers for operands that are loaded long before their use.
#pragma unroll 1
        for (int begin = 0; begin < D; begin += STRETCH) {
            Sum sum[N];
#pragma unroll
            for (int k = begin; k < begin + STRETCH; k += 8) {
                const Parts<4> left = read(left_rows + k);
#pragma unroll
                for (int n = 0; n < N; n += 2) {
                    float right[4];
                    read(right_rows + n * 8 * ROW + k, right);
                    sum[n].add(left, Parts<2>({right[0], right[1]}));
                    sum[n + 1].add(left, Parts<2>({right[2], right[3]}));
                }
            }
#pragma unroll
            for (int n = 0; n < N; ++n) sum[n].add_to(sums[n]);
        }
    }

    template <int N>
    GW_DEVICE static void add(const float (&weights)[N][4], const float* b, float (&out)[D / 8][4]) {
        const int lane = threadIdx.x % 32;
        const float* const mine = b + lane % 4 * 2 * ROW + lane / 4;
#pragma unroll
        for (int begin = 0; begin < N; begin += 4) {
#pragma unroll
            for (int n = 0; n < D / 8; ++n) {
                Sum sum;
#pragma unroll
                for (int k = begin; k < begin + 4 && k < N; ++k) {
                    const Parts<4> left({weights[k][0], weights[k][2], weights[k][1], weights[k][3]});
                    sum.add(left, Parts<2>({mine[k * 8 * ROW + n * 8], mine[(k * 8 + 1) * ROW + n * 8]}));
                }
                sum.add_to(out[n]);
            }
        }
    }

    GW_DEVICE static void read(const float* row, float (&values)[4]) {
        u32 words[4];
        load_matrices<false>(words, row);
#pragma unroll
        for (int i = 0; i < 4; ++i) values[i] = __uint_as_float(words[i]);
    }
    GW_DEVICE static Parts<4> read(const float* row) {
        float values[4];
        read(row, values);
        return Parts<4>(values);
    }
};
