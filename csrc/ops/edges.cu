// Messages on graphs: means over the incoming edges of a node, and the transposes of means and of the differences in
// edge_difference.cu. Features of nodes are [outer, nodes, features], those of edges [outer, edges, features]. Gradients may be columns
// of wider rows, `pitch` elements apart. Blocks of the outer axis, such as the blades of multivectors, are `spacing` elements apart.
// Kernels named wide take several adjacent elements per thread, as many as WIDE_ELEMENTS or WIDE_MEAN_ELEMENTS say, and require that the addresses
// they read and write are multiples of as many.
#include "gradewise/depth.cuh"
#include "gradewise/segments.cuh"

namespace {

/// Adjacent elements of means that a thread of a wide kernel takes.
template <class T>
constexpr int WIDE_MEAN_ELEMENTS = edges::wide_of_means(sizeof(T));
using edges::LONG_EDGES, edges::LONG_RESULTS, edges::NODES;

/// An array [outer, nodes, features] whose rows are `pitch` elements apart.
template <class T>
struct Rows {
    const T* data;
    i64 pitch;
    i64 spacing;

    GW_DEVICE const T* at(const Work& work) const {
        return data + work.first * spacing + work.row * pitch + work.column;
    }
};

/// out[o, n, f] = Σ x[o, e, f] over the incoming edges of n − the same over its outgoing edges. A row of out has `packs` packs. With
/// ADDS, that is rounded and added to the sum of both summands, or to the first. Where there is one, the second must repeat it, for it
/// is read anyway. In 16 bits and by single elements, that is for few nodes, whose threads take one block each.
template <int N, int STEP, bool ADDS, class T>
GW_DEVICE void inflow(const T* x, const Segments (&ends)[2], T* out, i64 units, const Divisor& nodes,
                      const Divisor& packs, u32 outer, u32 depth, i64 edges, i64 pitch, i64 x_spacing, i64 spacing,
                      const Rows<T> (&summands)[2], bool both) {
    const i64 features = packs.size * N;
#pragma unroll 1
    for (i64 at = thread_index(); at < units; at += thread_count()) {
        const Work work = work_of<N>(at, nodes, packs, outer, depth);
        const Members lists[2] = {ends[0].members(work.row), ends[1].members(work.row)};
        const T* source = x + work.first * x_spacing + work.column;
        T* target = out + work.first * spacing + work.row * features + work.column;
        [[maybe_unused]] const T* terms[2] = {summands[0].at(work), summands[1].at(work)};
        in_steps<STEP>(work.blocks, [&](auto count) {
            constexpr int U = decltype(count)::value;
            [[maybe_unused]] Compute<T> added[2][U][N];
            if constexpr (ADDS) {
#pragma unroll
                for (int k = 0; k < 2; ++k) {
#pragma unroll
                    for (int u = 0; u < U; ++u, terms[k] += summands[k].spacing) load(terms[k], added[k][u]);
                }
            }
            double totals[2][U][N];
            segment_totals(source, x_spacing, lists, pitch, edges, 0, 1, totals);
            source += U * x_spacing;
#pragma unroll
            for (int u = 0; u < U; ++u, target += spacing) {
                Compute<T> values[N];
#pragma unroll
                for (int n = 0; n < N; ++n) {
                    values[n] = static_cast<Compute<T>>(totals[0][u][n] - totals[1][u][n]);
                    if constexpr (ADDS) {
                        const Compute<T> sum = both ? added[0][u][n] + added[1][u][n] : added[0][u][n];
                        values[n] = sum + widen(narrow<T>(values[n]));
                    }
                }
                store(target, values);
            }
        });
    }
}

/// The same for nodes of many edges: a block of 32 by 8 threads computes 32 adjacent results, 8 edges at a time.
template <class T>
GW_DEVICE void inflow_long(const T* x, const Segments (&ends)[2], T* out, i64 outer, i64 nodes, i64 features, i64 edges,
                           i64 pitch) {
    __shared__ double sums[LONG_EDGES][LONG_RESULTS];
    const i64 tiles = (features + 31) / 32;
    for (i64 unit = blockIdx.x; unit < outer * nodes * tiles; unit += gridDim.x) {
        const i64 row = unit / tiles, block = row / nodes;
        const i64 column = (unit - row * tiles) * 32 + threadIdx.x;
        double into[1][1][1] = {}, out_of[1][1][1] = {};
        if (column < features) {
            const T* source = x + block * edges * pitch + column;
            const u32 node = static_cast<u32>(row - block * nodes);
            const Members arriving[1] = {ends[0].members(node)}, leaving[1] = {ends[1].members(node)};
            segment_totals(source, 0, arriving, pitch, edges, threadIdx.y, 8, into);
            segment_totals(source, 0, leaving, pitch, edges, threadIdx.y, 8, out_of);
        }
        const double total = rows_total(into[0][0][0] - out_of[0][0][0], sums);
        if (threadIdx.y == 0 && column < features) out[row * features + column] = narrow<T>(total);
    }
}

/// A sum over `count` members divided by their number; 0 if there are none.
template <class T>
GW_DEVICE Compute<T> mean_of(double total, u32 count) {
    return static_cast<Compute<T>>(total) / static_cast<Compute<T>>(count > 0 ? count : 1);
}

/// out[o, n] = [h[o, n], the mean of x[o, e] over the incoming edges e of n]. Units are [groups of blocks, tiles of 32 nodes], each
/// tile first the packs of h and then those of the means, so that the lanes of most warps do the same. `tile` is the number of units
/// of a tile, `packs` those of a row of h and of x.
template <int N, int STEP, class T>
GW_DEVICE void join_mean(const T* h, const T* x, const Segments& ends, T* out, i64 units, const Divisor& tiles,
                         const Divisor& tile, const Divisor& h_packs, const Divisor& x_packs, u32 outer, u32 depth, u32 nodes,
                         i64 edges, i64 h_spacing, i64 x_spacing, i64 spacing) {
    const u32 features = static_cast<u32>(h_packs.size) * N, pitch = static_cast<u32>(x_packs.size) * N;
#pragma unroll 1
    for (i64 at = thread_index(); at < units; at += thread_count()) {
        const i64 line = at / tile, group = line / tiles;
        u32 first, blocks, unit = static_cast<u32>(at - line * tile.size);
        group_of(static_cast<u32>(group), outer, depth, first, blocks);
        const bool of_nodes = unit < NODES * static_cast<u32>(h_packs.size);
        const Divisor& packs = of_nodes ? h_packs : x_packs;
        if (!of_nodes) unit -= NODES * static_cast<u32>(h_packs.size);
        const u32 row = static_cast<u32>(static_cast<i64>(unit) / packs);
        const u32 node = static_cast<u32>(line - group * tiles.size) * NODES + row;
        const u32 column = (unit - row * static_cast<u32>(packs.size)) * N;
        if (node >= nodes) continue;
        T* target = out + first * spacing + node * static_cast<u64>(features + pitch) + column;
        if (of_nodes) {
            const T* source = h + first * h_spacing + node * static_cast<u64>(features) + column;
            in_steps<STEP>(blocks, [&](auto count) {
                constexpr int U = decltype(count)::value;
                Compute<T> values[U][N];
#pragma unroll
                for (int u = 0; u < U; ++u, source += h_spacing) load(source, values[u]);
#pragma unroll
                for (int u = 0; u < U; ++u, target += spacing) store(target, values[u]);
            });
            continue;
        }
        target += features;
        const Members lists[1] = {ends.members(node)};
        const T* source = x + first * x_spacing + column;
        in_steps<STEP>(blocks, [&](auto count) {
            constexpr int U = decltype(count)::value;
            double totals[1][U][N];
            segment_totals(source, x_spacing, lists, pitch, edges, 0, 1, totals);
            source += U * x_spacing;
#pragma unroll
            for (int u = 0; u < U; ++u, target += spacing) {
                Compute<T> values[N];
#pragma unroll
                for (int n = 0; n < N; ++n) values[n] = mean_of<T>(totals[0][u][n], lists[0].count);
                store(target, values);
            }
        });
    }
}

/// The same for nodes of many edges, as inflow_long.
template <class T>
GW_DEVICE void join_mean_long(const T* h, const T* x, const Segments& ends, T* out, i64 outer, i64 nodes, i64 width,
                              i64 features, i64 edges) {
    __shared__ double sums[LONG_EDGES][LONG_RESULTS];
    const i64 tiles = (width + 31) / 32, pitch = width - features;
    for (i64 unit = blockIdx.x; unit < outer * nodes * tiles; unit += gridDim.x) {
        const i64 row = unit / tiles, block = row / nodes;
        const i64 column = (unit - row * tiles) * 32 + threadIdx.x;
        const Members lists[1] = {ends.members(static_cast<u32>(row - block * nodes))};
        double totals[1][1][1] = {};
        if (column >= features && column < width) {
            const T* source = x + block * edges * pitch + (column - features);
            segment_totals(source, 0, lists, pitch, edges, threadIdx.y, 8, totals);
        }
        const double total = rows_total(totals[0][0][0], sums);
        if (threadIdx.y == 0 && column < width) {
            out[row * width + column] = column < features ? h[row * features + column]
                                                          : narrow<T>(mean_of<T>(total, lists[0].count));
        }
    }
}

/// out[o, p, f] = x[o, s, f] / (members of s) for the segment s of position p. A row of out has `packs` packs.
template <int N, class T>
GW_DEVICE void spread(const T* x, const u32* segments, const u32* starts, T* out, i64 units, const Divisor& positions,
                      const Divisor& packs, u32 outer, u32 depth, i64 bound, i64 pitch, i64 x_spacing, i64 spacing) {
    const i64 features = packs.size * N;
#pragma unroll 1
    for (i64 at = thread_index(); at < units; at += thread_count()) {
        const Work work = work_of<N>(at, positions, packs, outer, depth);
        const u32 segment = static_cast<u32>(GW_INDEX(segments[work.row], bound));
        const u32* start = starts + segment;
        const Compute<T> members = static_cast<Compute<T>>(start[1] - start[0]);
        const T* source = x + work.first * x_spacing + segment * pitch + work.column;
        T* target = out + work.first * spacing + work.row * features + work.column;
        in_steps<4>(work.blocks, [&](auto count) {
            constexpr int U = decltype(count)::value;
            Compute<T> values[U][N];
#pragma unroll
            for (int u = 0; u < U; ++u, source += x_spacing) load(source, values[u]);
#pragma unroll
            for (int u = 0; u < U; ++u, target += spacing) {
#pragma unroll
                for (int n = 0; n < N; ++n) values[u][n] /= members;
                store(target, values[u]);
            }
        });
    }
}

}  // namespace

