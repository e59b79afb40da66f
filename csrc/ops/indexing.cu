// Selection along an axis by index, and its transpose, summation by segment. Arrays are [outer, axis, inner].
#include "gradewise/segments.cuh"
#include "gradewise/strided.cuh"

namespace {

struct alignas(16) u128 {
    u64 half[2];
};

/// out[o, p, i] = x[o, index[p], i], in words of 2 to 16 bytes. `count` indices below `bound`.
template <class Word>
GW_DEVICE void select(const Word* x, const u32* index, Word* out, i64 words, const Divisor& count, const Divisor& inner,
                      i64 bound) {
    for (i64 at = thread_index(); at < words; at += thread_count()) {
        const i64 row = at / inner, block = row / count;
        const i64 entry = block * bound + GW_INDEX(index[row - block * count.size], bound);
        out[at] = x[entry * inner.size + (at - row * inner.size)];
    }
}

/// out[o, s, i] = Σ x[o, p, i] over the positions p of segment s, in their order.
template <class T>
GW_DEVICE void sum(const T* x, const Segments& list, T* out, i64 elements, const Divisor& segments,
                   const Divisor& inner, i64 count) {
    for (i64 at = thread_index(); at < elements; at += thread_count()) {
        const i64 row = at / inner, block = row / segments;
        const T* source = x + block * count * inner.size + (at - row * inner.size);
        const Members members[1] = {list.members(row - block * segments.size)};
        double total[1][1][1];
        segment_totals(source, 0, members, inner.size, count, 0, 1, total);
        out[at] = narrow<T>(total[0][0][0]);
    }
}

/// The same for long segments: a block of 32 by 8 threads computes 32 adjacent results, 8 members at a time.
template <class T>
GW_DEVICE void sum_long(const T* x, const Segments& list, T* out, i64 outer, i64 segments, i64 inner, i64 count) {
    __shared__ double sums[8][32];
    const i64 tiles = (inner + 31) / 32;
    for (i64 unit = blockIdx.x; unit < outer * segments * tiles; unit += gridDim.x) {
        const i64 row = unit / tiles, block = row / segments;
        const i64 column = (unit - row * tiles) * 32 + threadIdx.x;
        double total[1][1][1] = {};
        if (column < inner) {
            const Members members[1] = {list.members(row - block * segments)};
            segment_totals(x + block * count * inner + column, 0, members, inner, count, threadIdx.y, 8, total);
        }
        const double all = rows_total(total[0][0][0], sums);
        if (threadIdx.y == 0 && column < inner) out[row * inner + column] = narrow<T>(all);
    }
}

}  // namespace

#define GW_SELECT(Word, NAME)                                                                                  \
    extern "C" __global__ void __launch_bounds__(256) gw_index_select_##NAME(                                  \
        const Word* x, const u32* index, Word* out, i64 words, GW_PARAMETER Divisor count,                     \
        GW_PARAMETER Divisor inner, i64 bound) {                                                               \
        begin_kernel();                                                                                        \
        select(x, index, out, words, count, inner, bound);                                                     \
    }
GW_SELECT(u16, w2)
GW_SELECT(u32, w4)
GW_SELECT(u64, w8)
GW_SELECT(u128, w16)

#define GW_KERNELS(T, NAME)                                                                                    \
    extern "C" __global__ void __launch_bounds__(256) gw_segment_sum_##NAME(                                   \
        const T* x, const u32* starts, const u32* order, T* out, i64 elements, GW_PARAMETER Divisor segments,  \
        GW_PARAMETER Divisor inner, i64 count) {                                                               \
        begin_kernel();                                                                                        \
        const Segments list{starts, order};                                                                    \
        sum(x, list, out, elements, segments, inner, count);                                                   \
    }                                                                                                          \
    extern "C" __global__ void __launch_bounds__(256) gw_segment_sum_long_##NAME(                              \
        const T* x, const u32* starts, const u32* order, T* out, i64 outer, i64 segments, i64 inner,           \
        i64 count) {                                                                                           \
        begin_kernel();                                                                                        \
        const Segments list{starts, order};                                                                    \
        sum_long(x, list, out, outer, segments, inner, count);                                                 \
    }
GW_FOR_DTYPES(GW_KERNELS)
