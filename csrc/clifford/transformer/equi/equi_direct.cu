// Equivariant linear maps of few rows, straight from the parameters: no matrices in memory, all pairs of planes in one launch.
//
// Such a launch runs its instructions once or a few times, so fetching them and waiting for memory take longer than arithmetic does. Hence
// loops stay loops, elements go to shared memory by asynchronous copies, all of a block's under way at once, and the threads of a block
// share the terms of its sums: eight groups of two warps, whose parts are added in order.
#include "clifford/transformer/equi/equi_launch.cuh"
#include "clifford/transformer/equi/equi_regions.cuh"
#include "ptx/async.cuh"

using equi_direct::LINES, equi_direct::ROWS, equi_direct::SIDE, equi_direct::THREADS;
/// Warps of a block, one for each line of a tile, and groups of threads, each with a part of the terms.
constexpr int WARPS = THREADS / 32, GROUPS = 8, GROUP = THREADS / GROUPS;
static_assert(WARPS == LINES && WARPS == SIDE, "a warp stages a line");
/// Terms are padded to a multiple of this: each group has as many, in steps of four.
constexpr u32 TERMS = 4 * GROUPS;

/// Terms that are in shared memory at a time. Lines begin at multiples of 16 bytes, in different banks.
template <class C>
constexpr int PRODUCT_DEPTH = 768 / sizeof(C);
template <class C>
constexpr int OUTER_DEPTH = 1024 / sizeof(C);
constexpr int ROW_PITCH = ROWS + 4;
/// Blocks on a multiprocessor at least; twice the registers in double precision.
template <class T>
constexpr int BLOCKS = sizeof(T) > 4 ? 1 : 2;

/// Whether elements of type T are copied without waiting for them.
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
template <class T>
constexpr bool IS_ASYNC = sizeof(T) == sizeof(Compute<T>);
#else
template <class T>
constexpr bool IS_ASYNC = false;
#endif

/// Begins a copy of an element, or of zero, to shared memory. `source` is an address that may be read, whether `there` or not.
template <class T>
GW_DEVICE void stage(Compute<T>& target, const T* source, bool there) {
    if constexpr (IS_ASYNC<T>) {
        copy_async_element(&target, source, there);
    } else {
        target = element_if(there, source);
    }
}

/// Waits for the thread's own copies.
template <class T>
GW_DEVICE void await_staged() {
    if constexpr (IS_ASYNC<T>) {
        copy_async_commit();
        copy_async_wait<0>();
    }
}

/// The sums over the groups in order, of each of which `parts` has a tile [LINES, WIDTH]: calls write(line, place in it, sum) for all.
template <int WIDTH, class C, class F>
GW_DEVICE void sum_groups(const C* parts, const F& write) {
#pragma unroll 1
    for (u32 at = threadIdx.x; at < LINES * WIDTH; at += THREADS) {
        C sum = parts[at];
#pragma unroll
        for (int group = 1; group < GROUPS; ++group) sum += parts[group * LINES * WIDTH + at];
        write(at / WIDTH, at % WIDTH, sum);
    }
}

