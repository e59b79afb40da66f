// Messages on graphs: differences along edges, beside the edges' own attributes. Features of nodes are [outer, nodes, features], those of
// edges [outer, edges, features]; blocks of the outer axis, such as the blades of multivectors, are `spacing` elements apart.
//
// Lanes that copy attributes store together with those that subtract: two stores into one 32-byte sector cost as much as two sectors.
#include "gradewise/debug.cuh"
#include "gradewise/depth.cuh"

namespace {

/// Where N adjacent elements of a row of differences and attributes come from: to − from, or `attributes` attributes. Those are of A, and
/// `to` and `spacing` are in units of T for them, too.
template <int N, class T, class A>
struct Origin {
    const T* to;
    const T* from;
    i64 spacing;
    u32 attributes;
    bool of_nodes;

    GW_DEVICE Compute<T> attribute(int n) const { return widen(reinterpret_cast<const A*>(to)[n]); }

    /// The elements of the next U blocks, zeros beyond the attributes.
    template <int U>
    GW_DEVICE void next(Compute<T> (&values)[U][N]) {
        // Nothing is subtracted from attributes: x − 0 is x. Their lanes wait with the others, for both kinds of loads.
        Compute<T> subtracted[U][N];
        if constexpr (N == 1) {
#pragma unroll
            for (int u = 0; u < U; ++u, to += spacing, from += spacing) {
                values[u][0] = subtracted[u][0] = 0;
                if constexpr (sizeof(A) == sizeof(T)) {
                    if (of_nodes || attributes > 0) values[u][0] = widen(*to);
                } else if (of_nodes) {
                    values[u][0] = widen(*to);
                } else if (attributes > 0) {
                    values[u][0] = attribute(0);
                }
                if (of_nodes) subtracted[u][0] = widen(*from);
            }
        } else if (of_nodes) {
#pragma unroll
            for (int u = 0; u < U; ++u, to += spacing, from += spacing) {
                load(to, values[u]);
                load(from, subtracted[u]);
            }
        } else {
#pragma unroll
            for (int u = 0; u < U; ++u, to += spacing) {
#pragma unroll
                for (int n = 0; n < N; ++n) {
                    values[u][n] = subtracted[u][n] = 0;
                    if (n < attributes) values[u][n] = attribute(n);
                }
            }
        }
#pragma unroll
        for (int u = 0; u < U; ++u) {
#pragma unroll
            for (int n = 0; n < N; ++n) values[u][n] -= subtracted[u][n];
        }
    }
};

/// Arguments of the kernels of differences: `features` features of nodes and `own` attributes of edges.
template <class T, class A>
struct Graph {
    const T* h;
    const A* attributes;
    const u32* receivers;
    const u32* senders;
    i64 nodes;
    u32 features;
    u32 own;
    i64 h_spacing;
    i64 own_spacing;

