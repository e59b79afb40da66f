// Messages on graphs: differences along edges, means over the incoming edges of a node, and the transposes of both. Features of
// nodes are [outer, nodes, features], those of edges [outer, edges, features]. Gradients may be columns of wider rows, `pitch`
// elements apart. Kernels named wide take four adjacent elements per thread and require that the addresses they read are multiples
// of four elements.
#include "gradewise/segments.cuh"
#include "gradewise/strided.cuh"

namespace {

/// out[o, e] = [h[o, receivers[e]] − h[o, senders[e]], attributes[o, e]]: `features` differences and `own` attributes; rows of out are
/// `pitch` elements apart. A thread takes N adjacent elements; a row has `packs` of them, differences and attributes apart.
template <int N, class T>
GW_DEVICE void difference(const T* h, const T* attributes, const u32* receivers, const u32* senders, T* out, i64 units,
                          const Divisor& edges, const Divisor& packs, i64 nodes, i64 features, i64 own, i64 pitch) {
    for (i64 at = thread_index(); at < units; at += thread_count()) {
        const i64 row = at / packs, column = (at - row * packs.size) * N;
        T* target = out + row * pitch + column;
        if (column >= features) {
#pragma unroll
            for (int n = 0; n < N; ++n) {
                const i64 attribute = column - features + n;
                if (attribute < own) target[n] = attributes[row * own + attribute];
            }
            continue;
        }
        const i64 block = row / edges, edge = row - block * edges.size;
        const T* source = h + block * nodes * features + column;
        const i64 receiver = GW_INDEX(receivers[edge], nodes), sender = GW_INDEX(senders[edge], nodes);
        Compute<T> to[N], from[N];
        load(source + receiver * features, to);
        load(source + sender * features, from);
        Compute<T> difference[N];
#pragma unroll
        for (int n = 0; n < N; ++n) difference[n] = to[n] - from[n];
        if (pitch % N == 0) {
            store(target, difference);
            continue;
        }
#pragma unroll
        for (int n = 0; n < N; ++n) target[n] = narrow<T>(difference[n]);
    }
}

/// out[o, n, f] = Σ x[o, e, f] over the incoming edges of n − the same over its outgoing edges.
template <class T>
GW_DEVICE void inflow(const T* x, const Segments (&ends)[2], T* out, i64 elements, const Divisor& nodes,
                      const Divisor& features, i64 edges, i64 pitch) {
    for (i64 at = thread_index(); at < elements; at += thread_count()) {
        const i64 row = at / features, block = row / nodes, node = row - block * nodes.size;
        double totals[2][1];
        segment_totals(x + block * edges * pitch + (at - row * features.size), ends, node, pitch, edges, 0, 1, totals);
        out[at] = narrow<T>(totals[0][0] - totals[1][0]);
    }
}

/// The same for nodes of many edges: a block of 32 by 8 threads computes 32 adjacent results, 8 edges at a time.
template <class T>
GW_DEVICE void inflow_long(const T* x, const Segments (&ends)[2], T* out, i64 outer, i64 nodes, i64 features, i64 edges,
                           i64 pitch) {
    __shared__ double sums[8][32];
    const i64 tiles = (features + 31) / 32;
    for (i64 unit = blockIdx.x; unit < outer * nodes * tiles; unit += gridDim.x) {
        const i64 row = unit / tiles, block = row / nodes;
        const i64 column = (unit - row * tiles) * 32 + threadIdx.x;
        double into[1][1] = {}, out_of[1][1] = {};
        if (column < features) {
            const T* source = x + block * edges * pitch + column;
            const Segments arriving[1] = {ends[0]}, leaving[1] = {ends[1]};
            segment_totals(source, arriving, row - block * nodes, pitch, edges, threadIdx.y, 8, into);
            segment_totals(source, leaving, row - block * nodes, pitch, edges, threadIdx.y, 8, out_of);
        }
        const double total = rows_total(into[0][0] - out_of[0][0], sums);
        if (threadIdx.y == 0 && column < features) out[row * features + column] = narrow<T>(total);
    }
}

/// A sum over `count` members divided by their number; 0 if there are none.
template <class T>
GW_DEVICE Compute<T> mean_of(double total, u32 count) {
    return static_cast<Compute<T>>(total) / static_cast<Compute<T>>(count > 0 ? count : 1);
}

/// out[o, n] = [h[o, n], the mean of x[o, e] over the incoming edges e of n], rows of which `features` are those of h. A thread
/// takes N adjacent elements; a row has `packs` of them.
template <int N, class T>
GW_DEVICE void join_mean(const T* h, const T* x, const Segments (&ends)[1], T* out, i64 units, const Divisor& nodes,
                         const Divisor& packs, i64 features, i64 edges) {
    const i64 pitch = packs.size * N - features;
    for (i64 at = thread_index(); at < units; at += thread_count()) {
        const i64 row = at / packs, column = (at - row * packs.size) * N;
        Compute<T> values[N];
        if (column < features) {
            load(h + row * features + column, values);
        } else {
            const i64 block = row / nodes, node = row - block * nodes.size;
            double total[1][N];
            segment_totals(x + block * edges * pitch + (column - features), ends, node, pitch, edges, 0, 1, total);
#pragma unroll
            for (int n = 0; n < N; ++n) values[n] = mean_of<T>(total[0][n], ends[0].count(node));
        }
        store(out + at * N, values);
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
        double total[1][1] = {};
        if (column >= features && column < width) {
            const T* source = x + block * edges * pitch + (column - features);
            segment_totals(source, ends, node, pitch, edges, threadIdx.y, 8, total);
        }
        const double all = rows_total(total[0][0], sums);
        if (threadIdx.y == 0 && column < width) {
            out[row * width + column] = column < features ? h[row * features + column]
                                                          : narrow<T>(mean_of<T>(all, ends[0].count(node)));
        }
    }
}

/// out[o, p, f] = x[o, s, f] / (members of s) for the segment s of position p. A thread takes N adjacent elements; a row has
/// `packs` of them.
template <int N, class T>
GW_DEVICE void spread(const T* x, const u32* segments, const u32* starts, T* out, i64 units, const Divisor& count,
                      const Divisor& packs, i64 bound, i64 pitch) {
    for (i64 at = thread_index(); at < units; at += thread_count()) {
        const i64 row = at / packs, block = row / count;
        const i64 segment = GW_INDEX(segments[row - block * count.size], bound);
        const Compute<T> members = static_cast<Compute<T>>(starts[segment + 1] - starts[segment]);
        Compute<T> values[N];
        load(x + (block * bound + segment) * pitch + (at - row * packs.size) * N, values);
#pragma unroll
        for (int n = 0; n < N; ++n) values[n] /= members;
        store(out + at * N, values);
    }
}

}  // namespace

