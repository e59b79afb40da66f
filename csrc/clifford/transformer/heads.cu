// Between feature planes and the heads of an attention (split_heads, merge_heads), with a norm of each head on the way, and its gradient.
//
// Planes are [scalars + planes·channels, rows], heads [groups, batch, heads, items, width] with rows = batch·items and width =
// planes·channels + scalars: the elements of plane 0, plane 1, …, then the scalars. A block carries a tile of consecutive rows of one
// group and head through shared memory, so that either side is read and written along its last axis.
//
// Dynamic shared memory: see `Block`.
#include "clifford/transformer/heads.cuh"

namespace {

using heads::SUMS, heads::THREADS;
/// Loads from memory that a thread has under way.
constexpr int DEPTH = 4;
extern __shared__ __align__(16) unsigned char memory[];

/// What a block keeps in shared memory, with `count` tiles: as heads::shared counts it.
template <class T>
struct Block {
    using C = Compute<T>;
    int width, pitch, tile;
    /// Where each row of the tile begins in the heads.
    i64* place;
    C* tiles;
    /// A part of each sum for each thread.
    C* parts;
    /// Of each row: the factor of its multivectors, the mean of its scalars, the factor of their deviations.
    C *scale, *mean, *inverse;
    /// The line of each element of a head in the planes, and its factor: 0 stands for 1, 1 for -1, 2 for 0.
    u32* lines;
    static constexpr u32 LINE = (1u << 30) - 1;

    GW_DEVICE Block(const Heads& sizes, int count)
        : width(sizes.width()), pitch(heads::pitch(sizes.width())), tile(static_cast<int>(sizes.tile)), place(reinterpret_cast<i64*>(memory)),
          tiles(reinterpret_cast<C*>(place + tile)), parts(tiles + count * tile * pitch), scale(parts + SUMS * THREADS), mean(scale + tile),
          inverse(mean + tile), lines(reinterpret_cast<u32*>(inverse + tile)) {}

    GW_DEVICE C* row(int number, int at) const { return tiles + (number * tile + at) * pitch; }

    GW_DEVICE static C factor(u32 line) {
        const u32 code = line >> 30;
        return code == 0 ? C(1) : code == 1 ? C(-1) : C(0);
    }

    /// The lines of a head. `form` is read for the group that it is a factor of.
    GW_DEVICE void find_lines(const Heads& sizes, const u32* form, i64 g, i64 h) const {
        const int channels = static_cast<int>(sizes.channels), multivectors = sizes.multivectors();
        const i64 plane = sizes.groups * sizes.channels * sizes.heads, scalars = sizes.groups * sizes.scalars * sizes.heads;
        for (int e = static_cast<int>(threadIdx.x); e < width; e += THREADS) {
            u32 line;
            if (e < multivectors) {
                const int p = e / channels;
                line = static_cast<u32>(scalars + p * plane + sizes.multivector.of(g, e - p * channels, h));
                if (g == sizes.query) {
                    const i32 factor = HeadForm(form, sizes).factors[p];
                    line |= (factor == 0 ? 2u : factor < 0 ? 1u : 0u) << 30;
                }
            } else {
                line = static_cast<u32>(sizes.scalar.of(g, e - multivectors, h));
            }
            lines[e] = line;
        }
    }

    /// Where the rows from `first` on begin in the heads.
    GW_DEVICE void find_rows(const Heads& sizes, i64 first, i64 g, i64 h) const {
        for (int r = static_cast<int>(threadIdx.x); r < tile; r += THREADS) {
            const i64 b = (first + r) / sizes.items, n = first + r - b * sizes.items;
            place[r] = (((g * sizes.batch + b) * sizes.heads + h) * sizes.items + n) * width;
        }
    }

