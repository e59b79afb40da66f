// Blocks of equivariant networks (see clifford/mv_block.cuh for the definition) on many rows: linear maps by the matrix instructions of
// the tensor cores. What both passes share; the passes are in mv_tiles_forward.cuh and mv_tiles_backward.cuh.
//
// A block of threads has two or three groups of four warps. A group works on 16 rows, and each of its warps on 8 of the (at most
// 32) features. With g = lane/4 and t = lane%4, a lane holds all blades of the positions (row g, feature 2t), (g, 2t+1), (g+8, 2t),
// (g+8, 2t+1): the layout of the results of matrix instructions. Operations on single positions (gates, norms, the product)
// therefore need no exchange; operands of linear maps go through shared memory, split into parts as they are written (see
// clifford/mv_operands.cuh).
//
// No access to rows is guarded: rows past the end and features past the last are read from the last there is. Gradients of results
// are zero there, so that nothing is added for them, and results are not written.
#pragma once

#include "clifford/mv_block.cuh"
#include "clifford/mv_operands.cuh"

/// Operands and sizes, by value. The parameters are of type T, or f32 where T has 16 bits (mixed precision).
template <class T>
struct MvTilesWeights {
    const void *linear, *bias;          // [grades, inputs, features], [features]
    const void *slope, *shift;          // silu: [features, grades]
    const void *right, *normalization;  // [grades, features, features], [features, grades]
    const void *product;                // [features, paths]
    const void *left, *left_bias;       // [grades, features, features], [features]
    const void *gain;                   // layer norm: [features]
    i64 rows, inputs, features;
    i64 wide;                           // Whether the parameters are f32.

    GW_DEVICE float at(const void* parameter, int index) const {
        return sizeof(T) == 4 || wide ? static_cast<const float*>(parameter)[index] : widen(static_cast<const T*>(parameter)[index]);
    }
};

template <class A, class T>
struct MvTiles {
    static constexpr int BLADES = A::BLADES, GRADES = A::GRADES, PATHS = A::PATHS;
    static constexpr auto tables = A::make();
    /// Rows of a group, and features of a block rounded up: the columns of a tile.
    static constexpr int ROWS = 16, WIDTH = 32;
    static constexpr float SQRT_HALF = 0.70710678118654752f;
    using Operands = MvOperands<T>;
    static constexpr int PARTS = Operands::PARTS, ROW = Operands::ROW;
    /// Bytes of matrices [PARTS, GRADES, WIDTH rows], of one part of them, and of one grade's.
    static constexpr int GRADE_BYTES = WIDTH * ROW, PART_BYTES = GRADES * GRADE_BYTES, MATRIX_BYTES = PARTS * PART_BYTES;
    using Block = MvBlock<A, 1>;
    using Product = typename Block::Product;
    using Element = typename Block::Element;
    using SiluGate = typename Block::SiluGate;
    using Normalizer = typename Block::Normalizer;
    /// Values of every blade at the lane's four positions.
    using Fragment = float[BLADES][4];

    /// Arrays of operands [PARTS, BLADES, COUNT rows of a tile].
    template <int COUNT>
    struct Rows {
        static constexpr int BLADE_BYTES = COUNT * ROW, PART_BYTES = BLADES * BLADE_BYTES, BYTES = PARTS * PART_BYTES;
    };

    const MvTilesWeights<T>& p;
    int inputs, features;
    int group, column;   // The warp's group, and the 8 features it works on.
    int line, pair;      // lane/4 and lane%4.
    int feature;         // The first of the lane's two.
    float share;         // 1/features

