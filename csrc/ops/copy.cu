// Copies from one strided view to another. Elements are words of 2 to 16 bytes of any meaning: the host joins adjacent elements to
// the longest words that fit both views.
#include "gradewise/strided.cuh"
#include "ops/copy_launch.cuh"

namespace {

struct alignas(16) u128 {
    u64 half[2];
};

constexpr int UNROLL = 4;

template <class Word>
GW_DEVICE void copy(const View<Word>& out, const View<const Word>& in, const Axes& axes, i64 words) {
    const Strides* const strides[2] = {&out.strides, &in.strides};
    for (i64 first = thread_index(); first < words; first += UNROLL * thread_count()) {
        Word word[UNROLL];
        i64 offset[UNROLL][2];
#pragma unroll
        for (int k = 0; k < UNROLL; ++k) {
            const i64 position = first + k * thread_count();
            if (position >= words) break;
            locate(axes, strides, position, offset[k]);
            word[k] = in.data[offset[k][1]];
        }
#pragma unroll
        for (int k = 0; k < UNROLL; ++k) {
            if (first + k * thread_count() < words) out.data[offset[k][0]] = word[k];
        }
    }
}

/// One part of a joined array: `count` words of each row of a view, in the columns from `start` on.
template <class Word>
struct Part {
    View<const Word> in;
    Axes axes;
    i64 start, count;
};

template <class Word>
struct Parts {
    Part<Word> at[copies::MOST_JOINED];
};

/// Joins parts along columns; columns of no part become zeros. Parts are few enough to compare each with every position in turn.
template <class Word>
GW_DEVICE void join_many(Word* out, i64 words, const Divisor& row, const Parts<Word>& parts, int count) {
    for (i64 position = thread_index(); position < words; position += thread_count()) {
        const i64 at = position / row, column = position - at * row.size;
        Word word = {};
#pragma unroll 1
        for (int n = 0; n < count; ++n) {
            const Part<Word>& part = parts.at[n];
            const i64 own = column - part.start;
            if (own >= 0 && own < part.count) {
                word = part.in.data[locate(part.axes, part.in.strides, at * part.count + own)];
                break;
            }
        }
        out[position] = word;
    }
}

/// Joins parts along columns; columns of no part become zeros.
template <int N, class Word>
GW_DEVICE void join(Word* out, i64 words, const Divisor& row, const Part<Word>* const (&parts)[N], int count) {
    for (i64 first = thread_index(); first < words; first += UNROLL * thread_count()) {
        Word word[UNROLL] = {};
#pragma unroll
        for (int k = 0; k < UNROLL; ++k) {
            const i64 position = first + k * thread_count();
            if (position >= words) break;
            const i64 at = position / row, column = position - at * row.size;
#pragma unroll
            for (int n = 0; n < N; ++n) {
                if (n >= count) break;
                const Part<Word>& part = *parts[n];
                const i64 own = column - part.start;
                if (own >= 0 && own < part.count) {
                    word[k] = part.in.data[locate(part.axes, part.in.strides, at * part.count + own)];
                }
            }
        }
#pragma unroll
        for (int k = 0; k < UNROLL; ++k) {
            if (first + k * thread_count() < words) out[first + k * thread_count()] = word[k];
        }
    }
}

constexpr int TILE = 32;

/// Transposes matrices: element (row, column) is at row + column·in_step in the source and at row·out_step + column in the target.
/// Tiles pass through shared memory, so that accesses to both sides are coalesced.
template <class Word>
GW_DEVICE void transpose(
    const View<Word>& out, const View<const Word>& in, const Axes& axes, i64 matrices, i64 rows, i64 columns,
    i64 out_step, i64 in_step) {
    __shared__ Word tile[TILE][TILE + 1];
    const Strides* const strides[2] = {&out.strides, &in.strides};
    const i64 across = (columns + TILE - 1) / TILE, down = (rows + TILE - 1) / TILE;
    for (i64 unit = blockIdx.x; unit < matrices * across * down; unit += gridDim.x) {
        const i64 matrix = unit / (across * down), part = unit % (across * down);
        const i64 row = part / across * TILE, column = part % across * TILE;
        i64 offset[2];
        locate(axes, strides, matrix, offset);
        const Word* source = in.data + offset[1];
        Word* target = out.data + offset[0];
        for (int c = threadIdx.y; c < TILE; c += blockDim.y) {
            if (column + c < columns && row + threadIdx.x < rows) {
                tile[c][threadIdx.x] = source[row + threadIdx.x + (column + c) * in_step];
            }
        }
        __syncthreads();
        for (int r = threadIdx.y; r < TILE; r += blockDim.y) {
            if (row + r < rows && column + threadIdx.x < columns) {
                target[(row + r) * out_step + column + threadIdx.x] = tile[threadIdx.x][r];
            }
        }
        __syncthreads();
    }
}

}  // namespace

#define GW_COPY(Word, NAME)                                                                   \
    extern "C" __global__ void __launch_bounds__(256) gw_copy_##NAME(                         \
        GW_PARAMETER View<Word> out, GW_PARAMETER View<const Word> in, GW_PARAMETER Axes axes, i64 words) { \
        begin_kernel();                                                                                     \
        copy(out, in, axes, words);                                                           \
    }
#define GW_TRANSPOSE(Word, NAME)                                                              \
    extern "C" __global__ void __launch_bounds__(256) gw_transpose_##NAME(                    \
        GW_PARAMETER View<Word> out, GW_PARAMETER View<const Word> in, GW_PARAMETER Axes axes, i64 matrices, \
        i64 rows, i64 columns, i64 out_step, i64 in_step) {                                   \
        begin_kernel();                                                                       \
        transpose(out, in, axes, matrices, rows, columns, out_step, in_step);                 \
    }
#define GW_JOIN(Word, NAME)                                                                   \
    extern "C" __global__ void __launch_bounds__(256) gw_join_##NAME(                         \
        Word* out, i64 words, GW_PARAMETER Divisor row, GW_PARAMETER Part<Word> a,            \
        GW_PARAMETER Part<Word> b, GW_PARAMETER Part<Word> c, GW_PARAMETER Part<Word> d, i32 count) { \
        begin_kernel();                                                                               \
        const Part<Word>* const parts[4] = {&a, &b, &c, &d};                                  \
        join(out, words, row, parts, count);                                                  \
    }
#define GW_JOIN_MANY(Word, NAME)                                                              \
    extern "C" __global__ void __launch_bounds__(256) gw_join_many_##NAME(                    \
        Word* out, i64 words, GW_PARAMETER Divisor row, GW_PARAMETER Parts<Word> parts, i32 count) { \
        begin_kernel();                                                                       \
        join_many(out, words, row, parts, count);                                             \
    }
GW_COPY(u16, w2)
GW_COPY(u32, w4)
GW_COPY(u64, w8)
GW_COPY(u128, w16)
GW_JOIN(u16, w2)
GW_JOIN(u32, w4)
GW_JOIN(u64, w8)
GW_JOIN(u128, w16)
GW_JOIN_MANY(u16, w2)
GW_JOIN_MANY(u32, w4)
GW_JOIN_MANY(u64, w8)
GW_JOIN_MANY(u128, w16)
GW_TRANSPOSE(u16, w2)
GW_TRANSPOSE(u32, w4)
GW_TRANSPOSE(u64, w8)
