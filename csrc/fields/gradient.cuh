// The gradient of the kernel: Σ over the rows of the target, each times the source values gathered for it.
#pragma once

#include "fields/engine.cuh"

/// The tile of a block, and its steps along the rows. The grid is linear: tiles along the terms, tiles of the target's columns, groups,
/// stretches.
struct GradientTile {
    i64 term, begin, end;
    i32 column, group, split;

    GW_DEVICE GradientTile(const FieldProblem& p, int tile_m, int tile_n, int step) {
        const u32 columns = (p.columns + tile_m - 1) / tile_m, terms = static_cast<u32>((p.depth + tile_n - 1) / tile_n);
        term = static_cast<i64>(blockIdx.x % terms) * tile_n;
        u32 rest = blockIdx.x / terms;
        column = static_cast<i32>(rest % columns * tile_m);
        rest /= columns;
        group = rest % p.groups;
        split = rest / p.groups;
        const i64 steps = (p.rows + step - 1) / step, share = (steps + p.splits - 1) / p.splits;
        begin = split * share < steps ? split * share : steps;
        end = begin + share < steps ? begin + share : steps;
    }
};

/// Writes one result: the gradient itself, or the sum over one stretch of the rows, in compute precision.
template <class T>
GW_DEVICE void write_gradient(const FieldProblem& p, const GradientTile& tile, i32 i, i64 j, Compute<T> value) {
    const i32 column = tile.column + i;
    const i64 term = tile.term + j;
    if (column >= p.columns || term >= p.depth) return;
    const i64 at = gradient_row(p, tile.group, column) + term;
    if (p.splits > 1) {
        static_cast<Compute<T>*>(p.out)[tile.split * static_cast<i64>(p.columns) * p.groups * p.depth + at] = value;
    } else {
        static_cast<T*>(p.out)[at] = narrow<T>(value);
    }
}

/// Any sizes, in the compute type.
template <class T>
GW_DEVICE void gradient_simt(const FieldProblem& p) {
    using C = Compute<T>;
    using S = Simt<T, field_tile::SIDE, field_tile::SIDE, 8, 8, 4, true, false>;
    const GradientTile tile(p, field_tile::SIDE, field_tile::SIDE, 8);
    const T *source = static_cast<const T*>(p.source) + static_cast<i64>(tile.group) * p.channels,
            *target = static_cast<const T*>(p.other);
    // A thread's elements are of one column, of one term, and of rows 2 apart.
    const int place = threadIdx.x % 64, first = threadIdx.x / 64;
    const i32 column = tile.column + place;
    const Term term(p, tile.term + place);
    const bool has_column = column < p.columns;
    const T* at = target + (has_column ? target_offset(p, tile.group, column) : 0);
    const auto fetch = [&](i64 step, C(&a)[S::PER_A], C(&b)[S::PER_B]) {
#pragma unroll
        for (int slot = 0; slot < S::PER_A; ++slot) {
            const i64 row = step * 8 + first + slot * 2;
            a[slot] = has_column && row < p.rows ? widen(at[row * p.out_channels * p.groups]) : C(0);
            i64 offset;
            b[slot] = Row(p, row).meets(p, term, offset) ? widen(source[offset + term.channel]) : C(0);
        }
    };
    static_assert(S::PER_A == S::PER_B, "tiles are square");
    field_simt<S, C, field_tile::SIDE, field_tile::SIDE, 8, 8, 4>(tile.begin, tile.end, fetch,
                                      [&](int i, int j, C sum) { write_gradient<T>(p, tile, i, j, sum); });
}

/// Channels in whole packs of 16 bytes, of both fields, by matrix instructions.
template <class T, int BM, int BN, bool EXACT>
struct GradientWarp : FieldWarp<T, BM, BN, warp_tile::STAGES, true, false, EXACT> {
    using Base = FieldWarp<T, BM, BN, warp_tile::STAGES, true, false, EXACT>;
    using Base::A_ROW, Base::B_ROW, Base::BK, Base::THREADS, Base::WIDE;
    static constexpr int A_PER_ROW = BM / WIDE, A_STEP = THREADS / A_PER_ROW, A_SLOTS = BK / A_STEP;
    static constexpr int B_PER_ROW = BN / WIDE, B_STEP = THREADS / B_PER_ROW, B_SLOTS = BK / B_STEP;

    GW_DEVICE static void run(const FieldProblem& p) {
        const GradientTile tile(p, BM, BN, BK);
        const T *source = static_cast<const T*>(p.source) + static_cast<i64>(tile.group) * p.channels,
                *target = static_cast<const T*>(p.other);
        const int a_first = threadIdx.x / A_PER_ROW, a_place = threadIdx.x % A_PER_ROW * WIDE;
        const int b_first = threadIdx.x / B_PER_ROW, b_place = threadIdx.x % B_PER_ROW * WIDE;
        const bool has_column = tile.column + a_place < p.columns;
        const i64 ld = static_cast<i64>(p.out_channels) * p.groups;
        const T* at = target + (has_column ? target_offset(p, tile.group, tile.column + a_place) : 0);
        const Term term(p, tile.term + b_place);
        i64 row = tile.begin * BK;
        const auto fetch = [&](T* a_tile, T* b_tile) {
#pragma unroll
            for (int slot = 0; slot < A_SLOTS; ++slot) {
                const i64 from = row + a_first + slot * A_STEP;
                const bool inside = has_column && from < p.rows;
                copy_async_16(a_tile + (a_first + slot * A_STEP) * A_ROW + a_place, inside ? at + from * ld : target, inside ? 16 : 0);
            }
#pragma unroll
            for (int slot = 0; slot < B_SLOTS; ++slot) {
                i64 offset = 0;
                const bool inside = Row(p, row + b_first + slot * B_STEP).meets(p, term, offset);
                copy_async_16(b_tile + (b_first + slot * B_STEP) * B_ROW + b_place,
                              inside ? source + offset + term.channel : source, inside ? 16 : 0);
            }
            row += BK;
        };
        Base::multiply(tile.end - tile.begin, fetch, [&](int i, int j, float left, float right) {
            write_gradient<T>(p, tile, i, j, left);
            write_gradient<T>(p, tile, i, j + 1, right);
        });
    }
};
