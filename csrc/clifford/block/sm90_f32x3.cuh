// Blocks of equivariant networks (clifford/block/definition.cuh) on many rows of f32: linear maps by the matrix instructions
// of the tensor cores. What both passes share; the passes are in sm90_f32x3_forward.cuh and sm90_f32x3_backward.cuh.
//
// The positions that a lane has are those of clifford/block/sm90_common.cuh; operands are those of clifford/block/operands_two_f16.cuh, split once, when they
// are written to shared memory.
#pragma once

#include "clifford/block/launch.cuh"
#include "clifford/block/operands_two_f16.cuh"
#include "clifford/block/sm90_common.cuh"
#include "ptx/async.cuh"
#include "ptx/bulk.cuh"

/// `PAIRED` says that features are even in number, and all arrays of them aligned to two: branches at every access would keep loads from
/// being in flight together.
template <class A, int TILES, bool PAIRED>
struct BlockF32x3 : BlockSm90<A, float> {
    using Common = BlockSm90<A, float>;
    using TwoF16 = OperandsTwoF16;
    using typename Common::Fragment;
    using typename Common::Parameters;
    using Common::BLADES, Common::COLUMNS, Common::GRADES, Common::PATHS, Common::ROWS, Common::WIDTH, Common::tables;
    using Common::column, Common::feature, Common::features, Common::group, Common::inputs, Common::line, Common::p, Common::pair;
    using Sizes = BlockF32x3Sizes<A, TILES>;
    static constexpr int PLANE = Sizes::PLANE, ARRAY = Sizes::ARRAY, GRADE = Sizes::GRADE, MATRIX = Sizes::MATRIX;
    static_assert(Sizes::ROW == TwoF16::ROW && Sizes::ROWS == ROWS && Sizes::WIDTH == WIDTH);
    static_assert(Sizes::PARAMETERS == Parameters::COUNT * sizeof(float));

    GW_DEVICE explicit BlockF32x3(const BlockOperands<float>& weights) : Common(weights) {}

    /// Inverses of the scales of the matrices in shared memory, in their order.
    struct MatrixScales {
        float inverse[4];
    };

    /// Starts to copy the parameters, as a group of copies of their own; all THREADS threads of the block call it.
    template <int THREADS>
    GW_DEVICE Parameters fetch_parameters(float* target) const {
#pragma unroll 1
        for (int at = threadIdx.x; at < Parameters::COUNT; at += THREADS) {
            const int feature = at % WIDTH, value = at / WIDTH, by_grade = value - PATHS;
            const int kind = by_grade / GRADES, single = by_grade - 3 * GRADES;
            const void* const source = by_grade < 0 ? p.product
                                       : single < 0 ? (kind == 0 ? p.slope : kind == 1 ? p.shift : p.normalization)
                                                    : (single == 0 ? p.bias : single == 1 ? p.left_bias : p.gain);
            const int index = by_grade < 0 ? feature * PATHS + value : single < 0 ? feature * GRADES + by_grade % GRADES : feature;
            const bool exists = feature < features;
            copy_async_4(target + at, static_cast<const float*>(source) + (exists ? index : 0), exists ? 4 : 0);
        }
        copy_async_commit();
        return {target};
    }

    /// Loads the matrices as [right, left, linear by 32 inputs], with zeros for what there is not, and their scales. All THREADS threads of
    /// the block call it, and a barrier must follow before they are read. `shared` has room for a value of each warp.
    ///
    /// Not unrolled: a launch on few rows waits longer for instructions that it executes once than for these loads.
    template <int THREADS>
    GW_DEVICE void load_matrices(char* target, MatrixScales* scales, float* shared) const {
        constexpr int PAIRS = WIDTH / 2, STEP = THREADS / PAIRS, LINES = GRADES * WIDTH, COUNT = (LINES + STEP - 1) / STEP;
        const int o = threadIdx.x % PAIRS * 2, own = threadIdx.x / PAIRS;
#pragma unroll 1
        for (int m = 0; m < 2 + TILES; ++m, target += MATRIX) {
            const void* const source = m == 0 ? p.right : m == 1 ? p.left : p.linear;
            const int count = m < 2 ? features : inputs, first = m < 2 ? 0 : WIDTH * (m - 2);
            float values[COUNT][2], largest = 0;
#pragma unroll
            for (int n = 0; n < COUNT; ++n) {
                const int at = own + n * STEP, grade = at / WIDTH, i = first + at % WIDTH;
                const float* const from = static_cast<const float*>(source) + (grade * count + i) * features + o;
                const bool exists = at < LINES && i < count;
                values[n][0] = exists && o < features ? from[0] : 0.0f;
                values[n][1] = exists && o + 1 < features ? from[1] : 0.0f;
            }
#pragma unroll
            for (int n = 0; n < 2 * COUNT; ++n) largest = TwoF16::larger(largest, values[n / 2][n % 2]);
            const auto scale = TwoF16::scale_of_block<THREADS / 32>(largest, shared);
            if (threadIdx.x == 0) scales->inverse[m] = scale.inverse;
#pragma unroll
            for (int n = 0; n < COUNT; ++n) {
                const int at = own + n * STEP;
                if (at >= LINES) continue;
                char* const to = target + at / WIDTH * GRADE + TwoF16::offset(at % WIDTH, o / 8) + o % 8 * 2;
                TwoF16::store(to, TwoF16::to_low(at % WIDTH), values[n][0] * scale.factor, values[n][1] * scale.factor);
            }
        }
    }

