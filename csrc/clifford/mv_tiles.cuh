// Blocks of equivariant networks (see clifford/mv_block.cuh for the definition) of 16-bit features: linear maps by the matrix
// instructions of the tensor cores. What both passes share; the passes are in mv_tiles_forward.cuh and mv_tiles_backward.cuh.
//
// A block of threads has two or three groups of four warps. A group works on 16 rows, and each of its warps on 8 of the (at most
// 32) features. With g = lane/4 and t = lane%4, a lane holds all blades of the positions (row g, feature 2t), (g, 2t+1), (g+8, 2t),
// (g+8, 2t+1): the layout of the results of matrix instructions. Operations on single positions (gates, norms, the product)
// therefore need no exchange; operands of linear maps go through shared memory, see clifford/mv_operands.cuh.
//
// Arrays of rows come to shared memory as they are, a tile ahead of its use (`Stage`). No read of a row is guarded: rows past the end
// and features past the last are read from the last there is. Gradients of results are zero there, so that nothing is added for them, and
// results are not written.
#pragma once

#include "clifford/mv_block.cuh"
#include "clifford/mv_operands.cuh"
#include "ptx/async.cuh"
#include "ptx/bulk.cuh"

template <class A, class T>
struct MvTiles {
    static constexpr int BLADES = A::BLADES, GRADES = A::GRADES, PATHS = A::PATHS;
    static constexpr auto tables = A::make();
    /// Rows of a group, and features of a block rounded up: the columns of a tile.
    static constexpr int ROWS = 16, WIDTH = 32;
    static constexpr float SQRT_HALF = 0.70710678118654752f;
    using Operands = MvOperands<T>;
    static constexpr int ROW = Operands::ROW;
    /// Bytes of matrices [GRADES, WIDTH rows], and of one grade's.
    static constexpr int GRADE_BYTES = WIDTH * ROW, MATRIX_BYTES = GRADES * GRADE_BYTES;
    using Block = MvBlock<A, 1>;
    using Product = typename Block::Product;
    using Element = typename Block::Element;
    using SiluGate = typename Block::SiluGate;
    using Normalizer = typename Block::Normalizer;
    /// Values of every blade at the lane's four positions.
    using Fragment = float[BLADES][4];

    /// Arrays of operands [BLADES, COUNT rows of a tile].
    template <int COUNT>
    struct Rows {
        static constexpr int BLADE_BYTES = COUNT * ROW, BYTES = BLADES * BLADE_BYTES;
    };

    const MvBlockWeights<T>& p;
    int inputs, features;
    int group, column;   // The warp's group, and the 8 features it works on.
    int line, pair;      // lane/4 and lane%4.
    int feature;         // The first of the lane's two.
    float share;         // 1/features

    GW_DEVICE explicit MvTiles(const MvBlockWeights<T>& weights) : p(weights) {
        inputs = static_cast<int>(p.inputs);
        features = static_cast<int>(p.features);
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        group = warp / 4;
        column = warp % 4;
        line = lane / 4;
        pair = lane % 4;
        feature = column * 8 + 2 * pair;
        share = 1.0f / static_cast<float>(features);
    }

    /// Parameters of features in shared memory, [values, WIDTH], with zeros past the last feature. Of the normalisation's parameter a,
    /// σ(a) and σ(-a).
    struct Parameters {
        static constexpr int COUNT = (PATHS + 4 * GRADES + 3) * WIDTH;
        float* first;

        GW_DEVICE float product(int path, int feature) const { return first[path * WIDTH + feature]; }
        GW_DEVICE float slope(int grade, int feature) const { return first[(PATHS + grade) * WIDTH + feature]; }
        GW_DEVICE float shift(int grade, int feature) const { return first[(PATHS + GRADES + grade) * WIDTH + feature]; }
        GW_DEVICE Normalizer normalizer(int grade, int feature) const {
            Normalizer normalizer;
            normalizer.share = first[(PATHS + 2 * GRADES + grade) * WIDTH + feature];
            normalizer.rest = first[(PATHS + 3 * GRADES + grade) * WIDTH + feature];
            return normalizer;
        }
        GW_DEVICE float bias(int feature) const { return first[(PATHS + 4 * GRADES) * WIDTH + feature]; }
        GW_DEVICE float left_bias(int feature) const { return first[(PATHS + 4 * GRADES + 1) * WIDTH + feature]; }
        GW_DEVICE float gain(int feature) const { return first[(PATHS + 4 * GRADES + 2) * WIDTH + feature]; }
    };

