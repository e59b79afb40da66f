// Blocks of equivariant networks (see clifford/mv_block.cuh for the definition) on many rows: linear maps by the matrix instructions of
// the tensor cores. What both passes share; the passes are in mv_tiles_f32_forward.cuh and mv_tiles_f32_backward.cuh.
//
// The positions that a lane has are those of clifford/mv_tile_warp.cuh.
//
// A product is computed in three parts (x = high + low, each a TF32 number; low·low is negligible), which has the accuracy of f32. 16-bit
// features have kernels of their own, see clifford/mv_tiles.cuh. The kernels of more than 32 features, clifford/mv_wide.cuh, also have
// products of one part, and 16-bit features that are widened as they are read.
#pragma once

#include "clifford/mv_tile_warp.cuh"
#include "ptx/async.cuh"
#include "ptx/mma.cuh"

/// Features are stored in T. `PARTS` is 3, or 1 for products of TF32 numbers.
template <class A, class T = float, int MOST = 32, int PARTS = 3>
struct MvTilesF32 : MvTileWarp<A, T, MOST> {
    using Warp = MvTileWarp<A, T, MOST>;
    using typename Warp::Fragment;
    using typename Warp::Parameters;
    using Warp::BLADES, Warp::GRADES, Warp::PATHS, Warp::ROWS, Warp::WIDTH, Warp::tables;
    using Warp::column, Warp::feature, Warp::features, Warp::inputs, Warp::line, Warp::p, Warp::pair;
    /// The pitch of a row of features in shared memory: an odd multiple of 4, so that the four lanes of eight rows read 32 banks.
    static constexpr int PITCH = WIDTH + 4;

    GW_DEVICE explicit MvTilesF32(const MvBlockWeights<T>& weights) : Warp(weights) {}

    /// Loads the parameters; all threads of the block call it, and a barrier must follow before they are read. Not shared with the
    /// kernels of 16 bits, whose loop is unrolled: a body shared by both loops takes this backward pass from 254 to 255 registers.
    GW_DEVICE Parameters load_parameters(float* target) const {
        for (int at = threadIdx.x; at < Parameters::COUNT; at += blockDim.x) {
            const int feature = at % WIDTH, value = at / WIDTH, by_grade = value - PATHS;
            const void* source;
            int index;
            if (value < PATHS) {
                source = p.product;
                index = feature * PATHS + value;
            } else if (by_grade < 3 * GRADES) {
                const int kind = by_grade / GRADES;
                source = kind == 0 ? p.slope : kind == 1 ? p.shift : p.normalization;
                index = feature * GRADES + by_grade % GRADES;
            } else {
                const int kind = by_grade - 3 * GRADES;
                source = kind == 0 ? p.bias : kind == 1 ? p.left_bias : p.gain;
                index = feature;
            }
            target[at] = feature < features ? p.at(source, index) : 0.0f;
        }
        return {target};
    }

    /// Copies matrices [GRADES, count, features] to [GRADES, padded, pitch] in shared memory, with zeros as padding of `WIDTH` columns.
    /// Returns the first address behind them.
    GW_DEVICE float* load_matrices(float* target, const void* source, int count, int padded, int pitch) const {
        const int lines = GRADES * padded, o = threadIdx.x % WIDTH, step = blockDim.x / WIDTH;
#pragma unroll 8
        for (int at = threadIdx.x / WIDTH; at < lines; at += step) {
            const int grade = at / padded, i = at % padded;
            const bool there = i < count && o < features;
            target[at * pitch + o] = there ? p.at(source, (grade * count + i) * features + o) : 0.0f;
        }
        return target + lines * pitch;
    }

    /// Starts copying 16 rows of x, `first` on, to [BLADES, ROWS, pitch] in shared memory, with zeros for rows past the end and in
    /// columns up to `padded`. The group's 128 threads call it; the data is there after `fetched` and a barrier of the group.
    GW_DEVICE void fetch(float* target, const float* source, i64 first, int padded, int pitch) const {
        if (inputs % 4 == 0 && reinterpret_cast<u64>(source) % 16 == 0) {
            fetch_by<4, 8>(target, source, first, padded, pitch);
        } else {
            fetch_by<1, 32>(target, source, first, padded, pitch);
        }
    }

    template <int V, int LANES>
    GW_DEVICE void fetch_by(float* target, const float* source, i64 first, int padded, int pitch) const {
        constexpr int TOGETHER = 4 * (32 / LANES);  // Lines that the group copies at a time.
        const int lane = threadIdx.x % 32, own = column * (32 / LANES) + lane / LANES;
#pragma unroll 1
        for (int i = lane % LANES * V; i < padded; i += LANES * V) {
#pragma unroll 16
            for (int number = own; number < BLADES * ROWS; number += TOGETHER) {
                const int blade = number / ROWS, row = number % ROWS;
                const bool inside = first + row < p.rows && i < inputs;
                const i64 from = inside ? (blade * p.rows + first + row) * inputs + i : 0;
                float* const to = target + number * pitch + i;
                if constexpr (V == 4) {
                    copy_async_16(to, source + from, inside ? 16 : 0);
                } else {
                    copy_async_4(to, source + from, inside ? 4 : 0);
                }
            }
        }
    }

    /// Waits for the copies that this thread started.
    GW_DEVICE static void fetched() {
        copy_async_commit();
        copy_async_wait<0>();
    }

