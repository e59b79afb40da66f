// Linear maps in blocks with more than 32 features (see clifford/block/sm90_64.cuh): operands in shared memory and products of them.
//
// An operand is one f16 number or the sum of two, high + low, times a power of two (see clifford/block/operands_two_f16.cuh), split once, when it is written.
// A tile, 16 rows of all features and blades, has one power of two, and a matrix has one. Two numbers have 22 bits, and three products
// of them the accuracy of f32; one number has the 11 bits of TF32.
//
// High parts and low ones are apart. Their lines are 64 values, 8 chunks of 8, of which chunk c of line i lies at c XOR i%8, so that any eight
// adjacent lines have a chunk in 32 different banks.
#pragma once

#include "clifford/block/launch.cuh"
#include "clifford/block/operands_two_f16.cuh"
#include "clifford/block/sm90_common.cuh"
#include "ptx/bulk.cuh"

/// `PRODUCTS` is 3 for two numbers, or 1.
template <class A, class T, int PRODUCTS>
struct Block64Products : BlockSm90<A, T, 64> {
    using Common = BlockSm90<A, T, 64>;
    using TwoF16 = OperandsTwoF16;
    using typename Common::Fragment;
    using Common::BLADES, Common::COLUMNS, Common::GRADES, Common::ROWS, Common::WIDTH, Common::tables;
    using Common::column, Common::features, Common::line, Common::p, Common::pair;

    /// Numbers of an operand, and bytes of a line.
    static constexpr int NUMBERS = PRODUCTS == 3 ? 2 : 1;
    using Sizes = Block64Sizes<A, NUMBERS>;
    static constexpr int LINE = Sizes::LINE, PART = Sizes::PART, PLANE = Sizes::PLANE, TILE_BYTES = Sizes::TILE_BYTES, ARRAY = Sizes::ARRAY;
    /// Bytes from the high parts of a blade to the low ones. Raw values have low parts in any case.
    static constexpr int LOW = NUMBERS == 2 ? PART : BLADES * PART;
    static constexpr int MATRIX_PART = Sizes::MATRIX_PART, GRADE = Sizes::GRADE, MATRIX = Sizes::MATRIX, THREADS = Sizes::THREADS;
    static_assert(Sizes::ROWS == ROWS && Sizes::WIDTH == WIDTH && Sizes::COLUMNS == COLUMNS);

    int own;    // Where the lane's first values are in a plane of rows, in bytes; see `word_offset`.
    int steps;  // Terms of the sums in products, by 16.

    GW_DEVICE explicit Block64Products(const BlockOperands<T>& weights) : Common(weights) {
        own = offset(line, column) + 4 * pair;
        steps = (features + 15) / 16;
    }

    /// Where chunk `chunk` of high parts of a line is.
    GW_DEVICE static constexpr int offset(int line, int chunk) { return line * LINE + ((chunk ^ (line % 8)) * 16); }

    /// Hides from the compiler that x is the same for all tiles: values computed from it would stay in registers, which are scarce here.
    template <class X>
    GW_DEVICE static X opaque(X x) {
        if constexpr (sizeof(X) == 8) {
            asm volatile("" : "+l"(x));
        } else {
            asm volatile("" : "+r"(x));
        }
        return x;
    }

    // A lane has two words of every row it works on: the parts of its two features, or the features themselves as f32 ("raw"). No other lane writes
    // them.

    /// One of the lane's words of row g + 8·half, of the first blade.
    GW_DEVICE int word_offset(int half, int side) const { return own + half * 8 * LINE + side * LOW; }

    /// A raw value of the lane in an array of rows.
    GW_DEVICE float& raw(char* rows, int blade, int half, int side) const {
        return *reinterpret_cast<float*>(rows + blade * PLANE + word_offset(half, side));
    }

    /// Puts the lane's two values of every blade of row g + 8·half to an array of rows, raw.
    GW_DEVICE void store_raw(char* rows, int half, const float (&values)[BLADES][2]) const {
#pragma unroll
        for (int blade = 0; blade < BLADES; ++blade) {
            raw(rows, blade, half, 0) = values[blade][0];
            raw(rows, blade, half, 1) = values[blade][1];
        }
    }

