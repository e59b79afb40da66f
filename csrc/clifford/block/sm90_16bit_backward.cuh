// The backward pass of a block on many rows, see clifford/block/sm90_16bit.cuh. Names: gw_block_sm90_16bit_bwd_in<inputs>_<algebra>_<dtype>.
#pragma once

#include "clifford/block/sm90_gradients.cuh"
#include "clifford/block/sm90_16bit.cuh"
#include "clifford/block/sm90_16bit_sums.cuh"

/// `TILES` · 32 is at least the number of inputs.
///
/// The two groups work on adjacent rows, and form the gradients of the matrices of all 32 rows together: each warp has the same 16
/// inputs (by its group) and 8 features (by its column) of every matrix, and keeps their sums in registers over all rows.
template <class A, class T, int TILES>
struct Block16BitBackward : BlockGradients<A, Block16Bit<A, T>, TILES> {
    using Base = BlockGradients<A, Block16Bit<A, T>, TILES>;
    using Block = Block16Bit<A, T>;
    using typename Base::Matrices;
    using Sums = Block16BitSums<Block::GRADES, Base::SHARE>;
    using typename Block::Element;
    using typename Block::Fragment;
    using typename Block::Parameters;
    using typename Block::Product;
    using typename Block::Operands;
    using typename Block::CopyMethod;
    /// Rows of the block.
    static constexpr int ALL = 2 * Block::ROWS;
    using Rows = typename Block::template Rows<ALL>;
    using Stage = typename Block::template Stage<ALL>;
    using InputStage = typename Block::template Stage<ALL, TILES>;
    using Block::BLADES, Block::GRADES, Block::MATRIX_BYTES, Block::ROW, Block::ROWS, Block::WIDTH;
    using Block::column, Block::feature, Block::features, Block::group, Block::inputs, Block::line, Block::p, Block::share;
    using Block::tables;

    /// The inputs and saved intermediates of the forward pass, and the gradient of its result.
    struct Sources {
        const T *x, *y, *r, *s, *grad;
    };

    /// The gradient of x (may be null), and those of the parameters summed over the block's rows, [gridDim.x, Layout.count]. Dynamic
    /// shared memory: the matrices, three arrays of operands and five stages of rows (see `work`), the parameters, 256 sums, `Sums`,
    /// and three barriers.
    GW_DEVICE static void run(char* shared, const BlockOperands<T>& weights, const Sources& sources, T* grad_x, float* partial) {
        Block16BitBackward(weights).work(shared, sources, grad_x, partial);
    }

  private:
    /// Rows of the block as they come, and the last of them that exists.
    struct Stages {
        char *s, *grad, *r, *y, *x;
        int last;
    };

    /// The row of the block that is the lane's row g + 8·half.
    GW_DEVICE int row_of(const Stages& stages, int half) const { return min(group * ROWS + line + 8 * half, stages.last); }

    GW_DEVICE explicit Block16BitBackward(const BlockOperands<T>& weights) : Base(weights) {}