// Parameters of the kernels of net_inflow.
#define GW_INFLOW(T)                                                                                                    \
    const T *x, const u32 *in_starts, const u32 *in_order, const u32 *out_starts, const u32 *out_order, T *out, i64 units,\
        GW_PARAMETER Divisor nodes, GW_PARAMETER Divisor packs, i64 outer, i64 depth, i64 edges, i64 pitch

#define GW_PACKED(T, NAME, N, MEAN, WIDE)                                                                                  \
    extern "C" __global__ void __launch_bounds__(256, N == 1 ? SUM_BLOCKS : WIDE_SUM_BLOCKS)                               \
        gw_net_inflow##WIDE##_##NAME(GW_INFLOW(T), i64 x_spacing, i64 spacing) {                                           \
        begin_kernel();                                                                                                    \
        const Segments ends[2] = {{in_starts, in_order}, {out_starts, out_order}};                                         \
        inflow<N, N == 1 ? 2 : 1, false, T>(x, ends, out, units, nodes, packs, outer, depth, edges, pitch, x_spacing,      \
                                            spacing, {}, false);                                                           \
    }                                                                                                                      \
    extern "C" __global__ void __launch_bounds__(256, ADDING_BLOCKS) gw_net_inflow_onto##WIDE##_##NAME(                    \
        GW_INFLOW(T), i64 x_spacing, i64 spacing, const T* first, i64 first_pitch, i64 first_spacing, const T* second,     \
        i64 second_pitch, i64 second_spacing, i32 both) {                                                                  \
        begin_kernel();                                                                                                    \
        const Segments ends[2] = {{in_starts, in_order}, {out_starts, out_order}};                                         \
        const Rows<T> summands[2] = {{first, first_pitch, first_spacing}, {second, second_pitch, second_spacing}};         \
        inflow<N, (N == 1 && sizeof(T) > 2) ? 2 : 1, true>(x, ends, out, units, nodes, packs, outer, depth, edges, pitch,  \
                                                           x_spacing, spacing, summands, both != 0);                       \
    }                                                                                                                      \
    extern "C" __global__ void __launch_bounds__(256, MEAN == 4 ? SUM_BLOCKS : EDGE_BLOCKS)                                \
        gw_concat_segment_mean##WIDE##_##NAME(                                                                             \
            const T* h, const T* x, const u32* starts, const u32* order, T* out, i64 units, GW_PARAMETER Divisor tiles,    \
            GW_PARAMETER Divisor tile, GW_PARAMETER Divisor h_packs, GW_PARAMETER Divisor x_packs, i64 outer, i64 depth,   \
            i64 nodes, i64 edges, i64 h_spacing, i64 x_spacing, i64 spacing) {                                             \
        begin_kernel();                                                                                                    \
        join_mean<MEAN, MEAN == 4 ? 1 : 2>(h, x, {starts, order}, out, units, tiles, tile, h_packs, x_packs, outer, depth, \
                                           nodes, edges, h_spacing, x_spacing, spacing);                                   \
    }                                                                                                                      \
    extern "C" __global__ void __launch_bounds__(256, sizeof(T) == 8 ? 2 : EDGE_BLOCKS) gw_segment_spread##WIDE##_##NAME(  \
        const T* x, const u32* segments, const u32* starts, T* out, i64 units, GW_PARAMETER Divisor positions,             \
        GW_PARAMETER Divisor packs, i64 outer, i64 depth, i64 bound, i64 pitch, i64 x_spacing, i64 spacing) {              \
        begin_kernel();                                                                                                    \
        spread<N>(x, segments, starts, out, units, positions, packs, outer, depth, bound, pitch, x_spacing, spacing);      \
    }

