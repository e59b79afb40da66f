// The matrices of an equivariant linear map of feature planes: from its parameters, and back from their gradients.
#include "clifford/transformer/equi/equi_launch.cuh"
#include "clifford/transformer/equi/equi_places.cuh"

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

/// Gradients of the matrices, of which each of `count` stretches of rows has a part, one after the other: `stride` elements from one to the
/// next, of `bias` (null if nothing is added) one for each row of the first matrix.
template <class T>
struct EquiParts {
    const T *first, *others, *bias;
    i64 stride;
    u32 count;
};

/// The gradients of the parameters from those of the matrices and of what is added. GROUPS threads share the parts of an element of a
/// parameter, whose sums are added in order; SUM_THREADS threads.
template <int GROUPS, class T>
GW_DEVICE void equi_gradients(const Places& places, const EquiParts<T>& parts, const double* table, const EquiParameters<T>& to) {
    using C = Compute<T>;
    constexpr u32 OWN = equi_tiles::SUM_THREADS / GROUPS;
    __shared__ C sums[GROUPS > 1 ? equi_tiles::SUM_THREADS : 1];
    const EquiSizes& size = places.size;
    const u32 weights = size.channels_out * size.channels_in * size.maps;
    const u32 to_planes = size.mixed * size.channels_out * size.scalars_in;
    const u32 to_scalars = size.scalars_out * size.mixed * size.channels_in;
    const u32 between = size.scalars_out * size.scalars_in;
    const u32 biases = places.top_out();
    const u32 all = weights + to_planes + to_scalars + between + biases;
    const EquiEntries entries(table, size);
    const u32 own = threadIdx.x % OWN, group = threadIdx.x / OWN;
    const auto sum_of = [&](const T* element, i64 stride) {
        C sum = 0;
#pragma unroll 4
        for (u32 part = group; part < parts.count; part += GROUPS) sum += widen(element[part * stride]);
        return sum;
    };
    for (u32 begin = blockIdx.x * OWN; begin < all; begin += gridDim.x * OWN) {
        u32 index = begin + own;
        T *target = nullptr, *other = nullptr;
        C sum = 0;
        if (index < weights) {
            // Adjacent threads read adjacent elements.
            const u32 in = index % size.channels_in, map = index / size.channels_in % size.maps, out = index / size.channels_in / size.maps;
            const u32 end = static_cast<u32>(entries.map_first[map + 1]);
            // Four entries at a time, whose reads are under way at once.
            for (u32 entry = static_cast<u32>(entries.map_first[map]); entry < end; entry += 4) {
                const T* elements[4];
                C factors[4];
#pragma unroll
                for (u32 e = 0; e < 4; ++e) {
                    const bool there = entry + e < end;
                    const u32 cell = static_cast<u32>(element_if(there, entries.of_maps + 2 * (entry + e)));
                    factors[e] = C(element_if(there, entries.of_maps + 2 * (entry + e) + 1));
                    elements[e] = places.block(parts.first, parts.others, cell / 4, cell / 2 % 2, cell % 2, out, in);
                }
#pragma unroll 2
                for (u32 part = group; part < parts.count; part += GROUPS) {
                    C values[4];
#pragma unroll
                    for (u32 e = 0; e < 4; ++e) values[e] = element_if(entry + e < end, elements[e] + part * parts.stride);
#pragma unroll
                    for (u32 e = 0; e < 4; ++e) sum += entry + e < end ? factors[e] * values[e] : C(0);
                }
            }
            target = to.weight + (out * size.channels_in + in) * size.maps + map;
        } else if ((index -= weights) < to_planes) {
            if (to.to_planes != nullptr) {
                const u32 row = index / size.scalars_in, column = index % size.scalars_in;
                const u32 down = size.scalars_out + row % size.mixed * size.channels_out + row / size.mixed;
                sum = sum_of(parts.first + down * places.top_in() + column, parts.stride);
                target = to.to_planes + index;
            }
        } else if ((index -= to_planes) < to_scalars) {
            if (to.to_scalars != nullptr) {
                const u32 row = index / (size.mixed * size.channels_in), column = index % (size.mixed * size.channels_in);
                const u32 across = size.scalars_in + column % size.mixed * size.channels_in + column / size.mixed;
                sum = sum_of(parts.first + row * places.top_in() + across, parts.stride);
                target = to.to_scalars + index;
            }
        } else if ((index -= to_scalars) < between) {
            if (to.between != nullptr) {
                sum = sum_of(parts.first + index / size.scalars_in * places.top_in() + index % size.scalars_in, parts.stride);
                target = to.between + index;
            }
        } else if ((index -= between) < biases && parts.bias != nullptr) {
            sum = sum_of(parts.bias + index, biases);
            if (index < size.scalars_out) {
                if (to.to_scalars_bias != nullptr) target = to.to_scalars_bias + index;
            } else {
                const u32 plane = (index - size.scalars_out) / size.channels_out, channel = (index - size.scalars_out) % size.channels_out;
                if (to.planes_bias != nullptr && plane == 0) target = to.planes_bias + channel;
                if (to.to_planes_bias != nullptr && plane < size.mixed) other = to.to_planes_bias + channel * size.mixed + plane;
            }
        }
        if constexpr (GROUPS > 1) {
            __syncthreads();
            sums[threadIdx.x] = sum;
            __syncthreads();
            if (group > 0) continue;
            for (int of = 1; of < GROUPS; ++of) sum += sums[of * OWN + own];
        }
        if (target != nullptr) *target = narrow<T>(sum);
        if (other != nullptr) *other = narrow<T>(sum);
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
    extern "C" __global__ void __launch_bounds__(equi_tiles::SUM_THREADS, 4) gw_equi_gradients_##NAME(                       \
        EquiSizes size, EquiParts<T> parts, const double* table, EquiParameters<T> to) {                                 \
        begin_kernel();                                                                                                  \
        equi_gradients<1, T>({size}, parts, table, to);                                                                  \
    }
GW_FOR_DTYPES(GW_KERNELS)

extern "C" __global__ void __launch_bounds__(equi_tiles::SUM_THREADS, 4) gw_equi_gradients_of_parts_f32(
    EquiSizes size, EquiParts<float> parts, const double* table, EquiParameters<float> to) {
    begin_kernel();
    equi_gradients<equi_tiles::SUM_GROUPS, float>({size}, parts, table, to);
}
