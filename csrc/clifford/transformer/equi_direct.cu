// Equivariant linear maps of few rows, straight from the parameters: no matrices in memory, all pairs of planes in one launch. A block has a
// tile of 32 × 32 results; elements of matrices are formed as tiles of them are needed.
#include "clifford/transformer/equi_launch.cuh"
#include "clifford/transformer/equi_places.cuh"

using equi_direct::DEPTH, equi_direct::MOST_ENTRIES, equi_direct::THREADS, equi_direct::TILE, equi_direct::WARPS;
/// Rows of each warp.
constexpr int EACH = TILE / WARPS;
/// Elements of a row of terms in shared memory, which begins at a multiple of 16 bytes.
constexpr int PITCH = DEPTH + 4;
/// The lists by cells in shared memory.
constexpr int MOST_CELLS = 4 * equi_direct::MOST_PAIRS + 1;

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

GW_DEVICE u32 tiles_of(u32 size) { return (size + TILE - 1) / TILE; }

/// sums[n] += Σ_k left[line of n][k] · right[k][lane], over four terms at a time.
template <class C, class F>
GW_DEVICE void add_terms(C (&sums)[EACH], const C (&left)[TILE][PITCH], u32 warp, const F& right) {
#pragma unroll 4
    for (u32 k = 0; k < DEPTH; k += 4) {
        C own[EACH][4];
#pragma unroll
        for (int n = 0; n < EACH; ++n) {
#pragma unroll
            for (int e = 0; e < 4; ++e) own[n][e] = left[warp + n * WARPS][k + e];
        }
#pragma unroll
        for (int e = 0; e < 4; ++e) {
            const C value = right(k + e);
#pragma unroll
            for (int n = 0; n < EACH; ++n) sums[n] += own[n][e] * value;
        }
    }
}

/// Results of the map, with what is added; or with `transposed` the gradient of the features from that of the results. blockIdx.x is a
/// tile of rows, blockIdx.y one of a pair's results. 256 threads.
template <class T>
GW_DEVICE void equi_product(const Places& places, const EquiParameters<const T>& from, const double* table, i32 transposed,
                            const EquiSide<const T>& features, const EquiSide<T>& results, i64 rows) {
    using C = Compute<T>;
    __shared__ alignas(16) C matrix[TILE][PITCH];
    __shared__ C values[DEPTH][TILE + 1];
    // Elements of matrices wait for the coefficients alone, not for the list of them.
    __shared__ double first_of_cell[MOST_CELLS], of_cells[2 * MOST_ENTRIES];
    const EquiSizes& size = places.size;
    EquiEntries entries(table, size);
    for (u32 i = threadIdx.x; i <= 4 * size.pairs; i += blockDim.x) first_of_cell[i] = entries.cell_first[i];
    for (u32 i = threadIdx.x; i < 2 * size.entries; i += blockDim.x) of_cells[i] = entries.of_cells[i];
    entries.cell_first = first_of_cell;
    entries.of_cells = of_cells;
    __syncthreads();
    const u32 scalars_in = transposed ? size.scalars_out : size.scalars_in, channels_in = transposed ? size.channels_out : size.channels_in;
    const u32 scalars_out = transposed ? size.scalars_in : size.scalars_out, channels_out = transposed ? size.channels_in : size.channels_out;
    const PairTiles at(blockIdx.y, tiles_of(scalars_out + 2 * channels_out), tiles_of(2 * channels_out));
    const u32 height = at.pair == 0 ? scalars_out + 2 * channels_out : 2 * channels_out;
    const u32 depth = at.pair == 0 ? scalars_in + 2 * channels_in : 2 * channels_in;
    const u32 lane = threadIdx.x % TILE, warp = threadIdx.x / TILE;
    const i64 column = static_cast<i64>(blockIdx.x) * TILE + lane;
    C sums[EACH] = {};
    for (u32 begin = 0; begin < depth; begin += DEPTH) {
        if (begin > 0) __syncthreads();
#pragma unroll
        for (int n = 0; n < DEPTH / WARPS; ++n) {
            const u32 index = begin + warp + n * WARPS;
            const bool inside = index < depth && column < rows;
            values[warp + n * WARPS][lane] =
                inside ? widen(row_of(features, scalars_in, channels_in, at.pair, index, rows)[column]) : C(0);
        }
        constexpr int OWN = TILE * DEPTH / THREADS;
        ElementSource<T> sources[OWN];
#pragma unroll
        for (int n = 0; n < OWN; ++n) {
            const u32 row = at.tile * TILE + warp + n % EACH * WARPS, own = begin + n / EACH * TILE + lane;
            if (row >= height || own >= depth) continue;
            sources[n] = element_source<T>(places, from, entries, at.pair, transposed ? own : row, transposed ? row : own);
        }
#pragma unroll
        for (int n = 0; n < OWN; ++n) matrix[warp + n % EACH * WARPS][n / EACH * TILE + lane] = sources[n].value(entries);
        __syncthreads();
        add_terms(sums, matrix, warp, [&](u32 k) { return values[k][lane]; });
    }
    if (column >= rows) return;
#pragma unroll
    for (int n = 0; n < EACH; ++n) {
        const u32 row = at.tile * TILE + warp + n * WARPS;
        if (row >= height) continue;
        if (!transposed && at.pair == 0) sums[n] += widen(bias_element<T>(size, from, row));
        row_of(results, scalars_out, channels_out, at.pair, row, rows)[column] = narrow<T>(sums[n]);
    }
}