    GW_DEVICE Parameters load_parameters(float* target) const {
        p.typed([&](auto zero) {
            load_parameters_of<decltype(zero)>(target);
        });
        return {target};
    }

    /// The same of parameters of type P.
    template <class P>
    GW_DEVICE void load_parameters_of(float* target) const {
#pragma unroll 4
        for (int at = threadIdx.x; at < Parameters::COUNT; at += blockDim.x) {
            const int feature = at % WIDTH, value = at / WIDTH, by_grade = value - PATHS;
            const int kind = by_grade / GRADES, single = by_grade - 4 * GRADES;
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
            if (single < 0 && kind >= 2) loaded = Quick::sigmoid(kind == 2 ? loaded : -loaded);
            target[at] = loaded;
        }
    }

    /// Copies rows `first` to `first` + WIDTH of matrices [GRADES, count, features] to [GRADES, tile] in shared memory, with zeros for
    /// what there is not.
    GW_DEVICE void load_matrices(char* target, const void* source, int count, int first) const {
        p.typed([&](auto zero) {
            using P = decltype(zero);
            if (features % 2 == 0 && reinterpret_cast<u64>(source) % (2 * sizeof(P)) == 0) {
                load_matrices_of<true>(target, static_cast<const P*>(source), count, first);
            } else {
                load_matrices_of<false>(target, static_cast<const P*>(source), count, first);
            }
        });
    }

    /// The same of elements of type P, two at a time if `PAIRED`.
    template <bool PAIRED, class P>
    GW_DEVICE void load_matrices_of(char* target, const P* source, int count, int first) const {
        constexpr int PAIRS = WIDTH / 2;
        const int o = threadIdx.x % PAIRS * 2, step = blockDim.x / PAIRS;
#pragma unroll 4
        for (int at = threadIdx.x / PAIRS; at < GRADES * WIDTH; at += step) {
            const int grade = at / WIDTH, row = at % WIDTH, i = first + row;
            const P* const from = source + (grade * count + i) * features + o;
            float values[2] = {};
            if constexpr (PAIRED) {
                if (i < count && o < features) load<2>(from, values);
            } else {
                if (i < count && o < features) values[0] = widen(from[0]);
                if (i < count && o + 1 < features) values[1] = widen(from[1]);
            }
            u32* const to = reinterpret_cast<u32*>(target + grade * GRADE_BYTES + Operands::offset(row, o / 8)) + o % 8 / 2;
            *to = Operands::pair(values[0], values[1]);
        }
    }

    /// A barrier of the group's four warps.
    GW_DEVICE void meet() const { asm volatile("bar.sync %0, 128;" ::"r"(group + 1) : "memory"); }

    /// Calls f(group) for groups of blades whose sums are formed side by side: the scalar and the pseudoscalar, then the blades of each
    /// other grade.
    template <class F>
    GW_DEVICE static void each_group(F f) {
        static_assert(tables.first[1] == 1 && tables.first[GRADES - 1] == BLADES - 1);
        each<GRADES - 1>([&](auto index) { f(Group<decltype(index)::value>{}); });
    }

    template <int G>
    struct Group {
        static constexpr int COUNT = G == 0 ? 2 : tables.first[G + 1] - tables.first[G];
        GW_DEVICE static constexpr int blade(int n) { return G == 0 ? n * (BLADES - 1) : tables.first[G] + n; }
        GW_DEVICE static constexpr int grade(int n) { return G == 0 ? n * (GRADES - 1) : G; }
        /// Matrices of the group's grades.
        static constexpr int MATRICES = G == 0 ? 2 : 1;
    };

    /// sums[blade] += rows[blade]·matrix of the blade's grade, for 16 rows and the warp's 8 columns of the matrix; of the transposed
    /// matrix if `TRANSPOSED`. The sum runs over all columns of a tile of rows. `rows` and `matrix` are where the lane finds its rows of
    /// the first fragments. If `FRESH`, the sums begin here.
    template <bool TRANSPOSED, bool FRESH, class Rows>
    GW_DEVICE static void accumulate(Fragment& sums, u32 rows, u32 matrix) {
        each_group([&](auto group) {
            using Members = decltype(group);
            u32 b[Members::MATRICES][4];
#pragma unroll
            for (int m = 0; m < Members::MATRICES; ++m) ::load_matrices<!TRANSPOSED>(b[m], matrix + Members::grade(m) * GRADE_BYTES);
#pragma unroll
            for (int k = 0; k < 2; ++k) {
                u32 a[Members::COUNT][4];
                load_rows<Rows>(group, a, k == 0 ? rows : rows ^ 32);
                add_products<FRESH>(group, sums, a, b, k);
            }
        });
    }