    /// The origin of columns `column` and on of an edge, from block `first` on.
    template <int N>
    GW_DEVICE Origin<N, T, A> origin(u32 edge, u32 column, u32 first) const {
        if (column < features) {
            const T* source = h + first * h_spacing + column;
            return {source + GW_INDEX(receivers[edge], nodes) * static_cast<u64>(features),
                    source + GW_INDEX(senders[edge], nodes) * static_cast<u64>(features), h_spacing, 0, true};
        }
        const u32 attribute = column - features;
        const A* source = attributes + first * own_spacing + edge * static_cast<u64>(own) + attribute;
        constexpr i64 SIZE = sizeof(A) / sizeof(T);
        return {reinterpret_cast<const T*>(source), nullptr, own_spacing * SIZE, attribute < own ? own - attribute : 0, false};
    }
};

/// out[o, e] = [h[o, receivers[e]] − h[o, senders[e]], attributes[o, e]]. A row of out has `packs` packs; zeros fill it up.
template <int N, class T, class A>
GW_DEVICE void difference(const Graph<T, A>& graph, T* out, i64 units, const Divisor& edges, const Divisor& packs, u32 outer,
                          u32 depth, i64 spacing) {
#pragma unroll 1
    for (i64 at = thread_index(); at < units; at += thread_count()) {
        const Work work = work_of<N>(at, edges, packs, outer, depth);
        T* target = out + work.first * spacing + work.row * (packs.size * N) + work.column;
        Origin<N, T, A> origin = graph.template origin<N>(work.row, work.column, work.first);
        in_steps<4>(work.blocks, [&](auto count) {
            constexpr int U = decltype(count)::value;
            Compute<T> values[U][N];
            origin.next(values);
#pragma unroll
            for (int u = 0; u < U; ++u, target += spacing) store(target, values[u]);
        });
    }
}

/// The same for rows of `pitch` elements that begin anywhere: a block of 256 threads takes `rows` adjacent edges, a thread COLUMNS columns
/// of one of them; the results meet in shared memory, so that 16-byte accesses write whole lines. There are `tiles` times `rows` edges
/// in a block of the outer axis, the last ones missing; `rows` edges begin at multiples of 16 bytes and have at most STAGED elements.
template <class T, class A>
GW_DEVICE void difference_rows(const Graph<T, A>& graph, T* out, i64 units, const Divisor& tiles, const Divisor& packs, u32 outer,
                               u32 depth, u32 rows, u32 edges, u32 pitch, i64 spacing) {
    constexpr u32 N = edges::COLUMNS, V = 16 / sizeof(T), STEP = 2;
    __shared__ __align__(16) T staged[STEP][edges::STAGED];
    const u32 row = static_cast<u32>(static_cast<i64>(threadIdx.x) / packs);
    const u32 column = (threadIdx.x - row * static_cast<u32>(packs.size)) * N, cell = row * pitch + column;
#pragma unroll 1
    for (i64 at = blockIdx.x; at < units; at += gridDim.x) {
        const i64 group = at / tiles;
        const u32 top = static_cast<u32>(at - group * tiles.size) * rows;
        u32 first, blocks;
        group_of(static_cast<u32>(group), outer, depth, first, blocks);
        const u32 present = edges - top < rows ? edges - top : rows, filled = present * pitch;
        const bool active = row < present;
        Origin<N, T, A> origin = {};
        if (active) origin = graph.template origin<N>(top + row, column, first);
        T* target = out + first * spacing + top * static_cast<u64>(pitch);
        in_steps<STEP>(blocks, [&](auto count) {
            constexpr int U = decltype(count)::value;
            if (active) {
                Compute<T> values[U][N];
                origin.next(values);
#pragma unroll
                for (int u = 0; u < U; ++u) {
#pragma unroll
                    for (int n = 0; n < N; ++n) {
                        if (column + n < pitch) staged[u][cell + n] = narrow<T>(values[u][n]);
                    }
                }
            }
            __syncthreads();
#pragma unroll
            for (int u = 0; u < U; ++u, target += spacing) {
                for (u32 i = threadIdx.x * V; i < filled; i += 256 * V) {
                    if (i + V <= filled) {
                        *reinterpret_cast<Pack<T, V>*>(target + i) = *reinterpret_cast<const Pack<T, V>*>(staged[u] + i);
                    } else {
                        for (u32 k = i; k < filled; ++k) target[k] = staged[u][k];
                    }
                }
            }
            __syncthreads();  // The next blocks' results take the place of these.
        });
    }
}

}  // namespace

// Parameters of the kernels of differences, and their structure.
#define GW_GRAPH(T, A)                                                                                                  \
    const T *h, const A *attributes, const u32 *receivers, const u32 *senders, i64 nodes, i64 features, i64 own,        \
        i64 h_spacing, i64 own_spacing
#define GW_GRAPH_OF(T, A)                                                                                               \
    Graph<T, A> { h, attributes, receivers, senders, nodes, static_cast<u32>(features), static_cast<u32>(own), h_spacing, \
                  own_spacing }

// Of N adjacent elements per thread; addresses, features and pitch must be multiples of as many.
#define GW_PACKED(T, A, NAME, N, WIDE)                                                                                   \
    extern "C" __global__ void __launch_bounds__(256, EDGE_BLOCKS) gw_edge_difference##WIDE##_##NAME(                    \
        GW_GRAPH(T, A), T* out, i64 units, GW_PARAMETER Divisor edges, GW_PARAMETER Divisor packs, i64 outer, i64 depth, \
        i64 spacing) {                                                                                                   \
        begin_kernel();                                                                                                  \
        difference<N, T, A>(GW_GRAPH_OF(T, A), out, units, edges, packs, outer, depth, spacing);                         \
    }

#define GW_KERNELS_BESIDE(T, A, NAME, BESIDE)                                                                          \
    GW_PACKED(T, A, NAME, 1, BESIDE)                                                                                   \
    GW_PACKED(T, A, NAME, WIDE_ELEMENTS<T>, _wide##BESIDE)                                                             \
    extern "C" __global__ void __launch_bounds__(256, sizeof(T) == 8 ? 4 : ROW_BLOCKS)                                 \
        gw_edge_difference_rows##BESIDE##_##NAME(                                                                      \
            GW_GRAPH(T, A), T* out, i64 units, GW_PARAMETER Divisor tiles, GW_PARAMETER Divisor packs, i64 outer,      \
            i64 depth, i64 rows, i64 edges, i64 pitch, i64 spacing) {                                                  \
        begin_kernel();                                                                                                \
        difference_rows<T, A>(GW_GRAPH_OF(T, A), out, units, tiles, packs, outer, depth, rows, edges, pitch, spacing); \
    }
#define GW_KERNELS(T, NAME) GW_KERNELS_BESIDE(T, T, NAME, )
GW_FOR_DTYPES(GW_KERNELS)
// In mixed precision: features of 16 bits, beside attributes as they are given.
GW_KERNELS_BESIDE(bf16, float, bf16, _with_f32)
GW_KERNELS_BESIDE(f16, float, f16, _with_f32)