/// The gradients of both matrices, and with `bias` the sums over rows of the first pair's gradients. blockIdx.x is a tile of a pair's features,
/// blockIdx.y one of its results. 256 threads.
template <class T>
GW_DEVICE void equi_outer(const Places& places, const EquiSide<const T>& features, const EquiSide<const T>& grad, T* first, T* others,
                          T* bias, i64 rows) {
    using C = Compute<T>;
    __shared__ alignas(16) C of_grad[TILE][PITCH];
    __shared__ C of_features[TILE][DEPTH + 1];
    const EquiSizes& size = places.size;
    const PairTiles at(blockIdx.y, tiles_of(places.top_out()), tiles_of(2 * size.channels_out));
    const u32 height = at.pair == 0 ? places.top_out() : 2 * size.channels_out;
    const u32 width = at.pair == 0 ? places.top_in() : 2 * size.channels_in;
    if (blockIdx.x * TILE >= width) return;  // The first pair has more tiles.
    const u32 lane = threadIdx.x % TILE, warp = threadIdx.x / TILE;
    const bool adds = bias != nullptr && at.pair == 0 && blockIdx.x == 0;
    C sums[EACH] = {}, totals[EACH] = {};
    for (i64 begin = 0; begin < rows; begin += DEPTH) {
        if (begin > 0) __syncthreads();
#pragma unroll
        for (int n = 0; n < TILE * DEPTH / THREADS; ++n) {
            const u32 line = warp + n % EACH * WARPS, place = n / EACH * TILE + lane;
            const u32 down = at.tile * TILE + line, across = blockIdx.x * TILE + line;
            const i64 row = begin + place;
            const bool is_down = down < height && row < rows, is_across = across < width && row < rows;
            of_grad[line][place] =
                is_down ? widen(row_of(grad, size.scalars_out, size.channels_out, at.pair, down, rows)[row]) : C(0);
            of_features[line][place] =
                is_across ? widen(row_of(features, size.scalars_in, size.channels_in, at.pair, across, rows)[row]) : C(0);
        }
        __syncthreads();
        add_terms(sums, of_grad, warp, [&](u32 k) { return of_features[lane][k]; });
        if (adds) add_terms(totals, of_grad, warp, [](u32) { return C(1); });
    }
    const u32 across = blockIdx.x * TILE + lane;
#pragma unroll
    for (int n = 0; n < EACH; ++n) {
        const u32 down = at.tile * TILE + warp + n * WARPS;
        if (down >= height) continue;
        if (adds && lane == 0) bias[down] = narrow<T>(totals[n]);
        if (across >= width) continue;
        if (at.pair == 0) {
            first[down * width + across] = narrow<T>(sums[n]);
        } else {
            others[((at.pair - 1) * height + down) * width + across] = narrow<T>(sums[n]);
        }
    }
}

#define GW_KERNELS(T, NAME)                                                                                              \
    extern "C" __global__ void __launch_bounds__(THREADS, 2) gw_equi_product_##NAME(                                      \
        EquiSizes size, EquiParameters<const T> from, const double* table, i32 transposed, EquiSide<const T> features,   \
        EquiSide<T> results, i64 rows) {                                                                                 \
        begin_kernel();                                                                                                  \
        equi_product<T>({size}, from, table, transposed, features, results, rows);                                       \
    }                                                                                                                    \
    extern "C" __global__ void __launch_bounds__(THREADS, 2) gw_equi_outer_##NAME(                                        \
        EquiSizes size, EquiSide<const T> features, EquiSide<const T> grad, T* first, T* others, T* bias, i64 rows) {     \
        begin_kernel();                                                                                                  \
        equi_outer<T>({size}, features, grad, first, others, bias, rows);                                                \
    }
GW_FOR_DTYPES(GW_KERNELS)
