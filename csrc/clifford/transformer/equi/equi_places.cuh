// Equivariant linear maps of feature planes: sizes, parameters, and where each parameter is in the matrices of the map, which is said once,
// in `Places` and `element_source`. crates/kernels/src/ops/clifford/transformer/equi_linear/mod.rs has the definition.
#pragma once

#include "gradewise/types.cuh"

/// The sizes of a map. `mixed` planes of the first pair mix with scalars. 32 bits: divisions of 64 take most of the time otherwise, and the
/// launcher sees to it that all elements can be counted.
struct EquiSizes {
    u32 scalars_in, scalars_out, channels_in, channels_out, pairs, maps, mixed, entries;
};

/// The entries of the maps, listed twice: by the cells of the pairs [pairs, 2, 2], each with its map, and by the maps, each with its cell.
struct EquiEntries {
    /// Where the list of each cell begins, and one past the last; then map and value of each entry.
    const double *cell_first, *of_cells;
    /// Where the list of each map begins, and one past the last; then cell and value of each entry.
    const double *map_first, *of_maps;

    GW_DEVICE EquiEntries(const double* table, const EquiSizes& size)
        : cell_first(table), of_cells(cell_first + 4 * size.pairs + 1), map_first(of_cells + 2 * size.entries),
          of_maps(map_first + size.maps + 1) {}
};

/// The parameters besides the coefficients, null where they are absent. `planes_bias` has an element for each channel, `to_planes_bias` one
/// for each channel and plane.
template <class T>
struct EquiParameters {
    T *weight, *planes_bias, *to_planes, *to_planes_bias, *to_scalars, *to_scalars_bias, *between;
};

/// The matrices: the first [scalars_out + 2·channels_out, scalars_in + 2·channels_in], the others [pairs − 1, 2·channels_out,
/// 2·channels_in], and what is added to the rows of the first.
struct Places {
    EquiSizes size;

    GW_DEVICE u32 top_out() const { return size.scalars_out + 2 * size.channels_out; }
    GW_DEVICE u32 top_in() const { return size.scalars_in + 2 * size.channels_in; }
    GW_DEVICE u32 first() const { return top_out() * top_in(); }
    GW_DEVICE u32 all() const { return first() + (size.pairs - 1) * 4 * size.channels_out * size.channels_in; }

    /// The address of the element, of the first matrix or of the others, that maps channel `in` of plane `column` to channel `out` of plane
    /// `row` of a pair.
    template <class T>
    GW_DEVICE const T* block(const T* first, const T* others, u32 pair, u32 row, u32 column, u32 out, u32 in) const {
        const u32 down = row * size.channels_out + out, across = column * size.channels_in + in;
        if (pair == 0) return first + ((size.scalars_out + down) * top_in() + size.scalars_in + across);
        return others + (((pair - 1) * 2 * size.channels_out + down) * 2 * size.channels_in + across);
    }
};

/// Where an element of a matrix comes from: `factor` times what is at `at`, null for 0, and further entries of the maps, from `next` to
/// before `end`, at the same coefficients. Apart from reading it, so that several elements are read at once.
template <class T>
struct ElementSource {
    const T* at = nullptr;
    Compute<T> factor = 1;
    const T* coefficients = nullptr;
    u32 next = 0, end = 0;

    GW_DEVICE Compute<T> value(const EquiEntries& entries) const {
        using C = Compute<T>;
        C sum = at == nullptr ? C(0) : factor * widen(*at);
        for (u32 entry = next; entry < end; ++entry) {
            const u32 map = static_cast<u32>(entries.of_cells[2 * entry]);
            sum += C(entries.of_cells[2 * entry + 1]) * widen(coefficients[map]);
        }
        return sum;
    }
};

/// The element that maps row `across` of the features of a pair to row `down` of its result. Rows of the first pair begin with the scalars.
template <class T>
GW_DEVICE ElementSource<T> element_source(const Places& places, const EquiParameters<const T>& from, const EquiEntries& entries,
                                          u32 pair, u32 down, u32 across) {
    const EquiSizes& size = places.size;
    ElementSource<T> source;
    if (pair == 0) {
        // A pair has two planes: comparisons tell which, where divisions take most of the time.
        if (down < size.scalars_out) {
            if (across < size.scalars_in) {
                if (from.between != nullptr) source.at = from.between + down * size.scalars_in + across;
                return source;
            }
            across -= size.scalars_in;
            const u32 plane = across >= size.channels_in, in = across - plane * size.channels_in;
            if (from.to_scalars != nullptr && plane < size.mixed) {
                source.at = from.to_scalars + (down * size.channels_in + in) * size.mixed + plane;
            }
            return source;
        }
        down -= size.scalars_out;
        if (across < size.scalars_in) {
            const u32 plane = down >= size.channels_out, out = down - plane * size.channels_out;
            if (from.to_planes != nullptr && plane < size.mixed) {
                source.at = from.to_planes + (out * size.mixed + plane) * size.scalars_in + across;
            }
            return source;
        }
        across -= size.scalars_in;
    }
    const u32 row = down >= size.channels_out, out = down - row * size.channels_out;
    const u32 column = across >= size.channels_in, in = across - column * size.channels_in;
    const u32 cell = 4 * pair + 2 * row + column, begin = static_cast<u32>(entries.cell_first[cell]);
    source.end = static_cast<u32>(entries.cell_first[cell + 1]);
    source.next = source.end > begin ? begin + 1 : begin;
    source.coefficients = from.weight + (out * size.channels_in + in) * size.maps;
    if (source.end > begin) {
        source.at = source.coefficients + static_cast<u32>(entries.of_cells[2 * begin]);
        source.factor = Compute<T>(entries.of_cells[2 * begin + 1]);
    }
    return source;
}

/// What is added to row `row` of the first pair's result.
template <class T>
GW_DEVICE T bias_element(const EquiSizes& size, const EquiParameters<const T>& from, u32 row) {
    if (row < size.scalars_out) {
        if (from.to_scalars_bias != nullptr) return from.to_scalars_bias[row];
    } else {
        const u32 plane = row - size.scalars_out >= size.channels_out, channel = row - size.scalars_out - plane * size.channels_out;
        if (from.planes_bias != nullptr && plane == 0) return from.planes_bias[channel];
        if (from.to_planes_bias != nullptr && plane < size.mixed) return from.to_planes_bias[channel * size.mixed + plane];
    }
    return narrow<T>(Compute<T>(0));
}
