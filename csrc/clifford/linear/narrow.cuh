// The grade-wise linear map between at most 32 features on either side, and its gradients, in f32.
//
// Such maps are bound by memory, and tiles of a matrix product would be mostly padding. The rows of all blades lie one after the other and
// blades of a grade are adjacent, so a group of rows shares a matrix, and a tile of its rows is one stretch of memory, copied to shared
// memory whole. Two functions of features x [rows, in], g [rows, out] and the matrices w:
//
//     NarrowProduct  x·w (+ bias)               forward; the gradient of the input, with w transposed, also added to another one
//     NarrowSums     Σ over rows of xᵀ·g, of g  the gradients of the matrices and of the bias
#pragma once

#include "clifford/linear/narrow_launch.cuh"
#include "clifford/pointwise/square_sum.cuh"
#include "gradewise/strided.cuh"
#include "ptx/async.cuh"
#include "ptx/store.cuh"

/// A map and its arrays.
struct NarrowMap {
    const float* x;
    float* out;
    /// Element (group, i, j) is at group·in·out + i·in_step + j·out_step.
    const float* w;
    /// Null, or added to the first `biased` rows.
    const float* bias;
    i64 batch, biased;
    i32 in, out_features, in_step, out_step;
    /// Whether rows are a multiple of 16 bytes and aligned, of x and of `out`.
    i32 packs_in, packs_out;
    /// Whether results are added to what `out` holds.
    i32 adds;
    i32 groups;
    /// The first blade of each group, and the block of its first tile; then one past the last.
    i32 first[narrow_map::MOST_GROUPS + 1], tiles[narrow_map::MOST_GROUPS + 1];
};

/// Sums over rows. Blocks are stretches of rows by groups.
struct NarrowGradients {
    const float *x, *grad;
    /// [stretches, count]: the gradients of the matrices [groups, in, out], then those of the bias.
    float* sums;
    /// The first `biased` rows, which are of the first group, have a bias; 0 for none.
    i64 batch, biased, count, bias_at;
    i32 in, out_features;
    i32 packs_in, packs_out;
    /// Rows of a tile.
    i32 rows;
    i32 unused;
    i32 first[narrow_map::MOST_GROUPS + 1];
};

/// Which row a piece of a tile is in: quotients of numbers below narrow_map::MOST_ROWS·pieces, exact as pieces are at most 32 to a row.
struct RowOf {
    u32 pieces, factor;

    GW_DEVICE explicit RowOf(int pieces) : pieces(pieces), factor((1u << 19) / pieces + 1) {}
    GW_DEVICE int row(int piece) const { return static_cast<int>(piece * factor >> 19); }
    GW_DEVICE int column(int piece, int row) const { return piece - row * static_cast<int>(pieces); }
};

/// Starts copying adjacent rows to a tile, in packs of 16 bytes or single elements.
template <int THREADS>
GW_DEVICE void fetch_rows(float* tile, const float* source, int rows, int features, bool packs) {
    const int pitch = narrow_map::pitch(features);
    if (packs) {
        const RowOf place(features / 4);
        for (int piece = threadIdx.x; piece < rows * (features / 4); piece += THREADS) {
            const int row = place.row(piece);
            float* const target = tile + row * pitch + place.column(piece, row) * 4;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
            copy_async_16(target, source + piece * 4, 16);
#else
            *reinterpret_cast<Pack<float, 4>*>(target) = *reinterpret_cast<const Pack<float, 4>*>(source + piece * 4);
#endif
        }
    } else {
        const RowOf place(features);
#pragma unroll 4
        for (int piece = threadIdx.x; piece < rows * features; piece += THREADS) {
            const int row = place.row(piece);
            float* const target = tile + row * pitch + place.column(piece, row);
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
            copy_async_4(target, source + piece, 4);
#else
            *target = source[piece];
#endif
        }
    }
}

