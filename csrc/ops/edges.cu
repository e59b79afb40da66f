// Messages on graphs: differences along edges, means over the edges that arrive at a node, and the transposes of both. Features of
// nodes are [outer, nodes, features], those of edges [outer, edges, features]. What is read as a gradient may be columns of wider rows,
// `pitch` elements apart.
#include "gradewise/segments.cuh"
#include "gradewise/strided.cuh"

namespace {

/// out[o, e] = [h[o, receivers[e]] − h[o, senders[e]], attributes[o, e]], rows of `width` of which `features` are differences.
template <class T>
GW_DEVICE void difference(const T* h, const T* attributes, const u32* receivers, const u32* senders, T* out, i64 elements,
                          const Divisor& edges, const Divisor& width, i64 nodes, i64 features) {
    for (i64 at = thread_index(); at < elements; at += thread_count()) {
        const i64 row = at / width, column = at - row * width.size;
        if (column >= features) {
            out[at] = attributes[row * (width.size - features) + (column - features)];
            continue;
        }
        const i64 block = row / edges, edge = row - block * edges.size;
        const T* source = h + block * nodes * features + column;
        const i64 receiver = GW_INDEX(receivers[edge], nodes), sender = GW_INDEX(senders[edge], nodes);
        out[at] = narrow<T>(widen(source[receiver * features]) - widen(source[sender * features]));
    }
}

/// out[o, n, f] = Σ x[o, e, f] over the edges e that arrive at n − the same over those that leave it.
template <class T>
GW_DEVICE void inflow(const T* x, const Segments (&ends)[2], T* out, i64 elements, const Divisor& nodes,
                      const Divisor& features, i64 edges, i64 pitch) {
    for (i64 at = thread_index(); at < elements; at += thread_count()) {
        const i64 row = at / features, block = row / nodes, node = row - block * nodes.size;
        double totals[2];
        segment_totals(x + block * edges * pitch + (at - row * features.size), ends, node, pitch, edges, 0, 1, totals);
        out[at] = narrow<T>(totals[0] - totals[1]);
    }
}

/// The same for nodes of many edges: a block of 32 by 8 threads for 32 neighbouring results, 8 edges at a time.
template <class T>
GW_DEVICE void inflow_long(const T* x, const Segments (&ends)[2], T* out, i64 outer, i64 nodes, i64 features, i64 edges,
                           i64 pitch) {
    __shared__ double sums[8][32];
    const i64 tiles = (features + 31) / 32;
    for (i64 unit = blockIdx.x; unit < outer * nodes * tiles; unit += gridDim.x) {
        const i64 row = unit / tiles, block = row / nodes;
        const i64 column = (unit - row * tiles) * 32 + threadIdx.x;
        double into[1] = {0}, out_of[1] = {0};
        if (column < features) {
            const T* source = x + block * edges * pitch + column;
            const Segments arriving[1] = {ends[0]}, leaving[1] = {ends[1]};
            segment_totals(source, arriving, row - block * nodes, pitch, edges, threadIdx.y, 8, into);
            segment_totals(source, leaving, row - block * nodes, pitch, edges, threadIdx.y, 8, out_of);
        }
        const double total = rows_total(into[0] - out_of[0], sums);
        if (threadIdx.y == 0 && column < features) out[row * features + column] = narrow<T>(total);
    }
}

/// A sum over `count` members divided by their number; no members have the mean zero.
template <class T>
GW_DEVICE T mean_of(double total, u32 count) {
    return narrow<T>(static_cast<Compute<T>>(total) / static_cast<Compute<T>>(count > 0 ? count : 1));
}

/// out[o, n] = [h[o, n], the mean of x[o, e] over the edges e that arrive at n], rows of `width` of which `features` are those of h.
template <class T>
GW_DEVICE void join_mean(const T* h, const T* x, const Segments (&ends)[1], T* out, i64 elements, const Divisor& nodes,
                         const Divisor& width, i64 features, i64 edges) {
    const i64 pitch = width.size - features;
    for (i64 at = thread_index(); at < elements; at += thread_count()) {
        const i64 row = at / width, column = at - row * width.size;
        if (column < features) {
            out[at] = h[row * features + column];
            continue;
        }
        const i64 block = row / nodes, node = row - block * nodes.size;
        double total[1];
        segment_totals(x + block * edges * pitch + (column - features), ends, node, pitch, edges, 0, 1, total);
        out[at] = mean_of<T>(total[0], ends[0].count(node));
    }
}

/// The same for nodes of many edges, as inflow_long.
template <class T>
GW_DEVICE void join_mean_long(const T* h, const T* x, const Segments (&ends)[1], T* out, i64 outer, i64 nodes, i64 width,
                              i64 features, i64 edges) {
    __shared__ double sums[8][32];
    const i64 tiles = (width + 31) / 32, pitch = width - features;
    for (i64 unit = blockIdx.x; unit < outer * nodes * tiles; unit += gridDim.x) {
        const i64 row = unit / tiles, block = row / nodes, node = row - block * nodes;
        const i64 column = (unit - row * tiles) * 32 + threadIdx.x;
        double total[1] = {0};
        if (column >= features && column < width) {
            const T* source = x + block * edges * pitch + (column - features);
            segment_totals(source, ends, node, pitch, edges, threadIdx.y, 8, total);
        }
        const double all = rows_total(total[0], sums);
        if (threadIdx.y == 0 && column < width) {
            out[row * width + column] =
                column < features ? h[row * features + column] : mean_of<T>(all, ends[0].count(node));
        }
    }
}

/// out[o, p, f] = x[o, s, f] / (members of s) for the segment s of position p.
template <class T>
GW_DEVICE void spread(const T* x, const u32* segments, const u32* starts, T* out, i64 elements, const Divisor& count,
                      const Divisor& features, i64 bound, i64 pitch) {
    for (i64 at = thread_index(); at < elements; at += thread_count()) {
        const i64 row = at / features, block = row / count;
        const i64 segment = GW_INDEX(segments[row - block * count.size], bound);
        const u32 members = starts[segment + 1] - starts[segment];
        const Compute<T> value = widen(x[(block * bound + segment) * pitch + (at - row * features.size)]);
        out[at] = narrow<T>(value / static_cast<Compute<T>>(members));
    }
}

}  // namespace