    /// Reads `count` rows from `first` on from planes into a tile, threads along the rows.
    GW_DEVICE void read_planes(const T* planes, i64 first, i64 rows, int count, int number) const {
        const int r = static_cast<int>(threadIdx.x) & (tile - 1), step = THREADS / tile;
        const T* const source = planes + first + r;
        C* const target = row(number, r);
        for (int e = static_cast<int>(threadIdx.x) / tile; e < width; e += DEPTH * step) {
            C values[DEPTH];
#pragma unroll
            for (int k = 0; k < DEPTH; ++k) {
                const int at = e + k * step;
                const bool there = r < count && at < width;
                values[k] = element_if(there, source + (there ? (lines[at] & LINE) * rows : 0));
            }
#pragma unroll
            for (int k = 0; k < DEPTH; ++k) {
                if (e + k * step < width) target[e + k * step] = values[k];
            }
        }
    }

    /// Writes them to planes.
    GW_DEVICE void write_planes(T* planes, i64 first, i64 rows, int count, int number) const {
        const int r = static_cast<int>(threadIdx.x) & (tile - 1), step = THREADS / tile;
        if (r >= count) return;
        T* const target = planes + first + r;
        const C* const source = row(number, r);
        for (int e = static_cast<int>(threadIdx.x) / tile; e < width; e += step) {
            target[(lines[e] & LINE) * rows] = narrow<T>(source[e]);
        }
    }

    /// Calls f(row, element) for all elements of `count` rows, threads along the elements.
    template <class F>
    GW_DEVICE void each_element(int count, F f) const {
        const int down = THREADS / width, along = THREADS - down * width;
        int r = static_cast<int>(threadIdx.x) / width, e = static_cast<int>(threadIdx.x) - r * width;
        while (r < count) {
            f(r, e);
            r += down;
            e += along;
            if (e >= width) {
                e -= width;
                ++r;
            }
        }
    }

    /// Reads rows of heads into a tile, times the factor of each plane.
    GW_DEVICE void read_heads(const T* heads, int count, int number) const {
        each_element(count, [&](int r, int e) { row(number, r)[e] = widen(heads[place[r] + e]) * factor(lines[e]); });
    }

    /// Writes rows of the first tile to heads: multivectors times their scale, scalars less their mean times the inverse of their
    /// deviation, and the factor of each plane.
    GW_DEVICE void write_heads(T* heads, int count, int multivectors) const {
        each_element(count, [&](int r, int e) {
            const C value = row(0, r)[e];
            const C result = e < multivectors ? value * scale[r] * factor(lines[e]) : (value - mean[r]) * inverse[r];
            heads[place[r] + e] = narrow<T>(result);
        });
    }