/// Results of the map, with what is added; or with `transposed` the gradient of the features from that of the results. blockIdx.x is a
/// tile of rows, blockIdx.y one of a pair's results. THREADS threads.
template <class T>
GW_DEVICE void equi_product(const Places& places, const EquiParameters<const T>& from, const EquiCells& cells, const double* table,
                            i32 transposed, const EquiSide<const T>& features, const EquiSide<T>& results, i64 rows) {
    using C = Compute<T>;
    constexpr u32 DEPTH = PRODUCT_DEPTH<C>, PITCH = DEPTH + 4;
    static_assert(DEPTH % TERMS == 0, "each group has as many terms");
    // The matrix [LINES, PITCH] and the features [DEPTH, ROW_PITCH]; at the end the groups' parts.
    __shared__ alignas(32) C shared[LINES * PITCH + DEPTH * ROW_PITCH];
    static_assert(GROUPS * LINES * ROWS <= LINES * PITCH + DEPTH * ROW_PITCH, "the parts of sums have room");
    __shared__ Region<T> regions[KINDS * KINDS];
    C* const matrix = shared;
    C* const values = shared + LINES * PITCH;
    const EquiSizes& size = places.size;
    const u32 all_in = transposed ? size.scalars_out : size.scalars_in, channels_in = transposed ? size.channels_out : size.channels_in;
    const u32 all_out = transposed ? size.scalars_in : size.scalars_out, channels_out = transposed ? size.channels_in : size.channels_out;
    const PairTiles at(blockIdx.y, tiles_of(all_out + 2 * channels_out, LINES), tiles_of(2 * channels_out, LINES));
    // Scalars belong to the first pair.
    const u32 scalars_in = at.pair == 0 ? all_in : 0, scalars_out = at.pair == 0 ? all_out : 0;
    const u32 height = scalars_out + 2 * channels_out, depth = scalars_in + 2 * channels_in;
    if (threadIdx.x < KINDS * KINDS) {
        const u32 kind = threadIdx.x / KINDS, other = threadIdx.x % KINDS;
        const u32 of_results = transposed ? other : kind, of_features = transposed ? kind : other;
        Region<T> region = whole_region_of(size, from, cells, table, at.pair, of_results, of_features);
        if (transposed) {
            const u32 step = region.line;
            region.line = region.column, region.column = step;
        }
        regions[threadIdx.x] = region;
    }
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const i64 column = static_cast<i64>(blockIdx.x) * ROWS + lane;
    // Lanes go along the parameters: their rows are terms of results, and lines of the gradient of features.
    const u32 line = transposed ? lane % LINES : warp, first_term = transposed ? 2 * warp + lane / LINES : lane;
    const u32 down = at.tile * LINES + line;
    const Part of_line(down, scalars_out, channels_out);
    const u32 group = threadIdx.x / GROUP, own_line = threadIdx.x % GROUP / 16 * 4, own_row = threadIdx.x % 16 * 2;
    C sums[4][2] = {};
#pragma unroll 1
    for (u32 begin = 0; begin < depth; begin += DEPTH) {
        const u32 rest = depth - begin, terms = rest < DEPTH ? (rest + TERMS - 1) / TERMS * TERMS : DEPTH;
        if (begin > 0) __syncthreads();
#pragma unroll 1
        for (u32 k = warp; k < terms; k += WARPS) {
            const bool there = begin + k < depth && column < rows;
            const T* const row = row_of(features, all_in, channels_in, at.pair, there ? begin + k : 0, rows);
            stage(values[k * ROW_PITCH + lane], row + (there ? column : 0), there);
        }
        // Before regions are read.
        if (begin == 0) __syncthreads();
        bool is_plain = true;
#pragma unroll 1
        for (u32 k = first_term; k < terms; k += 32) {
            const Part of_term(begin + k, scalars_in, channels_in);
            const Region<T>& region = regions[of_line.kind * KINDS + of_term.kind];
            const bool there = down < height && begin + k < depth && region.at != nullptr;
            const T* const source = there ? region.at + (of_line.number * region.line + of_term.number * region.column) : from.weight;
            stage(matrix[line * PITCH + k], source, there);
            is_plain &= region.next == region.end && region.factor == C(1);
        }
        await_staged<T>();
        // Elements with a factor, or of several entries. Each thread has copied its own.
        if (!is_plain) {
            const EquiEntries entries(table, size);
#pragma unroll 1
            for (u32 k = first_term; k < terms; k += 32) {
                if (down >= height || begin + k >= depth) continue;
                const Part of_term(begin + k, scalars_in, channels_in);
                const Region<T>& region = regions[of_line.kind * KINDS + of_term.kind];
                C element = region.factor * matrix[line * PITCH + k];
                const T* const coefficients = from.weight + (of_line.number * region.line + of_term.number * region.column);
                for (u32 entry = region.next; entry < region.end; ++entry) {
                    element += C(entries.of_cells[2 * entry + 1]) * widen(coefficients[static_cast<u32>(entries.of_cells[2 * entry])]);
                }
                matrix[line * PITCH + k] = element;
            }
        }
        __syncthreads();
        const u32 own = terms / GROUPS, end = (group + 1) * own;
#pragma unroll 1
        for (u32 k = group * own; k < end; k += 4) {
            C left[4][4], right[4][2];
#pragma unroll
            for (int n = 0; n < 4; ++n) load<4>(&matrix[(own_line + n) * PITCH + k], left[n]);
#pragma unroll
            for (int e = 0; e < 4; ++e) load<2>(&values[(k + e) * ROW_PITCH + own_row], right[e]);
#pragma unroll
            for (int e = 0; e < 4; ++e) {
#pragma unroll
                for (int n = 0; n < 4; ++n) {
#pragma unroll
                    for (int r = 0; r < 2; ++r) sums[n][r] += left[n][e] * right[e][r];
                }
            }
        }
    }
    __syncthreads();
#pragma unroll
    for (int n = 0; n < 4; ++n) store<2>(&shared[(group * LINES + own_line + n) * ROWS + own_row], sums[n]);
    __syncthreads();
    sum_groups<ROWS>(shared, [&](u32 line, u32 lane, C sum) {
        const u32 row = at.tile * LINES + line;
        const i64 column = static_cast<i64>(blockIdx.x) * ROWS + lane;
        if (row >= height || column >= rows) return;
        if (!transposed && at.pair == 0) sum += widen(bias_element<T>(size, from, row));
        row_of(results, all_out, channels_out, at.pair, row, rows)[column] = narrow<T>(sum);
    });
}