    GW_DEVICE explicit MvTiles(const MvTilesWeights<T>& weights) : p(weights) {
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
            float loaded = feature < features ? p.at(source, index) : 0.0f;
            if (single < 0 && kind >= 2) loaded = Quick::sigmoid(kind == 2 ? loaded : -loaded);
            target[at] = loaded;
        }
        return {target};
    }

    /// Copies rows `first` to `first` + WIDTH of matrices [GRADES, count, features] to [PARTS, GRADES, tile] in shared memory, with zeros
    /// for what there is not.
    GW_DEVICE void load_matrices(char* target, const void* source, int count, int first) const {
        constexpr int PAIRS = WIDTH / 2;
        const int o = threadIdx.x % PAIRS * 2, step = blockDim.x / PAIRS;
#pragma unroll 4
        for (int at = threadIdx.x / PAIRS; at < GRADES * WIDTH; at += step) {
            const int grade = at / WIDTH, row = at % WIDTH, i = first + row;
            const int index = (grade * count + i) * features + o;
            const float one = i < count && o < features ? p.at(source, index) : 0.0f;
            const float two = i < count && o + 1 < features ? p.at(source, index + 1) : 0.0f;
            u32 parts[PARTS];
            Operands::split(one, two, parts);
            u32* const to = reinterpret_cast<u32*>(target + grade * GRADE_BYTES + Operands::offset(row, o / 8)) + o % 8 / 2;
#pragma unroll
            for (int part = 0; part < PARTS; ++part) to[part * PART_BYTES / 4] = parts[part];
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
        accumulate_with<FRESH, Rows>(sums, rows, [&](int grade, u32(&parts)[PARTS][4]) {
            load_matrix<TRANSPOSED>(parts, matrix + grade * GRADE_BYTES);
        });
    }

    /// The same with `load(grade, parts)` for the two fragments of a grade's matrix.
    template <bool FRESH, class Rows, class Load>
    GW_DEVICE static void accumulate_with(Fragment& sums, u32 rows, Load load) {
        each_group([&](auto group) {
            using Members = decltype(group);
            u32 b[Members::MATRICES][PARTS][4];
#pragma unroll
            for (int m = 0; m < Members::MATRICES; ++m) load(Members::grade(m), b[m]);
#pragma unroll
            for (int k = 0; k < 2; ++k) {
                u32 a[Members::COUNT][PARTS][4];
                load_rows<Rows>(group, a, k == 0 ? rows : rows ^ 32);
                add_products<FRESH>(group, sums, a, b, k);
            }
        });
    }

    /// The first with two matrices, not transposed.
    template <class Rows>
    GW_DEVICE static void accumulate_two(Fragment& one, Fragment& two, u32 rows, u32 matrix_one, u32 matrix_two) {
        each_group([&](auto group) {
            using Members = decltype(group);
            u32 b[2][Members::MATRICES][PARTS][4];
#pragma unroll
            for (int m = 0; m < Members::MATRICES; ++m) {
                load_matrix<false>(b[0][m], matrix_one + Members::grade(m) * GRADE_BYTES);
                load_matrix<false>(b[1][m], matrix_two + Members::grade(m) * GRADE_BYTES);
            }
#pragma unroll
            for (int k = 0; k < 2; ++k) {
                u32 a[Members::COUNT][PARTS][4];
                load_rows<Rows>(group, a, k == 0 ? rows : rows ^ 32);
                add_products<true>(group, one, a, b[0], k);
                add_products<true>(group, two, a, b[1], k);
            }
        });
    }

    /// Adds the products of the k-th 16 terms of a group's blades to `sums`; if `FRESH`, the sums begin with the first.
    ///
    /// Matrix instructions truncate the sums that they form, so that errors would grow with the number of terms: 16 terms of f32 are
    /// summed by themselves, and added to the others by additions that round.
    template <bool FRESH, class Members>
    GW_DEVICE static void add_products(Members, Fragment& sums, const u32 (&a)[Members::COUNT][PARTS][4],
                                       const u32 (&b)[Members::MATRICES][PARTS][4], int k) {
        u32 right[Members::COUNT][PARTS][2];
        float products[Members::COUNT][4];
        const bool begins = FRESH && k == 0;
#pragma unroll
        for (int n = 0; n < Members::COUNT; ++n) {
#pragma unroll
            for (int part = 0; part < PARTS; ++part) {
                right[n][part][0] = b[n % Members::MATRICES][part][2 * k];
                right[n][part][1] = b[n % Members::MATRICES][part][2 * k + 1];
            }
#pragma unroll
            for (int i = 0; i < 4; ++i) products[n][i] = PARTS > 1 || begins ? 0.0f : sums[Members::blade(n)][i];
        }
        Operands::multiply(products, a, right);
#pragma unroll
        for (int n = 0; n < Members::COUNT; ++n) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                float& sum = sums[Members::blade(n)][i];
                sum = PARTS > 1 && !begins ? sum + products[n][i] : products[n][i];
            }
        }
    }

    template <bool TRANSPOSED>
    GW_DEVICE static void load_matrix(u32 (&parts)[PARTS][4], u32 matrix) {
#pragma unroll
        for (int part = 0; part < PARTS; ++part) ::load_matrices<!TRANSPOSED>(parts[part], matrix + part * PART_BYTES);
    }

    /// Fragments of 16 rows and columns of a group's blades.
    template <class Rows, bool TRANSPOSED = false, class Members>
    GW_DEVICE static void load_rows(Members, u32 (&parts)[Members::COUNT][PARTS][4], u32 rows) {
#pragma unroll
        for (int n = 0; n < Members::COUNT; ++n) {
#pragma unroll
            for (int part = 0; part < PARTS; ++part) {
                ::load_matrices<TRANSPOSED>(parts[n][part], rows + Members::blade(n) * Rows::BLADE_BYTES + part * Rows::PART_BYTES);
            }
        }
    }

    /// The address of a blade's plane of [blades, rows, width], of less than 4 GiB, from that of the scalar's.
    template <class S>
    GW_DEVICE static S* plane_of(S* scalar, u32 bytes, int blade) {
        return (S*)((char*)scalar + static_cast<u64>(bytes) * blade);
    }

    /// Bytes of such a plane.
    GW_DEVICE u32 plane_bytes(int width) const { return static_cast<u32>(p.rows) * width * u32(sizeof(T)); }

    /// Two adjacent columns of x at two rows of the tile, of every blade, as they are in memory.
    struct Inputs {
        T at[BLADES][2][2];
    };

    /// Loads the thread's part of 16 rows of x, row `first` on, `from` the first of the columns of a tile; zeros past the last column.
    GW_DEVICE void load_inputs(const T* source, i64 first, int from, Inputs& values) const {
        const u32 plane = this->plane_bytes(inputs);
        const int column = from + threadIdx.x % 16 * 2;
        const bool paired = inputs % 2 == 0 && reinterpret_cast<u64>(source) % (2 * sizeof(T)) == 0;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const i64 row = min(first + threadIdx.x % 128 / 16 + 8 * half, p.rows - 1);
            const T* const at = source + row * inputs;
            if (paired) {
                const int near = column < inputs ? column : 0;
#pragma unroll
                for (int blade = 0; blade < BLADES; ++blade) {
                    const Pack<T, 2> both = *reinterpret_cast<const Pack<T, 2>*>(plane_of(at + near, plane, blade));
                    values.at[blade][half][0] = both.at[0];
                    values.at[blade][half][1] = both.at[1];
                }
            } else {
                const T *const one = at + (column < inputs ? column : 0), *const two = at + (column + 1 < inputs ? column + 1 : 0);
#pragma unroll
                for (int blade = 0; blade < BLADES; ++blade) {
                    values.at[blade][half][0] = *plane_of(one, plane, blade);
                    values.at[blade][half][1] = *plane_of(two, plane, blade);
                }
            }
        }
        if (column + 1 >= inputs) {
#pragma unroll
            for (int blade = 0; blade < BLADES; ++blade) {
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    if (column >= inputs) values.at[blade][half][0] = T{};
                    values.at[blade][half][1] = T{};
                }
            }
        }
    }

    /// Stores what `load_inputs` loaded as 16 rows of operands.
    template <class Rows>
    GW_DEVICE static void store_inputs(char* rows, const Inputs& values) {
        const int pair = threadIdx.x % 16;
        char* const own = rows + Operands::offset(threadIdx.x % 128 / 16, pair / 4) + pair % 4 * 4;
#pragma unroll
        for (int blade = 0; blade < BLADES; ++blade) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const T(&both)[2] = values.at[blade][half];
                u32 parts[PARTS];
                if constexpr (sizeof(T) == 2) {
                    parts[0] = both[0].bits | static_cast<u32>(both[1].bits) << 16;
                } else {
                    Operands::split(both[0], both[1], parts);
                }
#pragma unroll
                for (int part = 0; part < PARTS; ++part) {
                    *reinterpret_cast<u32*>(own + half * 8 * ROW + blade * Rows::BLADE_BYTES + part * Rows::PART_BYTES) = parts[part];
                }
            }
        }
    }

    /// Whether the lane's two features can be read and written as one access.
    GW_DEVICE bool is_paired(const T* array) const {
        return features % 2 == 0 && reinterpret_cast<u64>(array) % (2 * sizeof(T)) == 0;
    }

    /// The lane's row g + 8·half, `first` the group's first; the last there is if it lies past the end.
    GW_DEVICE i64 row_of(i64 first, int half) const { return min(first + line + 8 * half, p.rows - 1); }

    /// The lane's values of row g + 8·half of [blades, rows, features].
    GW_DEVICE void read(const T* source, i64 first, int half, float (&values)[BLADES][2]) const {
        const u32 plane = plane_bytes(features);
        const T* const at = source + row_of(first, half) * features;
        if (is_paired(source)) {
            const T* const near = at + min(feature, features - 2);
#pragma unroll
            for (int blade = 0; blade < BLADES; ++blade) load<2>(plane_of(near, plane, blade), values[blade]);
            return;
        }
        const T *const one = at + min(feature, features - 1), *const two = at + min(feature + 1, features - 1);
#pragma unroll
        for (int blade = 0; blade < BLADES; ++blade) {
            values[blade][0] = widen(*plane_of(one, plane, blade));
            values[blade][1] = widen(*plane_of(two, plane, blade));
        }
    }

    /// Writes the lane's values of the same rows.
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
        if constexpr (sizeof(T) == 2) {
            u32 both[1];
            Operands::split(first, second, both);
            *reinterpret_cast<u32*>(target) = both[0];
        } else {
            const float both[2] = {first, second};
            store<2>(target, both);
        }
    }

    /// Where `put` writes the lane's pair of row g.
    GW_DEVICE u32 own_offset() const { return Operands::offset(line, column) + pair * 4; }

    /// Puts the lane's two values of every blade at row g + 8·half of 16 rows of operands.
    template <class Rows>
    GW_DEVICE void put(char* rows, int half, const float (&values)[BLADES][2]) const {
        char* const own = rows + own_offset() + half * 8 * ROW;
#pragma unroll
        for (int blade = 0; blade < BLADES; ++blade) {
            u32 parts[PARTS];
            Operands::split(values[blade][0], values[blade][1], parts);
#pragma unroll
            for (int part = 0; part < PARTS; ++part) {
                *reinterpret_cast<u32*>(own + blade * Rows::BLADE_BYTES + part * Rows::PART_BYTES) = parts[part];
            }
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
