// Blocks of equivariant networks (see clifford/mv_block.cuh for the definition) with 33 to 64 features, whose three matrices do not fit
// into the shared memory of a multiprocessor together. The linear maps that stand alone, y = linear(x) and the gradient of x, are products
// of matrices for other kernels. The rest is one kernel for each pass, with the matrices `right` and `left` in shared memory, and one for
// the gradients of matrices:
//
//   forward   y, residual             ->  out           (y is kept)
//   backward  y, grad                 ->  the gradients of y, r and l, and h, of which the gradients of matrices are formed
//   sums      x or h, and gradients   ->  the gradients of matrices, see clifford/mv_wide_sums.cuh
//
// with h = silu(y), r = right(h), l = left(h) and s, the argument of the layer norm, which both passes compute.
//
// The positions that a lane has are those of clifford/mv_tile_warp.cuh, with one group of eight warps, 16 rows at a time. Products are in the
// parts of clifford/mv_tf32.cuh: exact f32 in three TF32 parts, or TF32, which holds 16-bit operands exactly.
//
// Rows of features and matrices lie in shared memory as lines of 64 values without padding, whose 16 chunks of four columns are exchanged:
// chunk c of line i is at c ^ turn(i). All accesses of matrix instructions, of matrices transposed or not, and those of a lane's own
// positions take every bank once.
#pragma once

#include "clifford/mv_tf32.cuh"
#include "clifford/mv_tile_warp.cuh"
#include "ptx/async.cuh"
#include "ptx/bulk.cuh"

/// `PACKED` says that features are a multiple of four, and all arrays of them aligned to four: branches at every access would keep loads from
/// being in flight together.
template <class A, class T, int PARTS, bool PACKED>
struct MvWide : MvTileWarp<A, T, 64> {
    using Tiles = MvTileWarp<A, T, 64>;
    using typename Tiles::Element;
    using typename Tiles::Fragment;
    using typename Tiles::Functions;
    using typename Tiles::Normalizer;
    using typename Tiles::Parameters;
    using typename Tiles::Product;
    using Tiles::BLADES, Tiles::GRADES, Tiles::PATHS, Tiles::ROWS, Tiles::WIDTH, Tiles::tables;
    using Tiles::column, Tiles::feature, Tiles::features, Tiles::line, Tiles::p, Tiles::pair;
    template <int N>
    using Operand = MvTf32<PARTS, N>;
    /// The lane's values of its two rows.
    using Rows = float[2][BLADES][2];

    /// Elements of a group's 16 rows of one blade, of the matrix of one grade, and of the matrices of all grades in shared memory.
    static constexpr int PLANE = ROWS * WIDTH, MATRIX = WIDTH * WIDTH, MATRICES = GRADES * MATRIX;

    /// What the chunks of a line in shared memory are exchanged by.
    GW_DEVICE static constexpr int turn(int line) { return 2 * (line % 4) + line / 4 % 2; }

    int own;      // The place of the lane's first position in rows in shared memory; see `place`.
    int count16;  // Features rounded up to 16: terms of the sums in products.

    GW_DEVICE explicit MvWide(const MvBlockWeights<T>& weights) : Tiles(weights) {
        own = line * WIDTH + ((feature / 4) ^ turn(line)) * 4 + feature % 4;
        count16 = (features + 15) / 16 * 16;
    }

    /// The place of one of the lane's positions in a plane of rows in shared memory.
    GW_DEVICE int place(int half, int side) const { return own + half * 8 * WIDTH + side; }

    /// x, of which the compiler does not know that it is the same for all tiles: it would keep what is computed of it in registers, which are
    /// scarce here.
    template <class X>
    GW_DEVICE static X anew(X x) {
        if constexpr (sizeof(X) == 8) {
            asm volatile("" : "+l"(x));
        } else {
            asm volatile("" : "+r"(x));
        }
        return x;
    }

    /// The lane's values of row g + 8·half of [BLADES, rows, features], `first` the group's first row; zeros where there are none.
    GW_DEVICE void read(const T* source, i64 first, int half, float (&values)[BLADES][2]) const {
        const i64 row = anew(first) + line + 8 * half, plane = anew(p.rows) * features;
        const T* at = source + row * features + feature;
        const bool inside = row < p.rows && feature < features;
#pragma unroll
        for (int blade = 0; blade < BLADES; ++blade, at += plane) {
            values[blade][0] = values[blade][1] = 0;
            if constexpr (PACKED) {
                if (inside) load<2>(at, values[blade]);
            } else {
                if (inside) values[blade][0] = widen(at[0]);
                if (inside && feature + 1 < features) values[blade][1] = widen(at[1]);
            }
        }
    }
    GW_DEVICE void read(const T* source, i64 first, Rows& values) const {
#pragma unroll
        for (int half = 0; half < 2; ++half) read(source, first, half, values[half]);
    }

