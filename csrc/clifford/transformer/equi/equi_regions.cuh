// What blocks of equivariant maps compute: sides of a map, tiles of its pairs of planes, and regions of a pair's matrix, whose elements are
// at places linear in line and column.
#pragma once

#include "clifford/transformer/equi/equi_places.cuh"
#include "clifford/transformer/planes_launch.cuh"

/// One side of a map: features, or results. `scalars` [scalars, rows] and `planes` [blades · channels, rows] are apart or adjacent.
template <class T>
struct EquiSide {
    T *scalars, *planes;
};

/// Row `index` of a pair of planes; those of the first pair begin with the scalars.
template <class T>
GW_DEVICE T* row_of(const EquiSide<T>& side, u32 scalars, u32 channels, u32 pair, u32 index, i64 rows) {
    if (pair == 0) {
        if (index < scalars) return side.scalars + index * rows;
        return side.planes + (index - scalars) * rows;
    }
    return side.planes + static_cast<i64>(2 * channels * pair + index) * rows;
}

/// Pairs of planes, and tiles of their matrices' sides, as blocks number them: those of the first pair, then those of the others.
struct PairTiles {
    u32 pair, tile;

    GW_DEVICE PairTiles(u32 number, u32 of_first, u32 of_others) {
        const bool first = number < of_first;
        pair = first ? 0 : 1 + (number - of_first) / of_others;
        tile = first ? number : (number - of_first) % of_others;
    }
};

GW_DEVICE u32 tiles_of(u32 size, u32 tile) { return (size + tile - 1) / tile; }

/// The entries of the maps by cells, as an argument of kernels: for each cell of the pairs its first map, negative if it has none, and the
/// factor. `several` says whether any cell has further entries, which the table lists.
struct EquiCells {
    i32 map[2 * feature_planes::MOST_PLANES];
    double factor[2 * feature_planes::MOST_PLANES];
    u32 several;
};

/// Part of a matrix whose elements come from one place: scalars or a plane of results by scalars or a plane of features. The element of
/// line r and column c in it is `factor` times that at `at` + r · line + c · column, zero where `at` is null, and further entries of the
/// maps, from `next` to before `end`, at the same coefficients.
template <class T>
struct Region {
    const T* at;
    u32 line, column;
    Compute<T> factor;
    u32 next, end;
};

/// Regions by kind of line and of column: 0 for scalars, 1 and 2 for the planes of the pair.
constexpr int KINDS = 3;

/// The cell of a pair that maps plane `across` of the features to plane `down` of the results; of kinds, which count planes from 1 on.
GW_DEVICE u32 cell_of(u32 pair, u32 down, u32 across) { return 4 * pair + 2 * (down - 1) + across - 1; }

/// The region of lines of kind `down`, results, and of columns of kind `across`, features, of a pair, without further entries.
template <class T>
GW_DEVICE Region<T> region_of(const EquiSizes& size, const EquiParameters<const T>& from, const EquiCells& cells, u32 pair, u32 down,
                              u32 across) {
    Region<T> region{nullptr, size.scalars_in, 1, 1, 0, 0};
    if (down > 0 && across > 0) {
        const u32 cell = cell_of(pair, down, across);
        region.line = size.channels_in * size.maps, region.column = size.maps;
        if (cells.map[cell] >= 0) region.at = from.weight + cells.map[cell];
        region.factor = Compute<T>(cells.factor[cell]);
    } else if (down > 0) {
        if (from.to_planes != nullptr && down - 1 < size.mixed) region.at = from.to_planes + (down - 1) * size.scalars_in;
        region.line = size.mixed * size.scalars_in;
    } else if (across > 0) {
        if (from.to_scalars != nullptr && across - 1 < size.mixed) region.at = from.to_scalars + (across - 1);
        region.line = size.mixed * size.channels_in, region.column = size.mixed;
    } else {
        region.at = from.between;
    }
    return region;
}

/// The same with the further entries of its cell, in the order of the list.
template <class T>
GW_DEVICE Region<T> whole_region_of(const EquiSizes& size, const EquiParameters<const T>& from, const EquiCells& cells,
                                    const double* table, u32 pair, u32 down, u32 across) {
    Region<T> region = region_of(size, from, cells, pair, down, across);
    if (cells.several != 0 && down > 0 && across > 0 && region.at != nullptr) {
        const EquiEntries entries(table, size);
        const u32 cell = cell_of(pair, down, across);
        region.next = static_cast<u32>(entries.cell_first[cell]) + 1;
        region.end = static_cast<u32>(entries.cell_first[cell + 1]);
    }
    return region;
}

/// A line or column of a pair's matrix: its kind, and its number among those of this kind.
struct Part {
    u32 kind, number;

    GW_DEVICE Part(u32 index, u32 scalars, u32 channels) {
        const u32 after = scalars + channels;
        kind = index < scalars ? 0 : index < after ? 1 : 2;
        number = index < scalars ? index : index < after ? index - scalars : index - after;
    }
};
