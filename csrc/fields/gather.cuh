// A field gathered around each position of another and multiplied by the kernel: the convolution, and its adjoint with the roles exchanged.
#pragma once

#include "fields/engine.cuh"

/// The tile of a block. The grid is linear: column tiles, row tiles, groups.
struct GatherTile {
    i64 row;
    i32 column, group;

    GW_DEVICE GatherTile(const FieldProblem& p, int tile_m, int tile_n) {
        // Adjacent blocks share rows of the source, which is the larger operand.
        const u32 rows = static_cast<u32>((p.rows + tile_m - 1) / tile_m), columns = (p.columns + tile_n - 1) / tile_n;
        column = static_cast<i32>(blockIdx.x % columns * tile_n);
        row = static_cast<i64>(blockIdx.x / columns % rows) * tile_m;
        group = blockIdx.x / columns / rows;
    }
};

/// Writes one result.
template <class T>
GW_DEVICE void write_gathered(const FieldProblem& p, i32 group, i64 row, i32 column, Compute<T> value) {
    if (row >= p.rows || column >= p.columns) return;
    static_cast<T*>(p.out)[target_offset(p, group, column) + row * p.out_channels * p.groups] = narrow<T>(value);
}

/// Any sizes, in the compute type.
template <class T>
GW_DEVICE void gather_simt(const FieldProblem& p) {
    using C = Compute<T>;
    using S = Simt<T, field_tile::SIDE, field_tile::SIDE, 8, 8, 4, false, true>;
    const GatherTile tile(p, field_tile::SIDE, field_tile::SIDE);
    const T *source = static_cast<const T*>(p.source) + static_cast<i64>(tile.group) * p.channels,
            *w = static_cast<const T*>(p.other) + static_cast<i64>(tile.group) * p.columns * p.depth;
    // A thread's elements of A are of one term and of rows 16 apart; of B, of one term, too.
    const int k = threadIdx.x % 8, first = threadIdx.x / 8;
    Row rows[S::PER_A];
#pragma unroll
    for (int slot = 0; slot < S::PER_A; ++slot) rows[slot] = Row(p, tile.row + first + slot * 16);
    Term term(p, k);
    const auto fetch = [&](i64 step, C(&a)[S::PER_A], C(&b)[S::PER_B]) {
        const i64 at = step * 8 + k;
#pragma unroll
        for (int slot = 0; slot < S::PER_A; ++slot) {
            i64 offset;
            a[slot] = rows[slot].meets(p, term, offset) ? widen(source[offset + term.channel]) : C(0);
        }
#pragma unroll
        for (int slot = 0; slot < S::PER_B; ++slot) {
            const i32 column = tile.column + first + slot * 16;
            b[slot] = at < p.depth && column < p.columns ? widen(w[column * p.depth + at]) : C(0);
        }
        term.advance(p, 8);
    };
    field_simt<S, C, field_tile::SIDE, field_tile::SIDE, 8, 8, 4>(0, (p.depth + 7) / 8, fetch, [&](int i, int j, C sum) {
        write_gathered<T>(p, tile.group, tile.row + i, tile.column + j, sum);
    });
}

/// Channels in whole packs of 16 bytes, of both fields, by matrix instructions.
template <class T, int BM, int BN, bool EXACT>
struct GatherWarp : FieldWarp<T, BM, BN, warp_tile::STAGES, false, true, EXACT> {
    using Base = FieldWarp<T, BM, BN, warp_tile::STAGES, false, true, EXACT>;
    using Base::A_ROW, Base::BK, Base::THREADS, Base::WIDE;
    static constexpr int PER_ROW = BK / WIDE, STEP = THREADS / PER_ROW, SLOTS = BM / STEP;

    GW_DEVICE static void run(const FieldProblem& p) {
        const GatherTile tile(p, BM, BN);
        const T *source = static_cast<const T*>(p.source) + static_cast<i64>(tile.group) * p.channels,
                *w = static_cast<const T*>(p.other) + static_cast<i64>(tile.group) * p.columns * p.depth;
        // A thread copies the same 16 bytes of each of its rows: one term, which moves on with the steps.
        const int first = threadIdx.x / PER_ROW, place = threadIdx.x % PER_ROW * WIDE;
        Row rows[SLOTS];
#pragma unroll
        for (int slot = 0; slot < SLOTS; ++slot) rows[slot] = Row(p, tile.row + first + slot * STEP);
        Term term(p, place);
        const T* at[SLOTS];
        u32 met = 0;
        const auto locate = [&]() {
            met = 0;
#pragma unroll
            for (int slot = 0; slot < SLOTS; ++slot) {
                i64 offset = 0;
                if (rows[slot].meets(p, term, offset)) met |= 1u << slot;
                at[slot] = source + offset + term.channel;
            }
        };
        locate();
        const typename Base::LoaderB load_b(p.columns - tile.column, p.depth, true);
        const T* w_tile = w + static_cast<i64>(tile.column) * p.depth;
        i64 depth = 0;
        const auto fetch = [&](T* a_tile, T* b_tile) {
#pragma unroll
            for (int slot = 0; slot < SLOTS; ++slot) {
                const bool inside = met >> slot & 1;
                copy_async_16(a_tile + (first + slot * STEP) * A_ROW + place, inside ? at[slot] : source, inside ? 16 : 0);
            }
            load_b.fetch(b_tile, w_tile + depth, p.depth - depth);
            depth += BK;
            if (term.advance(p, BK)) {
#pragma unroll
                for (int slot = 0; slot < SLOTS; ++slot) at[slot] += BK;
            } else {
                locate();
            }
        };
        Base::multiply((p.depth + BK - 1) / BK, fetch, [&](int i, int j, float left, float right) {
            const i64 row = tile.row + i;
            const i32 column = tile.column + j;
            // Channels are even in number: both elements are of one blade, and their address is aligned.
            if (row >= p.rows || column >= p.columns) return;
            const float values[2] = {left, right};
            T* target = static_cast<T*>(p.out) + target_offset(p, tile.group, column) + row * p.out_channels * p.groups;
            store<2>(target, values);
        });
    }
};