    /// The same in parts.
    GW_DEVICE void store_operands(char* rows, int half, float factor, const float (&values)[BLADES][2]) const {
#pragma unroll
        for (int blade = 0; blade < BLADES; ++blade) store_split(rows + blade * PLANE + word_offset(half, 0), LOW, values[blade], factor);
    }

    /// Writes the parts of two values, at `high` and `low` bytes behind it.
    GW_DEVICE static void store_split(char* high, int low, const float (&values)[2], float factor) {
        const float first = values[0] * factor, second = values[1] * factor;
        if constexpr (PRODUCTS == 3) {
            TwoF16::store(high, low, first, second);
        } else {
            *reinterpret_cast<u32*>(high) = TwoF16::round(first, second);
        }
    }

    /// Publishes the largest magnitude of the warp's values to `shared`, a value of each of COLUMNS warps. A barrier must follow before
    /// `scale_of_tile`.
    GW_DEVICE void publish_largest(const float (&values)[2][BLADES][2], float* shared) const {
        float largest = 0;
#pragma unroll
        for (int n = 0; n < 4 * BLADES; ++n) largest = TwoF16::larger(largest, values[n / 2 / BLADES][n / 2 % BLADES][n % 2]);
        largest = TwoF16::largest_of_warp(largest);
        if (threadIdx.x % 32 == 0) shared[column] = largest;
    }

    GW_DEVICE static typename TwoF16::Scale scale_of_tile(const float* shared) {
        float values[COLUMNS], largest = 0;
#pragma unroll
        for (int n = 0; n < COLUMNS; n += 4) {
            float four[4];
            load<4>(shared + n, four);
#pragma unroll
            for (int i = 0; i < 4; ++i) values[n + i] = four[i];
        }
#pragma unroll
        for (int n = 0; n < COLUMNS; ++n) largest = fmaxf(largest, values[n]);
        return TwoF16::scale_of(largest);
    }

    /// Starts storing a tile's operands to its place in [tiles, TILE_BYTES]. One thread calls it, after all called `shared_fence` and a barrier;
    /// before the tile is overwritten, it calls `store_wait`, and a barrier follows.
    GW_DEVICE static void store_tile(char* target, i64 tile, const char* rows) {
        bulk_store(target + tile * TILE_BYTES, rows, TILE_BYTES);
        store_commit();
    }

    /// Loads the matrices `right` and `left`, one behind the other, with zeros for what there is not, and writes the inverses of their scales.
    /// All threads call it, and a barrier must follow before they are read. `shared` has room for a value of each warp.
    GW_DEVICE void load_matrices(char* target, float* inverses, float* shared) const {
        p.typed([&](auto zero) {
            using P = decltype(zero);
            const u64 bits = reinterpret_cast<u64>(p.right) | reinterpret_cast<u64>(p.left) | features * sizeof(P);
            if (bits % (2 * sizeof(P)) == 0) {
                load_matrices_of<P, true>(target, inverses, shared);
            } else {
                load_matrices_of<P, false>(target, inverses, shared);
            }
        });
    }

    /// The same of elements of type P, of which two adjacent ones can be read as one if `PAIRED`. Not unrolled over the matrices: a launch on few
    /// rows waits longer for instructions that it executes once than for these loads.
    template <class P, bool PAIRED>
    GW_DEVICE void load_matrices_of(char* target, float* inverses, float* shared) const {
        constexpr int PAIRS = WIDTH / 2, STEP = THREADS / PAIRS, COUNT = GRADES * WIDTH / STEP;
        const int o = threadIdx.x % PAIRS * 2, own_line = threadIdx.x / PAIRS;
#pragma unroll 1
        for (int m = 0; m < 2; ++m, target += MATRIX) {
            const P* const source = static_cast<const P*>(m == 0 ? p.right : p.left) + o;
            float values[COUNT][2], largest = 0;
#pragma unroll
            for (int n = 0; n < COUNT; ++n) {
                const int at = own_line + n * STEP, grade = at / WIDTH, i = at % WIDTH;
                const P* const from = source + (grade * features + i) * features;
                values[n][0] = values[n][1] = 0;
                if constexpr (PAIRED) {
                    if (i < features && o < features) ::load<2>(from, values[n]);
                } else {
                    if (i < features && o < features) values[n][0] = widen(from[0]);
                    if (i < features && o + 1 < features) values[n][1] = widen(from[1]);
                }
            }
#pragma unroll
            for (int n = 0; n < 2 * COUNT; ++n) largest = TwoF16::larger(largest, values[n / 2][n % 2]);
            const auto scale = TwoF16::scale_of_block<COLUMNS>(largest, shared);
            if (threadIdx.x == 0) inverses[m] = scale.inverse;
#pragma unroll
            for (int n = 0; n < COUNT; ++n) {
                const int at = own_line + n * STEP;
                store_split(target + at / WIDTH * GRADE + offset(at % WIDTH, o / 8) + o % 8 * 2, MATRIX_PART, values[n], scale.factor);
            }
        }
    }