    /// The same with two matrices, not transposed; the sums begin here.
    template <class Rows>
    GW_DEVICE static void accumulate_two(Fragment& one, Fragment& two, u32 rows, u32 matrix_one, u32 matrix_two) {
        each_group([&](auto group) {
            using Members = decltype(group);
            u32 b[2][Members::MATRICES][4];
#pragma unroll
            for (int m = 0; m < Members::MATRICES; ++m) {
                ::load_matrices<true>(b[0][m], matrix_one + Members::grade(m) * GRADE_BYTES);
                ::load_matrices<true>(b[1][m], matrix_two + Members::grade(m) * GRADE_BYTES);
            }
#pragma unroll
            for (int k = 0; k < 2; ++k) {
                u32 a[Members::COUNT][4];
                load_rows<Rows>(group, a, k == 0 ? rows : rows ^ 32);
                add_products<true>(group, one, a, b[0], k);
                add_products<true>(group, two, a, b[1], k);
            }
        });
    }

    /// Adds the products of the k-th 16 terms of a group's blades to `sums`; if `FRESH`, the sums begin with the first.
    template <bool FRESH, class Members>
    GW_DEVICE static void add_products(Members, Fragment& sums, const u32 (&a)[Members::COUNT][4], const u32 (&b)[Members::MATRICES][4],
                                       int k) {
#pragma unroll
        for (int n = 0; n < Members::COUNT; ++n) {
            float(&sum)[4] = sums[Members::blade(n)];
            if (FRESH && k == 0) {
#pragma unroll
                for (int i = 0; i < 4; ++i) sum[i] = 0;
            }
            const u32(&matrix)[4] = b[n % Members::MATRICES];
            const u32 right[2] = {matrix[2 * k], matrix[2 * k + 1]};
            mma_16(sum, a[n], right, T{});
        }
    }

    /// Fragments of 16 rows and columns of a group's blades.
    template <class Rows, bool TRANSPOSED = false, class Members>
    GW_DEVICE static void load_rows(Members, u32 (&fragments)[Members::COUNT][4], u32 rows) {
#pragma unroll
        for (int n = 0; n < Members::COUNT; ++n) ::load_matrices<TRANSPOSED>(fragments[n], rows + Members::blade(n) * Rows::BLADE_BYTES);
    }

    /// The address of a blade's plane of [blades, rows, width], of less than 4 GiB, from that of the scalar's.
    template <class S>
    GW_DEVICE static S* plane_of(S* scalar, u32 bytes, int blade) {
        return (S*)((char*)scalar + static_cast<u64>(bytes) * blade);
    }

    /// Bytes of such a plane.
    GW_DEVICE u32 plane_bytes(int width) const { return static_cast<u32>(p.rows) * width * u32(sizeof(T)); }

    /// Rows of arrays in shared memory, as they are in global memory: planes of COUNT rows, without gaps between rows. Where planes have an
    /// odd number of elements, those of odd blades begin at the second element of their stage, so that copies of words are aligned.
    template <int COUNT, int TILES = 1>
    struct Stage {
        static constexpr int PLANE = COUNT * ROW * TILES, BYTES = BLADES * PLANE;
    };

    /// How rows of arrays come to their stages: by the copy engine, asynchronous copies of threads, or element by element.
    enum class Way { ENGINE, EIGHT_BYTES, FOUR_BYTES, ELEMENTS };

    /// The best way for these arrays [BLADES, rows, width].
    template <int N>
    GW_DEVICE Way way_of(const T* const (&arrays)[N], int width) const {
        u64 bits = 0;
#pragma unroll
        for (int n = 0; n < N; ++n) bits |= reinterpret_cast<u64>(arrays[n]);
        if ((bits | p.rows * width * sizeof(T)) % 16 == 0) return Way::ENGINE;
        if (bits % 8 == 0 && width % 4 == 0) return Way::EIGHT_BYTES;
        return bits % 4 == 0 ? Way::FOUR_BYTES : Way::ELEMENTS;
    }