/// The gradients of both matrices, and with `bias` the sums over rows of the first pair's gradients. blockIdx.x is a tile of a pair's
/// features, blockIdx.y one of its results. THREADS threads.
template <class T>
GW_DEVICE void equi_outer(const Places& places, const EquiSide<const T>& features, const EquiSide<const T>& grad, T* first, T* others,
                          T* bias, i64 rows) {
    using C = Compute<T>;
    constexpr u32 DEPTH = OUTER_DEPTH<C>, PITCH = DEPTH + 4;
    static_assert(DEPTH % TERMS == 0, "each group has as many terms");
    // Lines of the gradient, then of the features; at the end the groups' parts.
    __shared__ alignas(32) C shared[2 * SIDE * PITCH];
    static_assert(GROUPS * SIDE <= 2 * PITCH, "the parts of sums have room");
    C* const of_grad = shared;
    C* const of_features = shared + SIDE * PITCH;
    const EquiSizes& size = places.size;
    const PairTiles at(blockIdx.y, tiles_of(places.top_out(), SIDE), tiles_of(2 * size.channels_out, SIDE));
    const u32 height = at.pair == 0 ? places.top_out() : 2 * size.channels_out;
    const u32 width = at.pair == 0 ? places.top_in() : 2 * size.channels_in;
    if (blockIdx.x * SIDE >= width) return;  // The first pair has more tiles.
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const u32 down = at.tile * SIDE + warp, across = blockIdx.x * SIDE + warp;
    const bool is_down = down < height, is_across = across < width;
    const T* const grads = row_of(grad, size.scalars_out, size.channels_out, at.pair, is_down ? down : 0, rows);
    const T* const own_features = row_of(features, size.scalars_in, size.channels_in, at.pair, is_across ? across : 0, rows);
    const bool adds = bias != nullptr && at.pair == 0 && blockIdx.x == 0;
    // Lines of the tile's result that a thread has, and eight after each.
    const u32 group = threadIdx.x / GROUP, own_down = threadIdx.x % GROUP / 8, own_across = threadIdx.x % 8;
    C sums[2][2] = {}, total = 0;
#pragma unroll 1
    for (i64 begin = 0; begin < rows; begin += DEPTH) {
        const i64 rest = rows - begin;
        const u32 terms = rest < DEPTH ? (static_cast<u32>(rest) + TERMS - 1) / TERMS * TERMS : DEPTH;
        if (begin > 0) __syncthreads();
#pragma unroll 1
        for (u32 k = lane; k < terms; k += 32) {
            const bool there = k < rest;
            const i64 row = there ? begin + k : 0;
            stage(of_grad[warp * PITCH + k], grads + row, there && is_down);
            stage(of_features[warp * PITCH + k], own_features + row, there && is_across);
        }
        await_staged<T>();
        __syncthreads();
        if (adds) {
            for (u32 k = lane; k < terms; k += 32) total += of_grad[warp * PITCH + k];
        }
        const u32 own = terms / GROUPS, end = (group + 1) * own;
#pragma unroll 1
        for (u32 k = group * own; k < end; k += 4) {
            C left[2][4], right[2][4];
#pragma unroll
            for (int n = 0; n < 2; ++n) {
                load<4>(&of_grad[(own_down + 8 * n) * PITCH + k], left[n]);
                load<4>(&of_features[(own_across + 8 * n) * PITCH + k], right[n]);
            }
#pragma unroll
            for (int e = 0; e < 4; ++e) {
#pragma unroll
                for (int n = 0; n < 2; ++n) {
#pragma unroll
                    for (int m = 0; m < 2; ++m) sums[n][m] += left[n][e] * right[m][e];
                }
            }
        }
    }
    if (adds) {
#pragma unroll
        for (int offset = 16; offset > 0; offset /= 2) total += __shfl_xor_sync(0xffffffffu, total, offset);
        if (lane == 0 && is_down) bias[down] = narrow<T>(total);
    }
    __syncthreads();
#pragma unroll
    for (int n = 0; n < 2; ++n) {
#pragma unroll
        for (int m = 0; m < 2; ++m) shared[(group * SIDE + own_down + 8 * n) * SIDE + own_across + 8 * m] = sums[n][m];
    }
    __syncthreads();
    sum_groups<SIDE>(shared, [&](u32 line, u32 lane, C sum) {
        const u32 down = at.tile * SIDE + line, across = blockIdx.x * SIDE + lane;
        if (down >= height || across >= width) return;
        if (at.pair == 0) {
            first[down * width + across] = narrow<T>(sum);
        } else {
            others[((at.pair - 1) * height + down) * width + across] = narrow<T>(sum);
        }
    });
}

#define GW_KERNELS(T, NAME)                                                                                              \
    extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS<T>) gw_equi_product_##NAME(                             \
        EquiSizes size, EquiParameters<const T> from, const EquiCells cells, const double* table, i32 transposed,        \
        EquiSide<const T> features, EquiSide<T> results, i64 rows) {                                                     \
        begin_kernel();                                                                                                  \
        equi_product<T>({size}, from, cells, table, transposed, features, results, rows);                                \
    }                                                                                                                    \
    extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS<T>) gw_equi_outer_##NAME(                               \
        EquiSizes size, EquiSide<const T> features, EquiSide<const T> grad, T* first, T* others, T* bias, i64 rows) {    \
        begin_kernel();                                                                                                  \
        equi_outer<T>({size}, features, grad, first, others, bias, rows);                                                \
    }
GW_FOR_DTYPES(GW_KERNELS)
