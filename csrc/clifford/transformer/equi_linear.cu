// The matrices of an equivariant linear map of feature planes: from its parameters, and back from their gradients. Where each parameter is
// in the matrices is said once, in `Places`; crates/kernels/src/ops/clifford/transformer/equi_linear/mod.rs has the definition.
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

    /// The element, of the first matrix or of the others, that maps channel `in` of plane `column` to channel `out` of plane `row` of a pair.
    template <class T>
    GW_DEVICE T block(const T* first, const T* others, u32 pair, u32 row, u32 column, u32 out, u32 in) const {
        const u32 down = row * size.channels_out + out, across = column * size.channels_in + in;
        if (pair == 0) return first[(size.scalars_out + down) * top_in() + size.scalars_in + across];
        return others[((pair - 1) * 2 * size.channels_out + down) * 2 * size.channels_in + across];
    }
};

/// The element at `index` of both matrices, or of their transposes.
template <class T>
GW_DEVICE Compute<T> matrix_element(const Places& places, const EquiParameters<const T>& from, const EquiEntries& entries,
                                    i32 transposed, u32 index) {
    using C = Compute<T>;
    const EquiSizes& size = places.size;
    u32 pair = 0, down, across;
    if (index < places.first()) {
        const u32 line = transposed ? places.top_out() : places.top_in();
        const u32 row = transposed ? index % line : index / line, column = transposed ? index / line : index % line;
        if (row < size.scalars_out) {
            if (column < size.scalars_in) return from.between == nullptr ? C(0) : widen(from.between[row * size.scalars_in + column]);
            const u32 plane = (column - size.scalars_in) / size.channels_in, in = (column - size.scalars_in) % size.channels_in;
            if (from.to_scalars == nullptr || plane >= size.mixed) return 0;
            return widen(from.to_scalars[(row * size.channels_in + in) * size.mixed + plane]);
        }
        down = row - size.scalars_out;
        if (column < size.scalars_in) {
            const u32 plane = down / size.channels_out, out = down % size.channels_out;
            if (from.to_planes == nullptr || plane >= size.mixed) return 0;
            return widen(from.to_planes[(out * size.mixed + plane) * size.scalars_in + column]);
        }
        across = column - size.scalars_in;
    } else {
        const u32 rest = index - places.first(), matrix = 4 * size.channels_out * size.channels_in;
        pair = rest / matrix + 1;
        const u32 line = 2 * (transposed ? size.channels_out : size.channels_in), within = rest % matrix;
        down = transposed ? within % line : within / line;
        across = transposed ? within / line : within % line;
    }
    const u32 row = down / size.channels_out, out = down % size.channels_out;
    const u32 column = across / size.channels_in, in = across % size.channels_in;
    const u32 cell = 4 * pair + 2 * row + column;
    const u32 end = static_cast<u32>(entries.cell_first[cell + 1]);
    C sum = 0;
    for (u32 entry = static_cast<u32>(entries.cell_first[cell]); entry < end; ++entry) {
        const u32 map = static_cast<u32>(entries.of_cells[2 * entry]);
        sum += C(entries.of_cells[2 * entry + 1]) * widen(from.weight[(out * size.channels_in + in) * size.maps + map]);
    }
    return sum;
}

/// The matrices, or their transposes. One thread for an element.
template <class T>
GW_DEVICE void equi_matrices(const Places& places, const EquiParameters<const T>& from, const double* table, i32 transposed,
                             T* matrices) {
    const EquiEntries entries(table, places.size);
    const u32 step = static_cast<u32>(thread_count());
    for (u32 index = static_cast<u32>(thread_index()); index < places.all(); index += step) {
        matrices[index] = narrow<T>(matrix_element<T>(places, from, entries, transposed, index));
    }
}

/// What is added to each of the first `top_out` rows of the result, in all columns of it. One block for a row at a time.
template <class T>
GW_DEVICE void equi_bias(const Places& places, const EquiParameters<const T>& from, T* out, i64 columns) {
    const EquiSizes& size = places.size;
    for (u32 row = blockIdx.x; row < places.top_out(); row += gridDim.x) {
        T value = narrow<T>(Compute<T>(0));
        if (row < size.scalars_out) {
            if (from.to_scalars_bias != nullptr) value = from.to_scalars_bias[row];
        } else {
            const u32 plane = (row - size.scalars_out) / size.channels_out, channel = (row - size.scalars_out) % size.channels_out;
            if (from.planes_bias != nullptr && plane == 0) value = from.planes_bias[channel];
            if (from.to_planes_bias != nullptr && plane < size.mixed) value = from.to_planes_bias[channel * size.mixed + plane];
        }
        for (i64 column = threadIdx.x; column < columns; column += blockDim.x) out[static_cast<i64>(row) * columns + column] = value;
    }
}