/// Closes the group of copies started since the last call.
GW_DEVICE void close_fetches() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    copy_async_commit();
#endif
}
/// Waits until at most N groups of this thread's copies are under way.
template <int N>
GW_DEVICE void await_fetches() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    copy_async_wait<N>();
#endif
}

/// Double precision where the target is fast at it, so that it costs no time beside memory.
template <bool FAST>
struct NarrowSum {
    using type = float;
};
template <>
struct NarrowSum<true> {
    using type = double;
};

/// x·w for up to C results to a row. SHORT sums, of at most 16 terms, are formed in double precision where that is fast. A thread has all
/// results of its rows.
template <bool SHORT, int C>
struct NarrowProduct {
    using Sum = typename NarrowSum<SHORT && FAST_DOUBLE>::type;
    /// Rows of a thread: as many as there are registers for, since each reads the whole matrix from shared memory.
    static constexpr int ROWS = narrow_map::rows_of_thread(SHORT, C), TILE = ROWS * narrow_map::PRODUCT_THREADS;
    static constexpr int WIDE = 16 / sizeof(Sum);
    static_assert(TILE <= narrow_map::MOST_ROWS && C % 4 == 0 && C <= narrow_map::MOST_FEATURES, "as launched");

    /// Writes a tile of results, or adds it to what is there.
    GW_DEVICE static void put_rows(const NarrowMap& map, float* target, const float* tile, int rows) {
        const int out = map.out_features, pitch = narrow_map::pitch(out);
        if (map.packs_out) {
            const RowOf place(out / 4);
#pragma unroll 2
            for (int piece = threadIdx.x; piece < rows * (out / 4); piece += narrow_map::PRODUCT_THREADS) {
                const int row = place.row(piece);
                float values[4];
                load<4>(tile + row * pitch + place.column(piece, row) * 4, values);
                if (map.adds) {
                    float there[4];
                    load<4>(target + piece * 4, there);
#pragma unroll
                    for (int k = 0; k < 4; ++k) values[k] += there[k];
                }
                u32 words[4];
#pragma unroll
                for (int k = 0; k < 4; ++k) words[k] = __float_as_uint(values[k]);
                store_words(target + piece * 4, words);
            }
        } else {
            const RowOf place(out);
#pragma unroll 4
            for (int piece = threadIdx.x; piece < rows * out; piece += narrow_map::PRODUCT_THREADS) {
                const int row = place.row(piece);
                const float value = tile[row * pitch + place.column(piece, row)];
                target[piece] = map.adds ? target[piece] + value : value;
            }
        }
    }

