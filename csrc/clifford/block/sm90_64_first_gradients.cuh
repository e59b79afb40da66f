// Gradients of the first linear map of blocks with more than 32 features, y = x·matrix by grade, see clifford/block/sm90_64.cuh.
// Names: gw_block_sm90_64_bwd_first_<COLUMNS>_<algebra>_<dtype>, and gw_block_sm90_64_f32x3_bwd_first… of operands in two numbers.
#pragma once

#include "clifford/block/sm90_64_first_rows.cuh"

/// grad_x[blade][row] = grad[blade][row]·transpose of the matrix of the blade's grade, unless `grad_x` is null (then `matrices` may be), and
/// partial[block][grade][m][n] = Σ x[blade][row][m]·grad[blade][row][n] over the blades of the grade and the block's rows. Both gradients need the
/// gradient of y, which is so read once. x and grad_x are [BLADES, rows, inputs], with rows `pitch` elements apart, grad is [BLADES, rows, features],
/// features at most 64, and matrices are [GRADES, inputs, features].
///
/// A block has COLUMNS columns of x, by blockIdx.y, and all of grad; 80 columns instead of 64 serve the 65 of a layer that takes an attribute
/// beside 64 features. It has half of the blades, by blockIdx.z, one after the other, so that it has the sums and the matrix of one grade in
/// registers. 32 rows of one blade at a time come to shared memory, some steps ahead. Warps have a part each:
///
/// - six or eight copy rows, and where these are f32, split them in place into operands, two f16 numbers or one (see clifford/block/operands_two_f16.cuh) with
///   a power of two for 16 rows of an array;
/// - one for each 16 columns of x forms the sums;
/// - one for each 16 columns of x forms grad_x, with its columns of the matrix in registers.
///
/// Operands of 16 bits are multiplied as they are. Matrix instructions, which truncate, add 16 products of high parts at a time; the rest are
/// additions that round, but for sums of 16-bit rows.
template <class A, class T, int PRODUCTS, int COLUMNS>
struct Block64FirstGradients : Block64FirstRows<A, T, PRODUCTS, COLUMNS> {
    using Rows = Block64FirstRows<A, T, PRODUCTS, COLUMNS>;
    using typename Rows::TwoF16;
    using typename Rows::Sources;
    using Rows::ARRAY, Rows::CHUNK, Rows::GRADES, Rows::GROUPS, Rows::LOW, Rows::MULTIPLYING, Rows::NUMBERS, Rows::ROWS, Rows::SPLIT;
    using Rows::STAGE, Rows::STAGES, Rows::WIDTH, Rows::tables;
    using Rows::begin, Rows::column, Rows::empty, Rows::end, Rows::full, Rows::inverses, Rows::shared, Rows::sources, Rows::tiles;
    template <int COUNT>
    static constexpr int LINE = Rows::template LINE<COUNT>;
    /// The type of numbers in shared memory.
    static constexpr auto number_type() {
        if constexpr (SPLIT) {
            return f16{};
        } else {
            return T{};
        }
    }
    using Number = decltype(number_type());
    static constexpr int STRIPS = WIDTH / 8, STEPS = WIDTH / 16;

    /// See Block64FirstRows for `shared`.
    GW_DEVICE static void run(char* shared, const Sources& sources, T* grad_x, float* partial) {
        const Block64FirstGradients pass(shared, sources);
        const int part = threadIdx.x - MULTIPLYING;
        if (part < 0) {
            pass.matrix_gradients(partial);
        } else if (part < MULTIPLYING) {
            pass.input_gradients(grad_x);
        } else {
            pass.produce(part - MULTIPLYING);
        }
    }

  private:
    int own_column;       // The warp's first column of x, within the block.
    int line, pair;  // lane/4 and lane%4.

    GW_DEVICE Block64FirstGradients(char* shared, const Sources& sources) : Rows(shared, sources) {
        const int lane = threadIdx.x % 32;
        own_column = threadIdx.x % MULTIPLYING / 32 * 16;
        line = lane / 4;
        pair = lane % 4;
    }

    GW_DEVICE static int grade_of(int blade) {
        int grade = 0;
        each<GRADES - 1>([&](auto index) {
            constexpr int first = tables.first[decltype(index)::value + 1];
            grade += blade >= first ? 1 : 0;
        });
        return grade;
    }

    /// step += a·b of operands in two numbers or one.
    GW_DEVICE static void multiply(float (&step)[4], const u32 (&a)[NUMBERS][4], const u32 (&b)[NUMBERS][2]) {
        if constexpr (PRODUCTS == 3) {
            mma_16(step, a[1], b[0], f16{});
            mma_16(step, a[0], b[1], f16{});
        }
        mma_16(step, a[0], b[0], Number{});
    }