// At least four blocks per multiprocessor: left to itself, the compiler plans for eight and spills.
#define GW_PACKED(T, NAME, N, WIDE)                                                                                     \
    extern "C" __global__ void __launch_bounds__(256, 4) gw_edge_difference##WIDE##_##NAME(                             \
        const T* h, const T* attributes, const u32* receivers, const u32* senders, T* out, i64 units,                   \
        GW_PARAMETER Divisor edges, GW_PARAMETER Divisor packs, i64 nodes, i64 features, i64 own, i64 pitch) {          \
        begin_kernel();                                                                                                 \
        difference<N>(h, attributes, receivers, senders, out, units, edges, packs, nodes, features, own, pitch);        \
    }                                                                                                                   \
    extern "C" __global__ void __launch_bounds__(256, 4) gw_concat_segment_mean##WIDE##_##NAME(                         \
        const T* h, const T* x, const u32* starts, const u32* order, T* out, i64 units, GW_PARAMETER Divisor nodes,     \
        GW_PARAMETER Divisor packs, i64 features, i64 edges) {                                                          \
        begin_kernel();                                                                                                 \
        const Segments ends[1] = {{starts, order}};                                                                     \
        join_mean<N>(h, x, ends, out, units, nodes, packs, features, edges);                                            \
    }                                                                                                                   \
    extern "C" __global__ void __launch_bounds__(256, 4) gw_segment_spread##WIDE##_##NAME(                              \
        const T* x, const u32* segments, const u32* starts, T* out, i64 units, GW_PARAMETER Divisor count,              \
        GW_PARAMETER Divisor packs, i64 bound, i64 pitch) {                                                             \
        begin_kernel();                                                                                                 \
        spread<N>(x, segments, starts, out, units, count, packs, bound, pitch);                                         \
    }

#define GW_KERNELS(T, NAME)                                                                                             \
    GW_PACKED(T, NAME, 1, )                                                                                             \
    GW_PACKED(T, NAME, 4, _wide)                                                                                        \
    extern "C" __global__ void __launch_bounds__(256) gw_net_inflow_##NAME(                                             \
        const T* x, const u32* in_starts, const u32* in_order, const u32* out_starts, const u32* out_order, T* out,     \
        i64 elements, GW_PARAMETER Divisor nodes, GW_PARAMETER Divisor features, i64 edges, i64 pitch) {                \
        begin_kernel();                                                                                                 \
        const Segments ends[2] = {{in_starts, in_order}, {out_starts, out_order}};                                      \
        inflow(x, ends, out, elements, nodes, features, edges, pitch);                                                  \
    }                                                                                                                   \
    extern "C" __global__ void __launch_bounds__(256) gw_net_inflow_long_##NAME(                                        \
        const T* x, const u32* in_starts, const u32* in_order, const u32* out_starts, const u32* out_order, T* out,     \
        i64 outer, i64 nodes, i64 features, i64 edges, i64 pitch) {                                                     \
        begin_kernel();                                                                                                 \
        const Segments ends[2] = {{in_starts, in_order}, {out_starts, out_order}};                                      \
        inflow_long(x, ends, out, outer, nodes, features, edges, pitch);                                                \
    }                                                                                                                   \
    extern "C" __global__ void __launch_bounds__(256) gw_concat_segment_mean_long_##NAME(                               \
        const T* h, const T* x, const u32* starts, const u32* order, T* out, i64 outer, i64 nodes, i64 width,           \
        i64 features, i64 edges) {                                                                                      \
        begin_kernel();                                                                                                 \
        const Segments ends[1] = {{starts, order}};                                                                     \
        join_mean_long(h, x, ends, out, outer, nodes, width, features, edges);                                          \
    }
GW_FOR_DTYPES(GW_KERNELS)