    /// The sum over the threads of this thread's row, in their order. Barriers are the caller's.
    GW_DEVICE C sum(int of) const {
        C total = 0;
        for (int at = static_cast<int>(threadIdx.x) & (tile - 1); at < THREADS; at += tile) total += parts[of * THREADS + at];
        return total;
    }
    GW_DEVICE C& part(int of) const { return parts[of * THREADS + threadIdx.x]; }
};

/// Σ |q| over the grades of this thread's channels.
template <class C>
GW_DEVICE C norms(const HeadForm& form, const Heads& sizes, const C* row) {
    const int channels = static_cast<int>(sizes.channels), share = THREADS / static_cast<int>(sizes.tile);
    C sum = 0;
    for (int c = static_cast<int>(threadIdx.x) / static_cast<int>(sizes.tile); c < channels; c += share) {
        for (i64 grade = 0; grade < sizes.grades; ++grade) {
            const C q = quadratic_form(form, grade, row + c, channels);
            sum += q < C(0) ? -q : q;
        }
    }
    return sum;
}

/// Calls f(tile's first row, its rows) for each tile of each group and head of this block, at whose start the lines and the rows' places are
/// known. All threads of a block make the same calls.
template <class T, class F>
GW_DEVICE void each_tile(const Block<T>& block, const Heads& sizes, const u32* form, F f) {
    const i64 rows = sizes.rows();
    for (i64 pair = blockIdx.y; pair < sizes.groups * sizes.heads; pair += gridDim.y) {
        const i64 g = pair / sizes.heads, h = pair - g * sizes.heads;
        __syncthreads();  // The lines may still be in use.
        block.find_lines(sizes, form, g, h);
        for (i64 first = blockIdx.x * sizes.tile; first < rows; first += gridDim.x * sizes.tile) {
            __syncthreads();  // The tile may still be in use.
            block.find_rows(sizes, first, g, h);
            __syncthreads();
            f(first, static_cast<int>(rows - first < sizes.tile ? rows - first : sizes.tile));
        }
    }
}

/// Planes to heads. With `is_normed`, the multivectors of a head times gain/√max(mean over channels of Σ_grades |q|, epsilon), and its
/// scalars by layer normalisation.
template <class T>
GW_DEVICE void split(const T* x, T* heads, const u32* words, const Heads& sizes, i32 is_normed, double epsilon, double gain) {
    using C = Compute<T>;
    const Block<T> block(sizes, 1);
    const HeadForm form(words, sizes);
    const int tile = block.tile, thread = static_cast<int>(threadIdx.x), r = thread & (tile - 1);
    const int multivectors = sizes.multivectors(), share = THREADS / tile;
    each_tile(block, sizes, words, [&](i64 first, int count) {
        block.read_planes(x, first, sizes.rows(), count, 0);
        C scale = 1, mean = 0, inverse = 1;
        if (is_normed) {
            const C* const row = block.row(0, r);
            __syncthreads();
            C scalars = 0;
            for (int e = multivectors + thread / tile; e < block.width; e += share) scalars += row[e];
            block.part(0) = norms(form, sizes, row);
            block.part(1) = scalars;
            __syncthreads();
            const C norm = block.sum(0) / C(sizes.channels), least = C(epsilon);
            scale = C(gain) / root(norm < least ? least : norm);
            if (sizes.scalars > 0) {
                mean = block.sum(1) / C(sizes.scalars);
                C squares = 0;
                for (int e = multivectors + thread / tile; e < block.width; e += share) squares += (row[e] - mean) * (row[e] - mean);
                block.part(2) = squares;
                __syncthreads();
                inverse = inverse_deviation(block.sum(2), sizes.scalars);
            }
        }
        if (thread < tile) {
            block.scale[r] = scale;
            block.mean[r] = mean;
            block.inverse[r] = inverse;
        }
        __syncthreads();
        block.write_heads(heads, count, multivectors);
    });
}

/// Heads to planes: the transpose of `split` without a norm.
template <class T>
GW_DEVICE void merge(const T* heads, T* planes, const u32* words, const Heads& sizes) {
    const Block<T> block(sizes, 1);
    each_tile(block, sizes, words, [&](i64 first, int count) {
        block.read_heads(heads, count, 0);
        __syncthreads();
        block.write_planes(planes, first, sizes.rows(), count, 0);
    });
}

/// The gradient of `split` with a norm, from that of the heads. With M = max(mean |q|, ε) and the scale s = gain/√M, the gradient of a
/// multivector's element is s·g - [mean |q| ≥ ε]·(s·D/(channels·M))·sign(q)·factor·x, where D = Σ g·x over the head's multivectors and g
/// has the factor of the query's planes already.
template <class T>
GW_DEVICE void split_backward(const T* x, const T* grad, T* out, const u32* words, const Heads& sizes, double epsilon, double gain) {
    using C = Compute<T>;
    const Block<T> block(sizes, 2);
    const HeadForm form(words, sizes);
    const int tile = block.tile, thread = static_cast<int>(threadIdx.x), r = thread & (tile - 1);
    const int multivectors = sizes.multivectors(), channels = static_cast<int>(sizes.channels), share = THREADS / tile;
    each_tile(block, sizes, words, [&](i64 first, int count) {
        block.read_planes(x, first, sizes.rows(), count, 0);
        block.read_heads(grad, count, 1);
        __syncthreads();
        const C* const row = block.row(0, r);
        C* const slope = block.row(1, r);
        // Rows past the end have no gradient in the tile.
        const bool there = r < count;
        C along = 0, scalars = 0, slopes = 0;
        if (there) {
            for (int e = thread / tile; e < multivectors; e += share) along += slope[e] * row[e];
            for (int e = multivectors + thread / tile; e < block.width; e += share) {
                scalars += row[e];
                slopes += slope[e];
            }
        }
        block.part(0) = there ? norms(form, sizes, row) : C(0);
        block.part(1) = along;
        block.part(2) = scalars;
        block.part(3) = slopes;
        __syncthreads();
        const C norm = block.sum(0) / C(sizes.channels), least = C(epsilon), clamped = norm < least ? least : norm;
        const C scale = C(gain) / root(clamped);
        const C pull = norm < least ? C(0) : scale * block.sum(1) / (C(sizes.channels) * clamped);
        C mean = 0, mean_slope = 0;
        if (sizes.scalars > 0) {
            mean = block.sum(2) / C(sizes.scalars);
            mean_slope = block.sum(3) / C(sizes.scalars);
            __syncthreads();  // All sums are read.
            C squares = 0, products = 0;
            if (there) {
                for (int e = multivectors + thread / tile; e < block.width; e += share) {
                    squares += (row[e] - mean) * (row[e] - mean);
                    products += slope[e] * (row[e] - mean);
                }
            }
            block.part(0) = squares;
            block.part(1) = products;
            __syncthreads();
            if (there) {
                const C inverse = inverse_deviation(block.sum(0), sizes.scalars);
                const C bend = block.sum(1) / C(sizes.scalars) * inverse * inverse;
                for (int e = multivectors + thread / tile; e < block.width; e += share) {
                    slope[e] = inverse * (slope[e] - mean_slope - (row[e] - mean) * bend);
                }
            }
        }
        // Each thread has its channels' elements to itself since all have added up D.
        if (there) {
            for (int c = thread / tile; c < channels; c += share) {
                for (i64 grade = 0; grade < sizes.grades; ++grade) {
                    const C q = quadratic_form(form, grade, row + c, channels);
                    const C sign = q > C(0) ? pull : q < C(0) ? -pull : C(0);
                    for (u32 i = form.first[grade]; i < form.first[grade + 1]; ++i) {
                        const int p = static_cast<int>(form.list[i]), e = p * channels + c;
                        slope[e] = scale * slope[e] - sign * C(form.factors[p]) * row[e];
                    }
                }
            }
        }
        __syncthreads();
        block.write_planes(out, first, sizes.rows(), count, 1);
    });
}

}  // namespace