    GW_DEVICE static void add_scaled(float (&sums)[4], const float (&step)[4], float factor) {
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[i] += step[i] * factor;
    }

    /// For one grade after the other, calls begin_grade(grade), f(blade, first row, stage, inverses of scales) for each of its steps, and
    /// end_grade(grade).
    template <class B, class F, class E>
    GW_DEVICE void each_step(B begin_grade, F f, E end_grade) const {
        int step = 0;
#pragma unroll 1
        for (int blade = begin; blade < end;) {
            const int grade = grade_of(blade);
            begin_grade(grade);
#pragma unroll 1
            for (; blade < end && grade_of(blade) == grade; ++blade) {
#pragma unroll 1
                for (int tile = 0; tile < tiles; ++tile, ++step) {
                    const int stage = step % STAGES;
                    barrier_wait(full + stage, step / STAGES % 2);
                    f(blade, this->first_row(tile), shared_address(shared + stage * STAGE), inverses + stage * 2 * GROUPS);
                    barrier_arrive(empty + stage);
                }
            }
            end_grade(grade);
        }
    }

    /// The sums of the warp's 16 columns of x.
    GW_DEVICE void matrix_gradients(float* partial) const {
        const int lane = threadIdx.x % 32;
        const u32 left = (lane % 8 + lane / 16 * 8) * LINE<COLUMNS> + (own_column / 8 + lane / 8 % 2) * CHUNK;
        // With two numbers, the upper half of the lanes has low parts, otherwise the next strip.
        const u32 right = ARRAY + lane % 16 * LINE<WIDTH> + lane / 16 * (NUMBERS == 2 ? LOW : CHUNK);
        // Warps whose columns do not exist wait for the others.
        const bool idle = column + own_column >= sources.inputs;
        float sums[STRIPS][4];
        each_step(
            [&](int) {
#pragma unroll
                for (int n = 0; n < 4 * STRIPS; ++n) sums[n / 4][n % 4] = 0;
            },
            [&](int, i64, u32 stage, const float* inverses) {
                if (idle) return;
#pragma unroll(PRODUCTS == 3 ? 1 : GROUPS)
                for (int group = 0; group < GROUPS; ++group) {
                    const u32 from = stage + left + group * 16 * LINE<COLUMNS>, other = stage + right + group * 16 * LINE<WIDTH>;
                    const float factor = SPLIT ? inverses[group] * inverses[GROUPS + group] : 1.0f;
                    u32 a[NUMBERS][4];
#pragma unroll
                    for (int n = 0; n < NUMBERS; ++n) load_matrices<true>(a[n], from + n * LOW);
#pragma unroll
                    for (int strip = 0; strip < STRIPS; strip += 3 - NUMBERS) {
                        u32 all[4];
                        load_matrices<true>(all, other + strip * CHUNK);
#pragma unroll
                        for (int n = 0; n < 3 - NUMBERS; ++n) {
                            u32 b[NUMBERS][2];
#pragma unroll
                            for (int i = 0; i < 2 * NUMBERS; ++i) b[i / 2][i % 2] = all[2 * n + i];
                            if constexpr (SPLIT) {
                                float step[4] = {};
                                multiply(step, a, b);
                                add_scaled(sums[strip + n], step, factor);
                            } else {
                                multiply(sums[strip + n], a, b);
                            }
                        }
                    }
                }
            },
            [&](int grade) {
                float* const place = partial + (static_cast<i64>(blockIdx.x) * GRADES + grade) * sources.inputs * sources.features;
#pragma unroll
                for (int n = 0; n < 4 * STRIPS; ++n) {
                    const int i = n % 4, row = column + own_column + line + i / 2 * 8, feature = n / 4 * 8 + 2 * pair + i % 2;
                    if (row < sources.inputs && feature < sources.features) place[row * sources.features + feature] = sums[n / 4][i];
                }
            });
    }