    // The lane's places in an array [BLADES, ROWS rows]: two words for each row of every blade, which are the high and low parts of its two
    // features, or before they are split the two features themselves ("raw"). No other lane writes them.

    /// The lane's first word.
    GW_DEVICE char* own_words(char* rows) const { return rows + TwoF16::offset(line, column) + 4 * pair; }

    /// A raw value: `own` is the lane's first word.
    GW_DEVICE float& raw(char* own, int blade, int half, int side) const {
        return *reinterpret_cast<float*>(own + blade * PLANE + half * 8 * TwoF16::ROW + side * TwoF16::to_low(line));
    }

    /// Starts copies of the lane's values of 16 rows of [BLADES, rows, width] from column `from` on, as raw values. Zeros where there are
    /// none. They may be read after `fetched`.
    GW_DEVICE void fetch_raw(char* own, const float* source, i64 first, int from, int width) const {
        asm volatile("" ::: "memory");  // What was read of these places before stays before.
        const int at = from + feature;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const i64 row = first + line + 8 * half, plane = p.rows * width;
            const int one = row < p.rows && at < width ? 4 : 0, two = row < p.rows && at + 1 < width ? 4 : 0;
            const float* next = source + (one ? row * width + at : 0);
#pragma unroll
            for (int blade = 0; blade < BLADES; ++blade, next += plane) {
                copy_async_4(&raw(own, blade, half, 0), next, one);
                copy_async_4(&raw(own, blade, half, 1), next + 1, two);  // Of no bytes, the address is not read.
            }
        }
    }

    /// Waits for all copies that this lane started, but for the last OPEN groups of them.
    template <int OPEN = 0>
    GW_DEVICE static void fetched() {
        copy_async_wait<OPEN>();
        asm volatile("" ::: "memory");
    }

    /// The lane's raw values.
    GW_DEVICE void read_raw(char* own, Fragment& values) const {
#pragma unroll
        for (int blade = 0; blade < BLADES; ++blade) {
#pragma unroll
            for (int at = 0; at < 4; ++at) values[blade][at] = raw(own, blade, at / 2, at % 2);
        }
    }

    /// Writes the parts of the lane's values to its place `own`, and their scale to that of the warp's column.
    GW_DEVICE void store_operands(char* own, const Fragment& values, float* scales) const {
        float largest = 0;
#pragma unroll
        for (int blade = 0; blade < BLADES; ++blade) {
#pragma unroll
            for (int at = 0; at < 4; ++at) largest = TwoF16::larger(largest, values[blade][at]);
        }
        const auto scale = TwoF16::scale_of(TwoF16::largest_of_warp(largest));
        if (threadIdx.x % 32 == 0) scales[column] = scale.inverse;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
#pragma unroll
            for (int blade = 0; blade < BLADES; ++blade) {
                TwoF16::store(own + blade * PLANE + half * 8 * TwoF16::ROW, TwoF16::to_low(line), values[blade][2 * half] * scale.factor,
                             values[blade][2 * half + 1] * scale.factor);
            }
        }
    }

    /// Where the lane finds its rows of the first fragments of matrices, see `accumulate`. `matrices` is the first matrix.
    template <bool TRANSPOSED>
    GW_DEVICE u32 matrices_at(const char* matrices) const {
        const int lane = this->opaque_thread() % 32;
        return shared_address(matrices) + (TRANSPOSED ? TwoF16::two_right_transposed_offset(lane, 8 * column, GRADE)
                                                      : TwoF16::two_right_offset(lane, column, GRADE));
    }

    /// sums[m][blade] += rows[blade]·matrix m of the blade's grade, for 16 rows and the warp's 8 columns of M matrices; of the transposed
    /// matrices if `TRANSPOSED`. The sum runs over `chunks`·8 columns of the rows. `rows` and `matrices` are where the lane finds its rows of
    /// the first fragments. `scales` are those of the rows, `inverses` those of the matrices.
    template <bool TRANSPOSED, int M>
    GW_DEVICE void accumulate(float (&sums)[M][BLADES][4], u32 rows, const float* scales, int chunks, const u32 (&matrices)[M],
                              const float (&inverses)[M]) const {
#pragma unroll 1
        for (int k = 0; k < chunks; ++k) {
            const u32 at = rows ^ (16 * k);
            float factors[M];
#pragma unroll
            for (int m = 0; m < M; ++m) factors[m] = scales[k] * inverses[m];
            each<(GRADES + 1) / 2>([&](auto index) {
                constexpr int two = 2 * decltype(index)::value, count = two + 1 < GRADES ? 2 : 1;
                u32 b[M][2 * count];
#pragma unroll
                for (int m = 0; m < M; ++m) {
                    ::load_matrices<!TRANSPOSED>(b[m], (TRANSPOSED ? matrices[m] ^ (16 * k) : matrices[m] + k * 8 * TwoF16::ROW) + two * GRADE);
                }
                each<count>([&](auto which) {
                    constexpr int n = decltype(which)::value, grade = two + n, begin = tables.first[grade], end = tables.first[grade + 1];
                    each<end - begin>([&](auto number) {
                        constexpr int blade = begin + decltype(number)::value;
                        u32 a[4];
                        ::load_matrices<false>(a, at + blade * PLANE);
#pragma unroll
                        for (int m = 0; m < M; ++m) {
                            // The instructions truncate the sums that they form: a step of 8 terms is summed by itself, and added to the
                            // others by additions that round.
                            float step[4] = {};
                            mma_f16_8(step, a[2], a[3], b[m][2 * n]);
                            mma_f16_8(step, a[0], a[1], b[m][2 * n + 1]);
                            mma_f16_8(step, a[0], a[1], b[m][2 * n]);
#pragma unroll
                            for (int i = 0; i < 4; ++i) sums[m][blade][i] += step[i] * factors[m];
                        }
                    });
                });
            });
        }
    }

    /// The lane's values of rows g and g + 8 of [blades, rows, features], `first` the first of 16; zeros where there are none.
    GW_DEVICE void read(const float* source, i64 first, int half, float (&values)[BLADES][2]) const {
        const i64 row = first + line + 8 * half, plane = p.rows * features;
        const float* at = source + row * features + feature;
        const bool inside = row < p.rows && feature < features;
#pragma unroll
        for (int blade = 0; blade < BLADES; ++blade, at += plane) {
            values[blade][0] = values[blade][1] = 0;
            if constexpr (PAIRED) {
                if (inside) load<2>(at, values[blade]);
            } else {
                if (inside) values[blade][0] = at[0];
                if (inside && feature + 1 < features) values[blade][1] = at[1];
            }
        }
    }
    GW_DEVICE void read(const float* source, i64 first, Fragment& values) const {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float row[BLADES][2];
            read(source, first, half, row);
#pragma unroll
            for (int blade = 0; blade < BLADES; ++blade) {
                values[blade][2 * half] = row[blade][0];
                values[blade][2 * half + 1] = row[blade][1];
            }
        }
    }

    /// Writes the lane's values of the same rows.
    GW_DEVICE void write(float* target, i64 first, const Fragment& values) const {
        const i64 plane = p.rows * features;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const i64 row = first + line + 8 * half;
            if (row >= p.rows || feature >= features) continue;
            float* at = target + row * features + feature;
#pragma unroll
            for (int blade = 0; blade < BLADES; ++blade, at += plane) {
                const float both[2] = {values[blade][2 * half], values[blade][2 * half + 1]};
                if constexpr (PAIRED) {
                    store<2>(at, both);
                } else {
                    at[0] = both[0];
                    if (feature + 1 < features) at[1] = both[1];
                }
            }
        }
    }

    /// Prefetches `count` rows of [BLADES, rows, width], `first` on into the second-level cache, where their planes can be copied as they are:
    /// the lanes of the block's warp `number` take a plane each. While a block works on rows, memory fetches the next ones.
    GW_DEVICE void prefetch(const float* source, i64 first, int count, int width, int number) const {
        const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        const i64 left = p.rows - first, present = left < count ? left : count;
        if (warp != number || lane >= BLADES || present <= 0 || source == nullptr) return;
        const float* const from = source + (lane * p.rows + first) * width;
        const u32 bytes = static_cast<u32>(present * width * sizeof(float)) / 16 * 16;
        if (reinterpret_cast<u64>(from) % 16 == 0 && bytes > 0) bulk_prefetch(from, bytes);
    }
};