#define GW_KERNELS(T, NAME)                                                                                         \
    GW_PACKED(T, NAME, 1, 1, )                                                                                      \
    GW_PACKED(T, NAME, WIDE_ELEMENTS<T>, WIDE_MEAN_ELEMENTS<T>, _wide)                                              \
    extern "C" __global__ void __launch_bounds__(256) gw_net_inflow_long_##NAME(                                    \
        const T* x, const u32* in_starts, const u32* in_order, const u32* out_starts, const u32* out_order, T* out, \
        i64 outer, i64 nodes, i64 features, i64 edges, i64 pitch) {                                                 \
        begin_kernel();                                                                                             \
        const Segments ends[2] = {{in_starts, in_order}, {out_starts, out_order}};                                  \
        inflow_long(x, ends, out, outer, nodes, features, edges, pitch);                                            \
    }                                                                                                               \
    extern "C" __global__ void __launch_bounds__(256) gw_concat_segment_mean_long_##NAME(                           \
        const T* h, const T* x, const u32* starts, const u32* order, T* out, i64 outer, i64 nodes, i64 width,       \
        i64 features, i64 edges) {                                                                                  \
        begin_kernel();                                                                                             \
        join_mean_long(h, x, {starts, order}, out, outer, nodes, width, features, edges);                           \
    }
GW_FOR_DTYPES(GW_KERNELS)