    /// Starts bringing COUNT rows, `first` on, of N arrays [BLADES, rows, width], as far as they exist, to stages. All `threads` threads
    /// from `leader` on call it, once all of them have read what the stages held. By the copy engine, rows may be read after
    /// `barrier_wait`; otherwise after `copy_async_wait` (the caller closes groups of copies) and a barrier of these threads.
    template <class Stage, int COUNT, int N>
    GW_DEVICE void bring(char* const (&stages)[N], const T* const (&sources)[N], i64 first, int width, Way way, int leader, int threads,
                         u64* barrier) const {
        if (first >= p.rows) return;
        const int rows = static_cast<int>(min(p.rows - first, static_cast<i64>(COUNT))), thread = threadIdx.x - leader;
        const u32 bytes = rows * width * static_cast<int>(sizeof(T));
        if (way == Way::ENGINE) {
            if (thread >= BLADES) return;
            const i64 from = (thread * p.rows + first) * width;
            barrier_expect(barrier, N * bytes);
#pragma unroll
            for (int n = 0; n < N; ++n) bulk_copy(stages[n] + thread * Stage::PLANE, sources[n] + from, bytes, barrier);
            return;
        }
        const int shift = shift_of(width);
        const u32 plane = plane_bytes(width);
#pragma unroll
        for (int n = 0; n < N; ++n) {
            const T* const from = sources[n] + first * width;
            if (way == Way::EIGHT_BYTES) {
                copy_rows<Stage, 8>(stages[n], from, plane, bytes, 0, thread, threads);
            } else if (way == Way::FOUR_BYTES) {
                // With a shift, a word more, which has elements of the next rows or plane: an array has a multiple of four.
                copy_rows<Stage, 4>(stages[n], from, plane, shift == 0 ? bytes : bytes / 4 * 4 + 4, shift, thread, threads);
            } else {
#pragma unroll 1
                for (int at = thread; at < rows * width; at += threads) {
#pragma unroll
                    for (int blade = 0; blade < BLADES; ++blade) {
                        *reinterpret_cast<T*>(stages[n] + blade * Stage::PLANE + blade % 2 * shift + at * sizeof(T)) =
                            *plane_of(from + at, plane, blade);
                    }
                }
            }
        }
    }

    /// Starts copies of UNIT bytes of every plane to a stage.
    template <class Stage, int UNIT>
    GW_DEVICE static void copy_rows(char* stage, const T* from, u32 plane, u32 bytes, int shift, int thread, int threads) {
#pragma unroll 1
        for (u32 at = thread * UNIT; at < bytes; at += threads * UNIT) {
            const char* const source = reinterpret_cast<const char*>(from) + at;
#pragma unroll
            for (int blade = 0; blade < BLADES; ++blade) {
                copy_async_small<UNIT>(stage + at + blade * Stage::PLANE, plane_of(source, plane, blade) - blade % 2 * shift);
            }
        }
    }

    /// Bytes by which rows of odd blades are shifted in their stage.
    GW_DEVICE int shift_of(int width) const { return static_cast<int>(p.rows) & width & 1 ? static_cast<int>(sizeof(T)) : 0; }