    /// The gradient of the warp's 16 columns of x.
    GW_DEVICE void input_gradients(T* grad_x) const {
        const int lane = threadIdx.x % 32, own = column + own_column;
        const u32 left = ARRAY + lane % 16 * LINE<WIDTH> + lane / 16 * CHUNK;
        const bool idle = own >= sources.pitch || grad_x == nullptr;
        const bool paired = sources.pitch % 2 == 0 && reinterpret_cast<u64>(grad_x) % (2 * sizeof(T)) == 0;
        u32 matrix[STEPS][2][NUMBERS][2];
        float inverse = 1;
        each_step(
            [&](int grade) {
                if (!idle) inverse = load_matrix(sources.matrices + grade * sources.inputs * sources.features, own, matrix);
            },
            [&](int blade, i64 first, u32 stage, const float* inverses) {
                if (idle) return;
                T* const target = grad_x + (blade * sources.rows + first) * sources.pitch;
                const int lines = static_cast<int>(sources.rows - first < ROWS ? sources.rows - first : ROWS);
#pragma unroll
                for (int group = 0; group < GROUPS; ++group) {
                    const u32 from = stage + left + group * 16 * LINE<WIDTH>;
                    const float factor = SPLIT ? inverses[GROUPS + group] * inverse : 1.0f;
                    // Products with low parts are so small that matrix instructions may add all of them.
                    float sums[2][4] = {}, small[2][2][4] = {};
#pragma unroll
                    for (int k = 0; k < STEPS; ++k) {
                        u32 a[NUMBERS][4];
#pragma unroll
                        for (int n = 0; n < NUMBERS; ++n) load_matrices<false>(a[n], from + 2 * k * CHUNK + n * LOW);
#pragma unroll
                        for (int strip = 0; strip < 2; ++strip) {
                            const auto& b = matrix[k][strip];
                            float step[4] = {};
                            mma_16(step, a[0], b[0], Number{});
                            if constexpr (PRODUCTS == 3) {
                                mma_16(small[strip][0], a[1], b[0], f16{});
                                mma_16(small[strip][1], a[0], b[1], f16{});
                            }
#pragma unroll
                            for (int i = 0; i < 4; ++i) sums[strip][i] += step[i];
                        }
                    }
#pragma unroll
                    for (int n = 0; n < 8; ++n) {
                        float& sum = sums[n / 4][n % 4];
                        sum = (sum + (small[n / 4][0][n % 4] + small[n / 4][1][n % 4])) * factor;
                    }
#pragma unroll
                    for (int at = 0; at < 4; ++at) {
                        const int row = group * 16 + line + at % 2 * 8, x = own + at / 2 * 8 + 2 * pair;
                        if (row >= lines || x >= sources.pitch) continue;
                        T* const to = target + row * sources.pitch + x;
                        const float two[2] = {sums[at / 2][at % 2 * 2], sums[at / 2][at % 2 * 2 + 1]};
                        if (paired) {
                            store<2>(to, two);
                        } else {
                            to[0] = narrow<T>(two[0]);
                            if (x + 1 < sources.pitch) to[1] = narrow<T>(two[1]);
                        }
                    }
                }
            },
            [](int) {});
    }

    /// Parts of the warp's 16 columns of a transposed matrix [inputs, features], from row `own` of it on, and the inverse of their scale.
    GW_DEVICE float load_matrix(const T* matrix, int own, u32 (&parts)[STEPS][2][NUMBERS][2]) const {
        auto value = [&](int n, int i) {
            const int row = own + n / 2 % 2 * 8 + line, feature = n / 4 * 16 + n % 2 * 8 + 2 * pair + i;
            const T* const from = matrix + (own + line) * sources.features + 2 * pair + n / 2 % 2 * 8 * sources.features;
            return row < sources.inputs && feature < sources.features ? widen(from[n / 4 * 16 + n % 2 * 8 + i]) : 0.0f;
        };
        // Read twice: there are no registers for all values.
        float largest = 0;
        if constexpr (SPLIT) {
#pragma unroll 8
            for (int n = 0; n < 8 * STEPS; ++n) largest = TwoF16::larger(largest, value(n / 2, n % 2));
        }
        const auto scale = TwoF16::scale_of(TwoF16::largest_of_warp(largest));
#pragma unroll
        for (int n = 0; n < 4 * STEPS; ++n) {
            const float first = value(n, 0), second = value(n, 1);
            auto& to = parts[n / 4][n / 2 % 2];
            if constexpr (!SPLIT) {
                to[0][n % 2] = narrow<T>(first).bits | static_cast<u32>(narrow<T>(second).bits) << 16;
            } else if constexpr (PRODUCTS == 3) {
                TwoF16::split(first * scale.factor, second * scale.factor, to[0][n % 2], to[1][n % 2]);
            } else {
                to[0][n % 2] = TwoF16::round(first * scale.factor, second * scale.factor);
            }
        }
        return SPLIT ? scale.inverse : 1.0f;
    }
};