    GW_DEVICE void work(char* shared, const Sources& sources, T* grad_x, float* partial) const {
        using Sizes = Block16BitSizes<A, TILES>;
        using Layout = typename Sizes::Backward;
        char* const right = shared + Sizes::RIGHT;
        char* const left = shared + Sizes::LEFT;
        char* const linear = shared + Sizes::LINEAR;
        // Operands of all rows of the block: the gradient of r; that of l, later that of y; h, later x, 32 columns at a time.
        char* const dr = shared + Layout::GRAD_R;
        char* const dl = shared + Layout::GRAD_L;
        char* const h = shared + Layout::H;
        Stages stages;
        stages.s = shared + Layout::STAGE_S;
        stages.grad = shared + Layout::STAGE_GRAD;
        stages.r = shared + Layout::STAGE_R;
        stages.y = shared + Layout::STAGE_Y;
        stages.x = shared + Layout::STAGE_X;
        float* const values = reinterpret_cast<float*>(shared + Layout::VALUES);
        float* const exchange = reinterpret_cast<float*>(shared + Layout::EXCHANGE) + group * (Layout::GROUP_EXCHANGE / 4);
        const Sums sums{reinterpret_cast<float*>(shared + Layout::THREAD_SUMS)};
        u64* const barriers = reinterpret_cast<u64*>(shared + Layout::BARRIERS);
        static_assert(Sizes::MATRIX == MATRIX_BYTES && Sizes::PARAMETERS == Parameters::COUNT * sizeof(float));
        static_assert(Layout::BOTH == Rows::BYTES && Layout::BOTH == Stage::BYTES && TILES * Layout::BOTH == InputStage::BYTES);
        static_assert(Layout::THREAD_SUMS + Sums::SIZE * sizeof(float) == Layout::BARRIERS);
        const CopyMethod x_method = this->template copy_method<1>({sources.x}, inputs);
        const CopyMethod method = this->template copy_method<4>({sources.y, sources.r, sources.s, sources.grad}, features);
        if (threadIdx.x == 0) {
            barrier_init(barriers, BLADES);
            barrier_init(barriers + 1, BLADES);
            barrier_init(barriers + 2, BLADES);
            barrier_init_fence();
        }
        // What the first phases of a tile read, and what its last read.
        auto load_first = [&](i64 row) {
            this->template load_stage<Stage, ALL, 3>({stages.s, stages.grad, stages.r}, {sources.s, sources.grad, sources.r}, row, features,
                                                method, 0, 256, barriers);
            copy_async_commit();
        };
        auto load_last = [&](i64 row) {
            this->template load_stage<Stage, ALL, 1>({stages.y}, {sources.y}, row, features, method, 0, 256, barriers + 1);
            this->template load_stage<InputStage, ALL, 1>({stages.x}, {sources.x}, row, inputs, x_method, 0, 256, barriers + 2);
            copy_async_commit();
        };
        __syncthreads();
        const i64 start = static_cast<i64>(blockIdx.x) * ALL, step = static_cast<i64>(gridDim.x) * ALL;
        load_first(start);
        load_last(start);
        this->template load_all_matrices<TILES>(right);
        const Parameters parameters = this->load_parameters(values);
        const int own = group * ROWS * ROW;
        const u32 at_dr = shared_address(dr), at_dl = shared_address(dl), at_h = shared_address(h);
        const u32 a = own + Operands::left_offset(), b = Operands::right_transposed_offset(8 * column);
        Matrices matrices;
        sums.clear();
        u32 parity = 0;
        copy_async_wait<1>();
        __syncthreads();
#pragma unroll 1
        for (i64 base = start; base < p.rows; base += step, parity ^= 1) {
            const i64 first = base + group * ROWS;
            stages.last = static_cast<int>(min(p.rows - base, static_cast<i64>(ALL))) - 1;
            Fragment dh;
            if (method == CopyMethod::ENGINE) barrier_wait(barriers, parity);
            norm_backward(parameters, stages, dl + own, exchange, dh, sums);
            if (method == CopyMethod::ENGINE) barrier_wait(barriers + 1, parity);
            if (method != CopyMethod::ENGINE || x_method != CopyMethod::ENGINE) {
                copy_async_wait<0>();
                __syncthreads();
            }
            product_backward(parameters, stages, h + own, dr + own, dh, sums);
            __syncthreads();
            load_first(base + step);
            correlate(matrices.right, at_h, at_dr);
            correlate(matrices.left, at_h, at_dl);
            Block::template accumulate<true, false, Rows>(dh, at_dr + a, shared_address(right) + b);
            Block::template accumulate<true, false, Rows>(dh, at_dl + a, shared_address(left) + b);
            __syncthreads();  // All have read h and the gradient of l.
            if (x_method == CopyMethod::ENGINE) barrier_wait(barriers + 2, parity);
            auto store_columns = [&](int tile) {
                this->template store_inputs<InputStage, Rows>(h + own, stages.x, group * ROWS, stages.last, WIDTH * tile);
            };
            store_columns(0);
            silu_backward(parameters, stages, dh, dl + own, sums);
            __syncthreads();
            if (TILES == 1) load_last(base + step);
            correlate(matrices.linear[0], at_h, at_dl);
            if (grad_x != nullptr) input_backward(shared_address(linear) + b, at_dl + a, first, grad_x);
#pragma unroll
            for (int tile = 1; tile < TILES; ++tile) {
                __syncthreads();  // All have read the columns of x before.
                store_columns(tile);
                __syncthreads();
                if (tile + 1 == TILES) load_last(base + step);
                correlate(matrices.linear[tile], at_h, at_dl);
            }
            copy_async_wait<1>();
            __syncthreads();  // All have read x and the gradient of y, and the next rows are there that threads copied first.
        }
        this->write_matrices(matrices, reinterpret_cast<float*>(shared), partial);
        this->write_sums(parameters, sums, partial);
    }