#define GW_KERNELS(T, NAME)                                                                                                    \
    extern "C" __global__ void __launch_bounds__(256, 4) gw_split_heads_fwd_##NAME(                                            \
        const T* x, T* heads, const u32* form, GW_PARAMETER Heads sizes, i32 is_normed, double epsilon, double gain) {         \
        begin_kernel();                                                                                                        \
        split<T>(x, heads, form, sizes, is_normed, epsilon, gain);                                                             \
    }                                                                                                                          \
    extern "C" __global__ void __launch_bounds__(256, 4) gw_split_heads_bwd_##NAME(                                            \
        const T* x, const T* grad, T* out, const u32* form, GW_PARAMETER Heads sizes, double epsilon, double gain) {           \
        begin_kernel();                                                                                                        \
        split_backward<T>(x, grad, out, form, sizes, epsilon, gain);                                                           \
    }                                                                                                                          \
    extern "C" __global__ void __launch_bounds__(256, 4) gw_merge_heads_##NAME(const T* heads, T* planes, const u32* form,     \
                                                                               GW_PARAMETER Heads sizes) {                     \
        begin_kernel();                                                                                                        \
        merge<T>(heads, planes, form, sizes);                                                                                  \
    }
GW_FOR_DTYPES(GW_KERNELS)