#define GW_KERNELS(T, NAME)                                                                                             \
    extern "C" __global__ void __launch_bounds__(256) gw_edge_difference_##NAME(                                        \
        const T* h, const T* attributes, const u32* receivers, const u32* senders, T* out, i64 elements,                \
        GW_PARAMETER Divisor edges, GW_PARAMETER Divisor width, i64 nodes, i64 features) {                              \
        difference(h, attributes, receivers, senders, out, elements, edges, width, nodes, features);                    \
    }                                                                                                                   \
    extern "C" __global__ void __launch_bounds__(256) gw_net_inflow_##NAME(                                             \
        const T* x, const u32* in_starts, const u32* in_order, const u32* out_starts, const u32* out_order, T* out,     \
        i64 elements, GW_PARAMETER Divisor nodes, GW_PARAMETER Divisor features, i64 edges, i64 pitch) {                \
        const Segments ends[2] = {{in_starts, in_order}, {out_starts, out_order}};                                      \
        inflow(x, ends, out, elements, nodes, features, edges, pitch);                                                  \
    }                                                                                                                   \
    extern "C" __global__ void __launch_bounds__(256) gw_net_inflow_long_##NAME(                                        \
        const T* x, const u32* in_starts, const u32* in_order, const u32* out_starts, const u32* out_order, T* out,     \
        i64 outer, i64 nodes, i64 features, i64 edges, i64 pitch) {                                                     \
        const Segments ends[2] = {{in_starts, in_order}, {out_starts, out_order}};                                      \
        inflow_long(x, ends, out, outer, nodes, features, edges, pitch);                                                \
    }                                                                                                                   \
    extern "C" __global__ void __launch_bounds__(256) gw_concat_segment_mean_##NAME(                                    \
        const T* h, const T* x, const u32* starts, const u32* order, T* out, i64 elements, GW_PARAMETER Divisor nodes,  \
        GW_PARAMETER Divisor width, i64 features, i64 edges) {                                                          \
        const Segments ends[1] = {{starts, order}};                                                                     \
        join_mean(h, x, ends, out, elements, nodes, width, features, edges);                                            \
    }                                                                                                                   \
    extern "C" __global__ void __launch_bounds__(256) gw_concat_segment_mean_long_##NAME(                               \
        const T* h, const T* x, const u32* starts, const u32* order, T* out, i64 outer, i64 nodes, i64 width,           \
        i64 features, i64 edges) {                                                                                      \
        const Segments ends[1] = {{starts, order}};                                                                     \
        join_mean_long(h, x, ends, out, outer, nodes, width, features, edges);                                          \
    }                                                                                                                   \
    extern "C" __global__ void __launch_bounds__(256) gw_segment_spread_##NAME(                                         \
        const T* x, const u32* segments, const u32* starts, T* out, i64 elements, GW_PARAMETER Divisor count,           \
        GW_PARAMETER Divisor features, i64 bound, i64 pitch) {                                                          \
        spread(x, segments, starts, out, elements, count, features, bound, pitch);                                      \
    }
GW_FOR_DTYPES(GW_KERNELS)