/// The gradients of the parameters from those of the matrices and of what is added. One thread for an element of a parameter.
template <class T>
GW_DEVICE void equi_gradients(const Places& places, const T* first, const T* others, const T* bias, const double* table,
                              const EquiParameters<T>& to) {
    using C = Compute<T>;
    const EquiSizes& size = places.size;
    const u32 weights = size.channels_out * size.channels_in * size.maps;
    const u32 to_planes = size.mixed * size.channels_out * size.scalars_in;
    const u32 to_scalars = size.scalars_out * size.mixed * size.channels_in;
    const u32 between = size.scalars_out * size.scalars_in;
    const u32 biases = places.top_out();
    const u32 all = weights + to_planes + to_scalars + between + biases;
    const EquiEntries entries(table, size);
    const u32 step = static_cast<u32>(thread_count());
    for (u32 position = static_cast<u32>(thread_index()); position < all; position += step) {
        u32 index = position;
        if (index < weights) {
            const u32 map = index % size.maps, in = index / size.maps % size.channels_in, out = index / size.maps / size.channels_in;
            const u32 end = static_cast<u32>(entries.map_first[map + 1]);
            C sum = 0;
            for (u32 entry = static_cast<u32>(entries.map_first[map]); entry < end; ++entry) {
                const u32 cell = static_cast<u32>(entries.of_maps[2 * entry]);
                sum += C(entries.of_maps[2 * entry + 1]) * widen(places.block(first, others, cell / 4, cell / 2 % 2, cell % 2, out, in));
            }
            to.weight[index] = narrow<T>(sum);
            continue;
        }
        index -= weights;
        if (index < to_planes) {
            if (to.to_planes == nullptr) continue;
            const u32 row = index / size.scalars_in, column = index % size.scalars_in;
            const u32 down = size.scalars_out + row % size.mixed * size.channels_out + row / size.mixed;
            to.to_planes[index] = first[down * places.top_in() + column];
            continue;
        }
        index -= to_planes;
        if (index < to_scalars) {
            if (to.to_scalars == nullptr) continue;
            const u32 row = index / (size.mixed * size.channels_in), column = index % (size.mixed * size.channels_in);
            const u32 across = size.scalars_in + column % size.mixed * size.channels_in + column / size.mixed;
            to.to_scalars[index] = first[row * places.top_in() + across];
            continue;
        }
        index -= to_scalars;
        if (index < between) {
            if (to.between != nullptr) to.between[index] = first[index / size.scalars_in * places.top_in() + index % size.scalars_in];
            continue;
        }
        index -= between;
        if (bias == nullptr) continue;
        if (index < size.scalars_out) {
            if (to.to_scalars_bias != nullptr) to.to_scalars_bias[index] = bias[index];
            continue;
        }
        const u32 plane = (index - size.scalars_out) / size.channels_out, channel = (index - size.scalars_out) % size.channels_out;
        if (to.planes_bias != nullptr && plane == 0) to.planes_bias[channel] = bias[index];
        if (to.to_planes_bias != nullptr && plane < size.mixed) to.to_planes_bias[channel * size.mixed + plane] = bias[index];
    }
}

#define GW_KERNELS(T, NAME)                                                                                              \
    extern "C" __global__ void __launch_bounds__(256, 4) gw_equi_matrices_##NAME(                                           \
        EquiSizes size, EquiParameters<const T> from, const double* table, i32 transposed, T* matrices) {                                \
        begin_kernel();                                                                                                  \
        equi_matrices<T>({size}, from, table, transposed, matrices);                                                                 \
    }                                                                                                                    \
    extern "C" __global__ void __launch_bounds__(256, 4) gw_equi_bias_##NAME(                                               \
        EquiSizes size, EquiParameters<const T> from, T* out, i64 columns) {                                             \
        begin_kernel();                                                                                                  \
        equi_bias<T>({size}, from, out, columns);                                                                        \
    }                                                                                                                    \
    extern "C" __global__ void __launch_bounds__(256, 4) gw_equi_gradients_##NAME(                                          \
        EquiSizes size, const T* first, const T* others, const T* bias, const double* table, EquiParameters<T> to) {                   \
        begin_kernel();                                                                                                  \
        equi_gradients<T>({size}, first, others, bias, table, to);                                                            \
    }
GW_FOR_DTYPES(GW_KERNELS)