    /// The gradient of l, that of the layer norm's argument s over √2, to `out` and to shared memory.
    GW_DEVICE void norm_backward(const Parameters& parameters, const Stages& stages, char* rows, float* exchange,
                                 Fragment& out, const Sums& sums) const {
        float gains[2] = {}, biases[2] = {};
        typename Base::NormTerms terms;
        float s[2][BLADES][2], g[2][BLADES][2];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            this->template read<Stage>(stages.s, row_of(stages, half), s[half]);
            this->template read<Stage>(stages.grad, row_of(stages, half), g[half]);
            if (group * ROWS + line + 8 * half > stages.last) {
#pragma unroll
                for (int blade = 0; blade < BLADES; ++blade) g[half][blade][0] = g[half][blade][1] = 0;
            }
        }
        this->norm_terms(parameters, s, g, exchange, terms);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const float scale = Quick::inverse(terms.totals[0][half] * share + float(NORM_EPSILON));
            const float norm_grad = -terms.totals[1][half] * scale * scale * share;
#pragma unroll
            for (int side = 0; side < 2; ++side) {
                const int at = 2 * half + side;
                const float gain = parameters.gain(feature + side);
                gains[side] += terms.dots[at] * scale;
                const float slope = norm_grad * smooth_norm_slope<Quick>(terms.forms[at], terms.norms[at]);
                const float form_grad = feature + side < features ? slope : 0.0f;
                each<BLADES>([&](auto index) {
                    constexpr int blade = decltype(index)::value, metric = tables.metric[blade];
                    float value = g[half][blade][side] * gain * scale;
                    if constexpr (metric != 0) value += float(metric) * form_grad * s[half][blade][side];
                    g[half][blade][side] = out[blade][at] = Block::SQRT_HALF * value;
                });
                biases[side] += g[half][0][side];
            }
            this->template store_operands<Rows>(rows, half, g[half]);
        }
        sums.add(Sums::GAIN, gains);
        sums.add(Sums::LEFT_BIAS, biases);
    }

    /// The lane's value of every blade of one row and feature.
    GW_DEVICE void read_one(const char* stage, int row, int side, Element& element) const {
        const char* const at = stage + (row * features + min(feature + side, features - 1)) * static_cast<int>(sizeof(T));
        const int shift = this->shift_of(features);
#pragma unroll
        for (int blade = 0; blade < BLADES; blade += 2) element.at[blade][0] = widen(*reinterpret_cast<const T*>(at + blade * Stage::PLANE));
        if (shift == 0) {
#pragma unroll
            for (int blade = 1; blade < BLADES; blade += 2) element.at[blade][0] = widen(*reinterpret_cast<const T*>(at + blade * Stage::PLANE));
        } else {
#pragma unroll
            for (int blade = 1; blade < BLADES; blade += 2) element.at[blade][0] = widen(reinterpret_cast<const T*>(at + blade * Stage::PLANE)[1]);
        }
    }

    /// The recomputed h and the gradient of r go to shared memory. `grad` is the gradient of l, the product's result, and becomes its
    /// part of the gradient of h.
    GW_DEVICE void product_backward(const Parameters& parameters, const Stages& stages, char* h_rows, char* dr_rows, Fragment& grad,
                                    const Sums& sums) const {
#pragma unroll
        for (int side = 0; side < 2; ++side) {
            typename Product::Weights weights, weight_sums = {};
            float norm_sums[GRADES][1] = {};
            this->product_of(parameters, feature + side, weights);
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int at = 2 * half + side;
                const u32 place = this->own_offset() + half * 8 * ROW + side * 2;
                Element h, raw, dl, da, db;
                read_one(stages.y, row_of(stages, half), side, h);
#pragma unroll
                for (int blade = 0; blade < BLADES; ++blade) dl.at[blade][0] = grad[blade][at];
                this->apply_silu(parameters, feature + side, h);
                store_one(h_rows + place, h);
                // Keeps later loads and other positions apart: interleaved, they would take more registers than a thread has.
                asm volatile("" ::: "memory");
                read_one(stages.r, row_of(stages, half), side, raw);
                float dr[BLADES];
                this->product_gradient(parameters, feature + side, h, raw, dl, weights, da, dr, weight_sums, norm_sums);
#pragma unroll
                for (int blade = 0; blade < BLADES; ++blade) {
                    db.at[blade][0] = dr[blade];
                    grad[blade][at] = da.at[blade][0];
                }
                store_one(dr_rows + place, db);
                asm volatile("" ::: "memory");
            }
            float totals[Base::SHARE];
            this->fold(weight_sums, norm_sums, totals);
            sums.add_folded(side, totals);
        }
    }

    /// Puts one value of every blade among operands.
    GW_DEVICE static void store_one(char* at, const Element& element) {
#pragma unroll
        for (int blade = 0; blade < BLADES; blade += 2) {
            const u32 both = Operands::pair(element.at[blade][0], element.at[blade + 1][0]);
            *reinterpret_cast<u16*>(at + blade * Rows::BLADE_BYTES) = static_cast<u16>(both);
            *reinterpret_cast<u16*>(at + (blade + 1) * Rows::BLADE_BYTES) = static_cast<u16>(both >> 16);
        }
    }

    /// The gradient of y to `target`.
    GW_DEVICE void silu_backward(const Parameters& parameters, const Stages& stages, const Fragment& dh, char* rows,
                                 const Sums& sums) const {
        float bias[2] = {};
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float y[BLADES][2];
            this->template read<Stage>(stages.y, row_of(stages, half), y);
#pragma unroll
            for (int side = 0; side < 2; ++side) {
                this->silu_gradient(parameters, half, side, dh, y, sums, bias[side]);
            }
            this->template store_operands<Rows>(rows, half, y);
        }
        sums.add(Sums::BIAS, bias);
    }

    /// The gradient of x of the group's rows, through the first linear map. `matrices` and `dy` are where the lane finds its rows of the
    /// first fragments.
    GW_DEVICE void input_backward(u32 matrices, u32 dy, i64 first, T* grad_x) const {
        const bool paired = Block::is_paired(grad_x, inputs);
        const u32 plane = this->plane_bytes(inputs);
#pragma unroll
        for (int tile = 0; tile < TILES; ++tile) {
            const int input = WIDTH * tile + feature;
            if (WIDTH * tile + 8 * column >= inputs) return;
            Fragment dx;
            Block::template accumulate<true, true, Rows>(dx, dy, matrices + tile * MATRIX_BYTES);
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const i64 row = first + line + 8 * half;
                if (row >= p.rows || input >= inputs) continue;
                T* const at = grad_x + row * inputs + input;
                if (paired) {
#pragma unroll
                    for (int blade = 0; blade < BLADES; ++blade) {
                        Block::store_two(Block::plane_of(at, plane, blade), dx[blade][2 * half], dx[blade][2 * half + 1]);
                    }
                } else {
#pragma unroll
                    for (int blade = 0; blade < BLADES; ++blade) *Block::plane_of(at, plane, blade) = narrow<T>(dx[blade][2 * half]);
                    if (input + 1 >= inputs) continue;
#pragma unroll
                    for (int blade = 0; blade < BLADES; ++blade) *Block::plane_of(at + 1, plane, blade) = narrow<T>(dx[blade][2 * half + 1]);
                }
            }
        }
    }

    /// sums[grade] += Σ over all rows and the grade's blades of a[row][i]·b[row][o], for the group's 16 i and the warp's 8 features o.
    ///
    /// Matrix instructions truncate the sums that they form, so that errors would grow with the number of rows: a tile's terms are summed by
    /// themselves, and added to the others by additions that round.
    GW_DEVICE void correlate(float (&sums)[GRADES][4], u32 a, u32 b) const {
        const int lane = this->opaque_thread() % 32;
        a += Operands::left_transposed_offset(lane, 2 * group);
        b += Operands::right_offset(lane, column);
        Block::each_group([&](auto group) {
            using Members = decltype(group);
            constexpr int COUNT = Members::COUNT, MATRICES = Members::MATRICES;
            u32 right[COUNT][4];
#pragma unroll
            for (int n = 0; n < COUNT; ++n) ::load_matrices<true>(right[n], b + Members::blade(n) * Rows::BLADE_BYTES);
            float products[MATRICES][4] = {};
#pragma unroll
            for (int k = 0; k < 2; ++k) {
                u32 left[COUNT][4];
                Block::template load_rows<Rows, true>(group, left, a + k * 16 * ROW);
#pragma unroll
                for (int n = 0; n < COUNT; ++n) {
                    const u32 own[2] = {right[n][2 * k], right[n][2 * k + 1]};
                    mma_16(products[n % MATRICES], left[n], own, T{});
                }
            }
#pragma unroll
            for (int m = 0; m < MATRICES; ++m) {
#pragma unroll
                for (int i = 0; i < 4; ++i) sums[Members::grade(m)][i] += products[m][i];
            }
        });
    }
};