    /// Copies 16 of a stage's rows of x to operands: a tile of columns from `from` on, with zeros past the last column. `row` is the first
    /// of the rows, and `last` the last that exists.
    template <class Stage, class Rows>
    GW_DEVICE void place_inputs(char* rows, const char* stage, int row, int last, int from) const {
        const int thread = Operands::thread_again() % 128, pair = thread % 16, column = from + 2 * pair;
        char* const to = rows + Operands::offset(thread / 16, pair / 4) + pair % 4 * 4;
        const T* source[2];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int own = min(row + thread / 16 + 8 * half, last);
            source[half] = reinterpret_cast<const T*>(stage) + own * inputs + min(column, inputs - 1);
        }
        const u32 mask = column + 1 < inputs ? 0xffffffffu : column < inputs ? 0xffffu : 0u;
        const int next = column + 1 < inputs ? 1 : 0, shift = shift_of(inputs);
#pragma unroll
        for (int blade = 0; blade < BLADES; ++blade) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const T* const at = reinterpret_cast<const T*>(reinterpret_cast<const char*>(source[half]) + blade * Stage::PLANE);
                u32 both;
                if (inputs % 2 == 0) {
                    // Past the last column, what is masked is read from a word before.
                    both = *reinterpret_cast<const u32*>(reinterpret_cast<const char*>(at) - (column < inputs ? 0 : sizeof(T)));
                } else {
                    const T* const own = at + (blade % 2 && shift ? 1 : 0);
                    both = own[0].bits | static_cast<u32>(own[next].bits) << 16;
                }
                *reinterpret_cast<u32*>(to + half * 8 * ROW + blade * Rows::BLADE_BYTES) = both & mask;
            }
        }
    }

    /// Whether the lane's two features can be written as one access.
    GW_DEVICE bool is_paired(const T* array) const {
        return features % 2 == 0 && reinterpret_cast<u64>(array) % (2 * sizeof(T)) == 0;
    }

    /// The lane's values of a row of a stage.
    template <class Stage>
    GW_DEVICE void read(const char* stage, int row, float (&values)[BLADES][2]) const {
        const T* const at = reinterpret_cast<const T*>(stage) + row * features;
        if (features % 2 == 0) {
            const char* const near = reinterpret_cast<const char*>(at + min(feature, features - 2));
#pragma unroll
            for (int blade = 0; blade < BLADES; ++blade) load<2>(reinterpret_cast<const T*>(near + blade * Stage::PLANE), values[blade]);
            return;
        }
        const int shift = shift_of(features);
#pragma unroll
        for (int side = 0; side < 2; ++side) {
            const char* const near = reinterpret_cast<const char*>(at + min(feature + side, features - 1));
            const char* const near_odd = near + shift;
#pragma unroll
            for (int blade = 0; blade < BLADES; ++blade) {
                values[blade][side] = widen(*reinterpret_cast<const T*>((blade % 2 ? near_odd : near) + blade * Stage::PLANE));
            }
        }
    }

    /// Writes the lane's values of rows g and g + 8 of [BLADES, rows, features], `first` the first of 16.
    GW_DEVICE void write(T* target, i64 first, const Fragment& values) const {
        const u32 plane = plane_bytes(features);
        const bool paired = is_paired(target);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const i64 row = first + line + 8 * half;
            if (row >= p.rows || feature >= features) continue;
            T* const at = target + row * features + feature;
            if (paired) {
#pragma unroll
                for (int blade = 0; blade < BLADES; ++blade) {
                    store_two(plane_of(at, plane, blade), values[blade][2 * half], values[blade][2 * half + 1]);
                }
            } else {
#pragma unroll
                for (int blade = 0; blade < BLADES; ++blade) *plane_of(at, plane, blade) = narrow<T>(values[blade][2 * half]);
                if (feature + 1 >= features) continue;
#pragma unroll
                for (int blade = 0; blade < BLADES; ++blade) *plane_of(at + 1, plane, blade) = narrow<T>(values[blade][2 * half + 1]);
            }
        }
    }

    GW_DEVICE static void store_two(T* target, float first, float second) {
        *reinterpret_cast<u32*>(target) = Operands::pair(first, second);
    }

    /// Where `put` writes the lane's pair of row g.
    GW_DEVICE u32 own_offset() const { return Operands::offset(line, column) + pair * 4; }

    /// Puts the lane's two values of every blade at row g + 8·half of 16 rows of operands.
    template <class Rows>
    GW_DEVICE void put(char* rows, int half, const float (&values)[BLADES][2]) const {
        char* const own = rows + own_offset() + half * 8 * ROW;
#pragma unroll
        for (int blade = 0; blade < BLADES; ++blade) {
            *reinterpret_cast<u32*>(own + blade * Rows::BLADE_BYTES) = Operands::pair(values[blade][0], values[blade][1]);
        }
    }

    /// The sum of N values over the features of each row: `values[n][half]` is the lane's part for row g + 8·half. Exchanged through
    /// `shared`, [N, ROWS, 4] of the group.
    template <int N>
    GW_DEVICE void sum_features(float (&values)[N][2], float* shared) const {
#pragma unroll
        for (int n = 0; n < N; ++n) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                float& value = values[n][half];
                value += __shfl_xor_sync(0xffffffffu, value, 1);
                value += __shfl_xor_sync(0xffffffffu, value, 2);
                if (pair == 0) shared[(n * ROWS + line + 8 * half) * 4 + column] = value;
            }
        }
        meet();
#pragma unroll
        for (int n = 0; n < N; ++n) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                float parts[4];
                load<4>(shared + (n * ROWS + line + 8 * half) * 4, parts);
                values[n][half] = (parts[0] + parts[1]) + (parts[2] + parts[3]);
            }
        }
    }

    GW_DEVICE void silu_of(const Parameters& parameters, int feature, SiluGate (&silu)[GRADES]) const {
#pragma unroll
        for (int grade = 0; grade < GRADES; ++grade) {
            silu[grade].slope = parameters.slope(grade, feature);
            silu[grade].shift = parameters.shift(grade, feature);
        }
    }

    GW_DEVICE void normalizer_of(const Parameters& parameters, int feature, Normalizer (&normalizer)[GRADES]) const {
#pragma unroll
        for (int grade = 0; grade < GRADES; ++grade) normalizer[grade] = parameters.normalizer(grade, feature);
    }

    GW_DEVICE void product_of(const Parameters& parameters, int feature, typename Product::Weights& weights) const {
#pragma unroll
        for (int path = 0; path < PATHS; ++path) weights.at[path][0] = parameters.product(path, feature);
    }
};
