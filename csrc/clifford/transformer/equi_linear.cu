// The matrices of an equivariant linear map of feature planes: from its parameters, and back from their gradients.
#include "clifford/transformer/equi_places.cuh"

/// The matrices, or their transposes. One thread for an element.
template <class T>
GW_DEVICE void equi_matrices(const Places& places, const EquiParameters<const T>& from, const double* table, i32 transposed,
                             T* matrices) {
    const EquiEntries entries(table, places.size);
    const u32 step = static_cast<u32>(thread_count());
    for (u32 index = static_cast<u32>(thread_index()); index < places.all(); index += step) {
        u32 pair = 0, within = index, lines = places.top_out(), line = places.top_in();
        if (index >= places.first()) {
            lines = 2 * places.size.channels_out;
            line = 2 * places.size.channels_in;
            pair = (index - places.first()) / (lines * line) + 1;
            within = (index - places.first()) % (lines * line);
        }
        const u32 down = transposed ? within % lines : within / line, across = transposed ? within / lines : within % line;
        matrices[index] = narrow<T>(element_source<T>(places, from, entries, pair, down, across).value(entries));
    }
}

/// What is added to each of the first `top_out` rows of the result, in all columns of it. One block for a row at a time.
template <class T>
GW_DEVICE void equi_bias(const Places& places, const EquiParameters<const T>& from, T* out, i64 columns) {
    const EquiSizes& size = places.size;
    for (u32 row = blockIdx.x; row < places.top_out(); row += gridDim.x) {
        const T value = bias_element<T>(size, from, row);
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