    /// Writes the lane's values of the same row.
    GW_DEVICE void write(T* target, i64 first, int half, const float (&values)[BLADES][2]) const {
        const i64 row = anew(first) + line + 8 * half, plane = anew(p.rows) * features;
        if (row >= p.rows || feature >= features) return;
        T* at = target + row * features + feature;
#pragma unroll
        for (int blade = 0; blade < BLADES; ++blade, at += plane) {
            if constexpr (PACKED && sizeof(T) == 4) {
                // The compiler makes two of some of these stores.
                asm volatile("st.global.v2.f32 [%0], {%1, %2};" ::"l"(at), "f"(values[blade][0]), "f"(values[blade][1]) : "memory");
            } else if constexpr (PACKED) {
                store<2>(at, values[blade]);
            } else {
                at[0] = narrow<T>(values[blade][0]);
                if (feature + 1 < features) at[1] = narrow<T>(values[blade][1]);
            }
        }
    }
    GW_DEVICE void write(T* target, i64 first, const Rows& values) const {
#pragma unroll
        for (int half = 0; half < 2; ++half) write(target, first, half, values[half]);
    }

    /// Writes the tile's rows from shared memory to [BLADES, rows, features], whole lines at a time, which takes a fourth of the accesses of
    /// `write`. All threads call it, after a barrier.
    GW_DEVICE void write_tile(T* target, i64 first, const float* rows) const {
        constexpr int CHUNKS = WIDTH / 4;
        const int thread = anew(threadIdx.x), at = thread / CHUNKS, chunk = thread % CHUNKS;
        const float* from = rows + at * WIDTH + (chunk ^ turn(at)) * 4;
        const i64 row = anew(first) + at, plane = anew(p.rows) * features;
        if (row >= p.rows || 4 * chunk >= features) return;
        T* to = target + row * features + 4 * chunk;
#pragma unroll
        for (int blade = 0; blade < BLADES; ++blade, from += PLANE, to += plane) {
            float values[4];
            load<4>(from, values);
            if constexpr (PACKED) {
                store<4>(to, values);
            } else {
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    if (4 * chunk + i < features) to[i] = narrow<T>(values[i]);
                }
            }
        }
    }

    /// Puts the lane's two values of every blade of row g + 8·half to rows in shared memory.
    GW_DEVICE void put(float* rows, int half, const float (&values)[BLADES][2]) const {
#pragma unroll
        for (int blade = 0; blade < BLADES; ++blade) store<2>(rows + blade * PLANE + place(half, 0), values[blade]);
    }

    /// h = silu(y) in the place of y, and in rows in shared memory.
    GW_DEVICE void gate(const Parameters& parameters, Rows& y, float* rows) const {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
#pragma unroll
            for (int side = 0; side < 2; ++side) {
                Element element;
#pragma unroll
                for (int blade = 0; blade < BLADES; ++blade) element.at[blade][0] = y[half][blade][side];
                this->apply_silu(parameters, feature + side, element);
#pragma unroll
                for (int blade = 0; blade < BLADES; ++blade) y[half][blade][side] = element.at[blade][0];
            }
            put(rows, half, y[half]);
        }
    }

    /// s = (l + bias + product of h and the normalised r)/√2, in the place of l. h is read from `rows`, where the lane put its part of it.
    GW_DEVICE void multiply_rows(const Parameters& parameters, const float* rows, const Fragment& r, Fragment& s) const {
#pragma unroll
        for (int side = 0; side < 2; ++side) {
#pragma unroll
            for (int half = 0; half < 2; ++half) multiply_position(parameters, side, rows + place(half, side), r, s, 2 * half + side);
        }
    }

    /// The same at one position, that with the number `at` of `r` and `s`, with h from `from`.
    GW_DEVICE void multiply_position(const Parameters& parameters, int side, const float* from, const Fragment& r, Fragment& s, int at) const {
        Normalizer normalizer[GRADES];
        typename Product::Weights weights;
        this->normalizer_of(parameters, feature + side, normalizer);
        this->product_of(parameters, feature + side, weights);
        Element h, factor, result;
#pragma unroll
        for (int blade = 0; blade < BLADES; ++blade) {
            h.at[blade][0] = from[blade * PLANE];
            factor.at[blade][0] = r[blade][at];
        }
        typename Normalizer::At norms[GRADES];
        Functions::factors(normalizer, factor, norms);
        Functions::apply(norms, factor, factor);
        Product::multiply(h, factor, weights, result);
        result.at[0][0] += parameters.left_bias(feature + side);
#pragma unroll
        for (int blade = 0; blade < BLADES; ++blade) s[blade][at] = Tiles::SQRT_HALF * (s[blade][at] + result.at[blade][0]);
    }

    /// Loads the parameters; all threads of the block call it, and a barrier must follow before they are read.
    GW_DEVICE Parameters load_parameters(float* target) const {
        p.typed([&](auto zero) { load_parameters_of<decltype(zero)>(target); });
        return {target};
    }

    /// The same of parameters of type P.
    template <class P>
    GW_DEVICE void load_parameters_of(float* target) const {
#pragma unroll 4
        for (int at = threadIdx.x; at < Parameters::COUNT; at += blockDim.x) {
            const int feature = at % WIDTH, value = at / WIDTH, by_grade = value - PATHS;
            const int kind = by_grade / GRADES, single = by_grade - Parameters::BY_GRADE * GRADES;
            const void* source;
            int index;
            if (by_grade < 0) {
                source = p.product;
                index = feature * PATHS + value;
            } else if (single < 0) {
                source = kind == 0 ? p.slope : kind == 1 ? p.shift : p.normalization;
                index = feature * GRADES + by_grade % GRADES;
            } else {
                source = single == 0 ? p.bias : single == 1 ? p.left_bias : p.gain;
                index = feature;
            }
            float loaded = feature < features ? widen(static_cast<const P*>(source)[index]) : 0.0f;
            if (by_grade >= 0 && single < 0 && kind >= 2) loaded = Quick::sigmoid(kind == 2 ? loaded : -loaded);
            target[at] = loaded;
        }
    }

    /// Waits for the copies that this thread started.
    GW_DEVICE static void fetched() {
        copy_async_commit();
        copy_async_wait<0>();
    }

    /// Starts copying matrices [GRADES, features, features] to [GRADES, WIDTH, WIDTH] in shared memory, with zeros as padding. Call
    /// `fetched` before the barrier.
    GW_DEVICE void fetch_matrices(float* target, const void* source) const {
        p.typed([&](auto zero) {
            using P = decltype(zero);
            constexpr int COUNT = 16 / sizeof(P);
            const P* const matrices = static_cast<const P*>(source);
            if (features % COUNT == 0 && reinterpret_cast<u64>(source) % 16 == 0) {
                fetch_lines<COUNT>(target, matrices);
            } else {
                fetch_lines<1>(target, matrices);
            }
        });
    }

    /// The same, COUNT elements at a time.
    template <int COUNT, class P>
    GW_DEVICE void fetch_lines(float* target, const P* source) const {
        constexpr int LANES = WIDTH / COUNT;
        const int o = threadIdx.x % LANES * COUNT, step = blockDim.x / LANES;
#pragma unroll 4
        for (int at = threadIdx.x / LANES; at < GRADES * WIDTH; at += step) {
            const int grade = at / WIDTH, i = at % WIDTH;
            const bool there = i < features && o < features;
            const P* const from = source + (there ? (grade * features + i) * features + o : 0);
            float* const to = target + at * WIDTH;
            if constexpr (COUNT * sizeof(P) == 16 && sizeof(P) == 4) {
                copy_async_16(to + ((o / 4) ^ turn(i)) * 4, from, there ? 16 : 0);
            } else {
                float values[COUNT] = {};
                if (there) load<COUNT>(from, values);
                if constexpr (COUNT == 1) {
                    to[((o / 4) ^ turn(i)) * 4 + o % 4] = values[0];
                } else {
#pragma unroll
                    for (int n = 0; n < COUNT; n += 4) {
                        const float four[4] = {values[n], values[n + 1], values[n + 2], values[n + 3]};
                        store<4>(to + (((o + n) / 4) ^ turn(i)) * 4, four);
                    }
                }
            }
        }
    }

    /// d += a·b by matrix instructions alone, which truncate each sum that they form.
    GW_DEVICE static void multiply(float (&d)[4], const Operand<4>& a, const Operand<2>& b) {
        if constexpr (PARTS == 3) {
            mma_tf32(d, a.low, b.high);
            mma_tf32(d, a.high, b.low);
        }
        mma_tf32(d, a.high, b.high);
    }

    /// sums[m][blade] += rows[blade]·matrix m of the blade's grade, for the group's rows and the warp's 8 columns of each of M matrices, which lie
    /// one behind the other; of the transposed matrices if `TRANSPOSED`.
    template <bool TRANSPOSED, int M>
    GW_DEVICE void accumulate(float (&sums)[M][BLADES][4], const float* rows, const float* matrices) const {
        const int lane = anew(threadIdx.x) % 32, line = lane / 4, pair = lane % 4, eighth = lane % 8;
        // Of rows, a lane gives the address of a line of 16 and one of two adjacent chunks. Of transposed matrices, it gives that of a line of the
        // warp's 8 and one of four chunks; of others, it reads the column g of the warp's from the lines t and t + 4 of 8.
        const u32 from_rows = shared_address(rows + lane % 16 * WIDTH), row_chunk = ((lane / 16) ^ turn(eighth)) * 16;
        const u32 from_lines = shared_address(matrices + (8 * column + eighth) * WIDTH), line_chunk = ((lane / 8) ^ turn(eighth)) * 16;
        const int across = pair * WIDTH + (((2 * column + line / 4) ^ turn(pair)) * 4) + line % 4;
        const int next = (pair + 4) * WIDTH + (((2 * column + line / 4) ^ turn(pair + 4)) * 4) + line % 4;
#pragma unroll 1
        for (int k = 0; k < count16; k += 16) {
            const u32 at_row[2] = {from_rows + (row_chunk ^ (4 * k)), from_rows + (row_chunk ^ (4 * k + 32))};
            const u32 at_line = from_lines + (line_chunk ^ (4 * k));
            each<GRADES>([&](auto index) {
                constexpr int grade = decltype(index)::value, begin = tables.first[grade], end = tables.first[grade + 1];
                Operand<2> b[M][2];
#pragma unroll
                for (int m = 0; m < M; ++m) {
                    if constexpr (TRANSPOSED) {
                        u32 chunks[4];
                        load_matrices<false>(chunks, at_line + u32(sizeof(float)) * (m * MATRICES + grade * MATRIX));
#pragma unroll
                        for (int n = 0; n < 4; ++n) b[m][n / 2].set(n % 2, __uint_as_float(chunks[n]));
                    } else {
#pragma unroll
                        for (int step = 0; step < 2; ++step) {
                            const float* const matrix = matrices + m * MATRICES + grade * MATRIX + (k + 8 * step) * WIDTH;
                            b[m][step].set(0, matrix[across]);
                            b[m][step].set(1, matrix[next]);
                        }
                    }
                }
                each<end - begin>([&](auto number) {
                    constexpr int blade = begin + decltype(number)::value;
                    // Errors of truncation would grow with the number of terms: in three parts, 16 terms are summed by themselves, and added to the
                    // others by additions that round.
                    float parts[M][4] = {};
#pragma unroll
                    for (int step = 0; step < 2; ++step) {
                        u32 values[4];
                        load_matrices<false>(values, at_row[step] + u32(sizeof(float)) * blade * PLANE);
                        Operand<4> a;
#pragma unroll
                        for (int i = 0; i < 4; ++i) a.set(i, __uint_as_float(values[i]));
#pragma unroll
                        for (int m = 0; m < M; ++m) multiply(PARTS == 1 ? sums[m][blade] : parts[m], a, b[m][step]);
                    }
                    if constexpr (PARTS == 3) {
#pragma unroll
                        for (int m = 0; m < M; ++m) {
#pragma unroll
                            for (int i = 0; i < 4; ++i) sums[m][blade][i] += parts[m][i];
                        }
                    }
                });
            });
        }
    }

    /// Brings 16 rows of [BLADES, rows, features], `first` on, to the second-level cache, where their planes can be copied as they are:
    /// the lanes of a warp take a plane each, those of the group's warp `number`. While a group works on a tile, memory fetches the next one.
    GW_DEVICE void prefetch(const T* source, i64 first, int number) const {
        const int thread = anew(threadIdx.x), lane = thread % 32;
        const i64 left = p.rows - first, count = left < ROWS ? left : ROWS;
        if (thread / 32 % Tiles::COLUMNS != number || lane >= BLADES || count <= 0 || source == nullptr) return;
        const T* const from = source + (lane * p.rows + first) * features;
        const u32 bytes = static_cast<u32>(count * features * sizeof(T)) / 16 * 16;
        if (reinterpret_cast<u64>(from) % 16 == 0 && bytes > 0) bulk_prefetch(from, bytes);
    }
};