    /// sums[m][blade] += rows[blade]·matrix m of the blade's grade, for the group's rows and the warp's 8 columns of each of M matrices, which lie
    /// one behind the other; of the transposed matrices if `TRANSPOSED`. `inverse` is that of the rows' scale, `matrix_inverses` are those of the
    /// matrices.
    template <bool TRANSPOSED, int M>
    GW_DEVICE void accumulate(Fragment (&sums)[M], const char* rows, const char* matrices, float inverse,
                              const float* matrix_inverses) const {
        const int lane = opaque(threadIdx.x) % 32;
        const u32 from_rows = shared_address(rows) + offset(lane % 16, lane / 16);
        const u32 from_lines = shared_address(matrices) + lane / 16 * MATRIX_PART +
                               (TRANSPOSED ? offset(8 * column + lane % 8, lane / 8 % 2) : offset(lane % 16, column));
        float factors[M];
#pragma unroll
        for (int m = 0; m < M; ++m) factors[m] = matrix_inverses[m] * inverse;
        // Matrix instructions truncate the sums that they form. With two numbers, a step of 16 terms is summed by itself, and added to the others by
        // additions that round.
        Fragment all[M];
        if constexpr (PRODUCTS == 1) {
#pragma unroll
            for (int n = 0; n < 4 * M * BLADES; ++n) all[n / (4 * BLADES)][n / 4 % BLADES][n % 4] = 0;
        }
#pragma unroll 1
        for (int k = 0; k < steps; ++k) {
            const u32 at_rows = from_rows ^ (32 * k), at_lines = TRANSPOSED ? from_lines ^ (32 * k) : from_lines + k * 16 * LINE;
            each<GRADES>([&](auto index) {
                constexpr int grade = decltype(index)::value, begin = tables.first[grade], end = tables.first[grade + 1];
                u32 b[M][2 * NUMBERS];
#pragma unroll
                for (int m = 0; m < M; ++m) ::load_matrices<!TRANSPOSED>(b[m], at_lines + m * MATRIX + grade * GRADE);
                each<end - begin>([&](auto number) {
                    constexpr int blade = begin + decltype(number)::value;
                    u32 high[4];
                    ::load_matrices<false>(high, at_rows + blade * PLANE);
                    if constexpr (PRODUCTS == 1) {
#pragma unroll
                        for (int m = 0; m < M; ++m) mma_16(all[m][blade], high, b[m], f16{});
                    } else {
                        u32 low[4];
                        ::load_matrices<false>(low, at_rows + blade * PLANE + LOW);
#pragma unroll
                        for (int m = 0; m < M; ++m) {
                            const u32 b_high[2] = {b[m][0], b[m][1]}, b_low[2] = {b[m][2], b[m][3]};
                            float step[4] = {};
                            mma_16(step, low, b_high, f16{});
                            mma_16(step, high, b_low, f16{});
                            mma_16(step, high, b_high, f16{});
#pragma unroll
                            for (int i = 0; i < 4; ++i) sums[m][blade][i] += step[i] * factors[m];
                        }
                    }
                });
            });
        }
        if constexpr (PRODUCTS == 1) {
#pragma unroll
            for (int m = 0; m < M; ++m) {
#pragma unroll
                for (int n = 0; n < 4 * BLADES; ++n) sums[m][n / 4][n % 4] += all[m][n / 4][n % 4] * factors[m];
            }
        }
    }
};