    GW_DEVICE static void run(const NarrowMap& map) {
        // A tile of x, in its place that of the results, then the matrix and the bias.
        extern __shared__ __align__(16) float tile[];
        int group = 0;
        while (static_cast<int>(blockIdx.x) >= map.tiles[group + 1]) ++group;
        const i64 begin = map.first[group] * map.batch + static_cast<i64>(blockIdx.x - map.tiles[group]) * TILE;
        const i64 left = map.first[group + 1] * map.batch - begin;
        const int rows = left < TILE ? static_cast<int>(left) : TILE;
        const int in = map.in, out = map.out_features, terms = (in + 3) / 4 * 4;
        const int pitch_in = narrow_map::pitch(in), pitch_out = narrow_map::pitch(out);
        fetch_rows<narrow_map::PRODUCT_THREADS>(tile, map.x + begin * in, rows, in, map.packs_in);
        close_fetches();

        // The matrix is [terms][C] with zeros beyond its rows and columns; x has zeros beside those rows, too, for what else is in the
        // memory might not be a number.
        Sum* const matrix = reinterpret_cast<Sum*>(tile + TILE * (pitch_in > pitch_out ? pitch_in : pitch_out));
        float* const bias = reinterpret_cast<float*>(matrix + terms * C);
        const float* const w = map.w + static_cast<i64>(group) * in * out;
        for (int at = threadIdx.x; at < terms * C; at += narrow_map::PRODUCT_THREADS) {
            const int i = at / C, j = at % C;
            matrix[at] = i < in && j < out ? w[i * map.in_step + j * map.out_step] : 0.0f;
        }
        if (threadIdx.x < C) bias[threadIdx.x] = map.bias && threadIdx.x < out ? map.bias[threadIdx.x] : 0.0f;
        for (int row = threadIdx.x; row < rows; row += narrow_map::PRODUCT_THREADS) {
            for (int i = in; i < terms; ++i) tile[row * pitch_in + i] = 0.0f;
        }
        await_fetches<0>();
        __syncthreads();

        // Rows past the last are computed from whatever is there and not written.
        Sum sums[ROWS][C] = {};
        const float* const own = tile + threadIdx.x * pitch_in;
#pragma unroll 1
        for (int i = 0; i < terms; i += 4) {
            float x[ROWS][4];
#pragma unroll
            for (int r = 0; r < ROWS; ++r) load<4>(own + r * narrow_map::PRODUCT_THREADS * pitch_in + i, x[r]);
#pragma unroll
            for (int k = 0; k < 4; ++k) {
#pragma unroll
                for (int c = 0; c < C; c += WIDE) {
                    const Pack<Sum, WIDE> entries = *reinterpret_cast<const Pack<Sum, WIDE>*>(matrix + (i + k) * C + c);
#pragma unroll
                    for (int v = 0; v < WIDE; ++v) {
#pragma unroll
                        for (int r = 0; r < ROWS; ++r) sums[r][c + v] += Sum(x[r][k]) * entries.at[v];
                    }
                }
            }
        }
        __syncthreads();
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            const int row = threadIdx.x + r * narrow_map::PRODUCT_THREADS;
            const bool is_biased = begin + row < map.biased;
#pragma unroll
            for (int c = 0; c < C; c += 4) {
                if (c >= out) break;
                float values[4];
#pragma unroll
                for (int k = 0; k < 4; ++k) {
                    // Rounded before the bias is added, as in products of matrices and on the CPU.
                    const float value = static_cast<float>(sums[r][c + k]);
                    values[k] = is_biased ? __fadd_rn(value, bias[c + k]) : value;
                }
                store<4>(tile + row * pitch_out + c, values);
            }
        }
        __syncthreads();
        put_rows(map, map.out + begin * out, tile, rows);
    }
};

/// The sums over rows. A thread has a patch of 4 by 4 entries of the matrix and takes every `slices`th row of a tile.
struct NarrowSums {
    static constexpr int THREADS = narrow_map::SUM_THREADS;
    /// Of slices, whose own sums are in f32.
    using Sum = typename NarrowSum<FAST_DOUBLE>::type;

    /// The sum of the slices' values, `step` apart; `share` adjacent threads form it, and all threads of a warp take part.
    GW_DEVICE static float over_slices(bool there, const float* first, int step, int slices, int share) {
        Sum total = 0, other = 0;
        if (there) {
            int slice = threadIdx.x % share;
#pragma unroll 2
            for (; slice + share < slices; slice += 2 * share) {
                total += first[slice * step];
                other += first[(slice + share) * step];
            }
            if (slice < slices) total += first[slice * step];
            total += other;
        }
        for (int offset = share / 2; offset > 0; offset /= 2) total += __shfl_xor_sync(0xffffffffu, total, offset);
        return static_cast<float>(total);
    }

