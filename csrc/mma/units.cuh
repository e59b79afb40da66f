// The schedule of persistent blocks: which block computes which tile of which result, and which stretch of its sum.
//
// Tested on the host (crates/kernels/tests/units.cpp); therefore it uses nothing of a device but blockIdx and gridDim.
#pragma once

#include "gradewise/integers.cuh"

/// A unit of work: a tile, and its range of steps along k.
struct Unit {
    i32 row, column;
    i32 z, stretch;
    i32 first_segment;
    i32 begin, end;
};

/// The units of this block, or of this cluster of CLUSTER blocks one below the other, in which the block has the number `rank`. P
/// is a problem such as TileProblem.
template <class P, int BM, int BN, int CLUSTER>
struct Units {
    const P& p;
    u32 rank;
    i32 row_tiles, column_tiles, units;

    GW_DEVICE Units(const P& problem, u32 rank) : p(problem), rank(rank) {
        row_tiles = static_cast<i32>((p.rows + CLUSTER * BM - 1) / (CLUSTER * BM));
        column_tiles = static_cast<i32>((p.columns + BN - 1) / BN);
        units = row_tiles * column_tiles * (p.split ? p.list[p.count] : p.count);
    }

    /// The unit of this block in a round; -1 if there is none left. Rounds alternate in direction, so that a block that had one of
    /// the longest units gets one of the shortest next.
    GW_DEVICE i32 number(i32 round) const {
        const i32 all = gridDim.x / CLUSTER, own = blockIdx.x / CLUSTER;
        const i32 number = round * all + (round % 2 == 0 ? own : all - 1 - own);
        return number < units ? number : -1;
    }

    GW_DEVICE i32 rounds() const { return (units + gridDim.x / CLUSTER - 1) / (gridDim.x / CLUSTER); }

    GW_DEVICE Unit unit(i32 number) const {
        // Bands of column tiles, so that adjacent blocks share rows of S and of R in the cache.
        constexpr i32 BAND = 8;
        Unit u;
        const i32 tiles = row_tiles * column_tiles;
        const i32 layer = number / tiles, tile = number % tiles;
        const i32 band = tile / (BAND * row_tiles), first = band * BAND;
        const i32 width = column_tiles - first < BAND ? column_tiles - first : BAND;
        const i32 inside = tile - first * row_tiles;
        u.column = (first + inside % width) * BN;
        u.row = (inside / width * CLUSTER + static_cast<i32>(rank)) * BM;
        u.z = p.ordered ? p.list[layer] : layer;
        u.stretch = layer;
        i32 begin = 0;
        if (p.split) {
            u.z = 0;
            while (p.list[u.z + 1] <= layer) ++u.z;
            begin = (layer - p.list[u.z]) * p.share;
        }
        u.first_segment = p.starts == nullptr ? u.z : p.starts[u.z];
        const i32 segments = p.starts == nullptr ? 1 : p.starts[u.z + 1] - u.first_segment;
        const i32 total = segments * p.steps;
        u.begin = begin;
        u.end = p.split && begin + p.share < total ? begin + p.share : total;
        return u;
    }
};