    /// An operand of a matrix instruction: two TF32 numbers that add up to it, or the nearest one.
    template <int N>
    struct Operand {
        u32 high[N], low[N];

        GW_DEVICE void set(int i, float value) {
            if constexpr (PARTS == 1) {
                high[i] = to_tf32(value);
            } else {
                // Truncated, which takes one instruction where rounding takes four; the instructions would truncate it anyway.
                high[i] = __float_as_uint(value) & 0xffffe000u;
                low[i] = __float_as_uint(value - __uint_as_float(high[i]));
            }
        }
    };

    /// d += a·b. The instructions truncate each sum that they form, so that errors would grow with the number of terms: a step of 8 terms
    /// is summed by itself, and added to the others by additions that round.
    GW_DEVICE static void multiply(float (&d)[4], const Operand<4>& a, const Operand<2>& b) {
        if constexpr (PARTS == 1) {
            mma_tf32(d, a.high, b.high);
            return;
        }
        float step[4] = {};
        mma_tf32(step, a.low, b.high);
        mma_tf32(step, a.high, b.low);
        mma_tf32(step, a.high, b.high);
#pragma unroll
        for (int i = 0; i < 4; ++i) d[i] += step[i];
    }

    /// sums[m][blade] += rows[blade]·matrix m of the blade's grade, for the group's rows and 8 columns of each of M matrices; of the
    /// transposed matrices if `TRANSPOSED`. `rows` is [BLADES, plane/pitch rows, pitch]; the sum runs over `count` columns of it, a
    /// multiple of 8. `matrices` point to the first of the 8 columns (rows if transposed).
    template <bool TRANSPOSED, int M>
    GW_DEVICE void accumulate(float (&sums)[M][BLADES][4], const float* rows, int plane, int pitch, int count,
                              const float* const (&matrices)[M], int grade_stride, int matrix_pitch) const {
        const float* const own = rows + line * pitch + pair;
        const int at_first = TRANSPOSED ? line * matrix_pitch + pair : pair * matrix_pitch + line;
        const int next = TRANSPOSED ? 1 : matrix_pitch;
#pragma unroll 1
        for (int k = 0; k < count; k += 8) {
            each<GRADES>([&](auto index) {
                constexpr int grade = decltype(index)::value, begin = tables.first[grade], end = tables.first[grade + 1];
                Operand<2> b[M];
#pragma unroll
                for (int m = 0; m < M; ++m) {
                    const float* const matrix = matrices[m] + grade * grade_stride + at_first + k * next;
                    b[m].set(0, matrix[0]);
                    b[m].set(1, matrix[4 * next]);
                }
                each<end - begin>([&](auto number) {
                    constexpr int blade = begin + decltype(number)::value;
                    const float* const from = own + blade * plane + k;
                    Operand<4> a;
                    a.set(0, from[0]);
                    a.set(1, from[8 * pitch]);
                    a.set(2, from[4]);
                    a.set(3, from[8 * pitch + 4]);
#pragma unroll
                    for (int m = 0; m < M; ++m) multiply(sums[m][blade], a, b[m]);
                });
            });
        }
    }

    /// The lane's values of rows g + 8·half of [blades, rows, features], `first` the group's first row; zeros where there are none.
    GW_DEVICE void read(const T* source, i64 first, int half, float (&values)[BLADES][2]) const {
        const i64 row = first + line + 8 * half, plane = p.rows * features;
        const T* at = source + row * features + feature;
        const bool inside = row < p.rows && feature < features;
        if (Warp::is_paired(source, features)) {
#pragma unroll
            for (int blade = 0; blade < BLADES; ++blade, at += plane) {
                values[blade][0] = values[blade][1] = 0;
                if (inside) load<2>(at, values[blade]);
            }
            return;
        }
#pragma unroll
        for (int blade = 0; blade < BLADES; ++blade, at += plane) {
            values[blade][0] = inside ? widen(at[0]) : 0.0f;
            values[blade][1] = inside && feature + 1 < features ? widen(at[1]) : 0.0f;
        }
    }

    /// Writes the lane's values of the same rows.
    GW_DEVICE void write(T* target, i64 first, const Fragment& values) const {
        const bool paired = Warp::is_paired(target, features);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float row[BLADES][2];
            Warp::values_of_row(values, half, row);
            write_row(target, first, half, row, paired);
        }
    }

    /// The same of one row; `paired` says whether two features are written at once.
    GW_DEVICE void write_row(T* target, i64 first, int half, const float (&values)[BLADES][2], bool paired) const {
        const i64 row = first + line + 8 * half, plane = p.rows * features;
        if (row >= p.rows || feature >= features) return;
        T* at = target + row * features + feature;
#pragma unroll
        for (int blade = 0; blade < BLADES; ++blade, at += plane) {
            if (paired) {
                store<2>(at, values[blade]);
            } else {
                at[0] = narrow<T>(values[blade][0]);
                if (feature + 1 < features) at[1] = narrow<T>(values[blade][1]);
            }
        }
    }

    /// Puts the lane's two values of every blade at row g + 8·half of [BLADES, ROWS, PITCH].
    GW_DEVICE void put(float* rows, int plane, int half, const float (&values)[BLADES][2]) const {
        float* at = rows + (line + 8 * half) * PITCH + feature;
#pragma unroll
        for (int blade = 0; blade < BLADES; ++blade, at += plane) store<2>(at, values[blade]);
    }
};