    GW_DEVICE static void run(const NarrowGradients& map) {
        // Two pairs of tiles, one of which is copied while the other one is added up; in the end the sums of all threads.
        extern __shared__ __align__(16) float shared[];
        const int in = map.in, out = map.out_features, group = blockIdx.y;
        const i64 first = map.first[group] * map.batch, last = map.first[group + 1] * map.batch;
        const i64 length = (last - first + gridDim.x - 1) / gridDim.x, begin = first + blockIdx.x * length;
        const i64 end = begin + length < last ? begin + length : last;
        const int pitch_in = narrow_map::pitch(in), pitch_out = narrow_map::pitch(out), pair = map.rows * (pitch_in + pitch_out);

        const int across = (out + 3) / 4, patches = (in + 3) / 4 * across, slices = THREADS / patches;
        const int slice = threadIdx.x / patches, patch = threadIdx.x % patches;
        const int row_of_patch = patch / across * 4, column_of_patch = patch % across * 4;
        const bool has_bias = map.biased > 0 && group == 0;

        const auto rows_from = [&](i64 row) {
            const i64 left = end - row;
            return left <= 0 ? 0 : left < map.rows ? static_cast<int>(left) : map.rows;
        };
        const auto fetch = [&](float* tiles, i64 row) {
            const int rows = rows_from(row);
            if (rows > 0) {
                fetch_rows<THREADS>(tiles, map.x + row * in, rows, in, map.packs_in);
                fetch_rows<THREADS>(tiles + map.rows * pitch_in, map.grad + row * out, rows, out, map.packs_out);
            }
            close_fetches();
        };
        // Elements beyond a row's last are whatever is there; they reach only sums that nobody reads.
        float sums[4][4] = {}, of_bias[4] = {};
        float *here = shared, *next = shared + pair;
        fetch(here, begin);
        for (i64 base = begin; base < end; base += map.rows) {
            fetch(next, base + map.rows);
            await_fetches<1>();
            __syncthreads();
            const int rows = slice < slices ? rows_from(base) : 0;
            const i64 unbiased = map.biased - base;
            const float* x = here + slice * pitch_in + row_of_patch;
            const float* g = here + map.rows * pitch_in + slice * pitch_out + column_of_patch;
#pragma unroll 2
            for (int row = slice; row < rows; row += slices) {
                float left[4], right[4];
                load<4>(x, left);
                load<4>(g, right);
#pragma unroll
                for (int i = 0; i < 4; ++i) {
#pragma unroll
                    for (int j = 0; j < 4; ++j) sums[i][j] += left[i] * right[j];
                }
                if (has_bias && row < unbiased) {
#pragma unroll
                    for (int j = 0; j < 4; ++j) of_bias[j] += right[j];
                }
                x += slices * pitch_in;
                g += slices * pitch_out;
            }
            __syncthreads();
            float* const done = here;
            here = next;
            next = done;
        }
        await_fetches<0>();

        // [4][threads] packs.
#pragma unroll
        for (int i = 0; i < 4; ++i) store<4>(shared + (i * THREADS + threadIdx.x) * 4, sums[i]);
        __syncthreads();
        float* const target = map.sums + blockIdx.x * map.count;
        int share = 1;
        while (share < 32 && 2 * share * 16 * patches <= THREADS) share *= 2;
        for (int base = 0; base < 16 * patches; base += THREADS / share) {
            const int result = base + threadIdx.x / share, pack = result / 4;
            const int row = pack / patches, of = pack % patches;
            const int i = of / across * 4 + row, j = of % across * 4 + result % 4;
            const bool there = row < 4 && i < in && j < out;
            const float* const source = shared + (row * THREADS + of) * 4 + result % 4;
            const float total = over_slices(there, source, patches * 4, slices, share);
            if (there && threadIdx.x % share == 0) target[static_cast<i64>(group) * in * out + i * out + j] = total;
        }
        if (!has_bias) return;
        __syncthreads();
        store<4>(shared + threadIdx.x * 4, of_bias);
        __syncthreads();
        // The patches of the first rows of the matrix have all columns; 8 threads to each of 32.
        const int j = threadIdx.x / 8;
        const float total = over_slices(j < out, shared + j, patches * 4, slices, 8);
        if (j < out && threadIdx.x % 8 == 0) target[map.bias_at + j] = total;
    }
};
