// The forward pass of a block on many rows, see clifford/block/sm90_16bit.cuh. Names: gw_block_sm90_16bit_fwd_in<inputs>_<algebra>_<dtype>.
#pragma once

#include "clifford/block/sm90_16bit.cuh"

/// `TILES` · 32 is at least the number of inputs.
template <class A, class T, int TILES>
struct Block16BitForward : Block16Bit<A, T> {
    using Block = Block16Bit<A, T>;
    using typename Block::Fragment;
    using typename Block::Parameters;
    using typename Block::Operands;
    using typename Block::CopyMethod;
    using Rows = typename Block::template Rows<Block::ROWS>;
    using Stage = typename Block::template Stage<Block::ROWS>;
    using InputStage = typename Block::template Stage<Block::ROWS, TILES>;
    using Block::BLADES, Block::MATRIX_BYTES, Block::ROWS, Block::WIDTH;
    using Block::column, Block::feature, Block::features, Block::group, Block::inputs, Block::line, Block::p, Block::share;

    /// What the backward pass reads; each may be null.
    struct Saved {
        T *y, *r, *s;
    };

    /// out, plus the residual if one is given. Dynamic shared memory: the matrices, 32 inputs at a time, then for each group 16 rows of x
    /// as operands, the first of which h takes later, and as they come, and the residual; the parameters, and for each group 64 sums
    /// and two barriers.
    GW_DEVICE static void run(char* shared, const BlockOperands<T>& weights, const T* x, const T* residual, T* out, const Saved& saved) {
        Block16BitForward(weights).work(shared, x, residual, out, saved);
    }

  private:
    GW_DEVICE explicit Block16BitForward(const BlockOperands<T>& weights) : Block(weights) {}

    GW_DEVICE void work(char* shared, const T* x, const T* residual, T* out, const Saved& saved) const {
        using Sizes = Block16BitSizes<A, TILES>;
        using Layout = typename Sizes::Forward;
        const int groups = blockDim.x / 128;
        char* const right = shared + Sizes::RIGHT;
        char* const left = shared + Sizes::LEFT;
        char* const linear = shared + Sizes::LINEAR;
        char* const rows = shared + Sizes::AFTER_MATRICES + group * Layout::GROUP;
        char* const x_stage = rows + Layout::ROWS_OF_X;
        char* const residual_stage = rows + Layout::RESIDUAL;
        // At Layout::VALUES and so on: `groups` is Layout::GROUPS, read from the launch as it is elsewhere in this pass.
        float* const values = reinterpret_cast<float*>(shared + Sizes::AFTER_MATRICES + groups * Layout::GROUP);
        float* const sums = values + Parameters::COUNT + group * (Layout::GROUP_SUMS / 4);
        u64* const barriers = reinterpret_cast<u64*>(values + Parameters::COUNT + groups * (Layout::GROUP_SUMS / 4)) + group * 2;
        static_assert(Sizes::MATRIX == MATRIX_BYTES && Sizes::PARAMETERS == Parameters::COUNT * sizeof(float));
        static_assert(Layout::ROWS_OF_X == TILES * Rows::BYTES && Layout::RESIDUAL == Layout::ROWS_OF_X + InputStage::BYTES);
        static_assert(Layout::GROUP == Layout::RESIDUAL + Stage::BYTES);
        const i64 step = static_cast<i64>(groups) * gridDim.x * ROWS;
        i64 first = (static_cast<i64>(groups) * blockIdx.x + group) * ROWS;
        const CopyMethod x_method = this->template copy_method<1>({x}, inputs), residual_method = this->template copy_method<1>({residual}, features);
        if (threadIdx.x % 128 == 0) {
            barrier_init(barriers, BLADES);
            barrier_init(barriers + 1, BLADES);
            barrier_init_fence();
        }
        this->group_barrier();
        auto load_rows = [&](auto stage, char* target, const T* source, i64 row, int width, CopyMethod method, u64* barrier) {
            this->template load_stage<decltype(stage), ROWS, 1>({target}, {source}, row, width, method, 128 * group, 128, barrier);
        };
        load_rows(InputStage{}, x_stage, x, first, inputs, x_method, barriers);
        copy_async_commit();
        // Not `load_all_matrices`, with which this pass took 1.5% longer (docs/lab/kernels.md).
        this->load_matrices(right, p.right, features, 0);
        this->load_matrices(left, p.left, features, 0);
#pragma unroll
        for (int tile = 0; tile < TILES; ++tile) this->load_matrices(linear + tile * MATRIX_BYTES, p.linear, inputs, WIDTH * tile);
        const Parameters parameters = this->load_parameters(values);
        const u32 a = shared_address(rows) + Operands::left_offset(), b = Operands::right_offset(threadIdx.x % 32, column);
        const u32 at_right = shared_address(right) + b, at_left = shared_address(left) + b, at_linear = shared_address(linear) + b;
        u32 parity = 0;
        __syncthreads();
#pragma unroll 1
        for (; first < p.rows; first += step, parity ^= 1) {
            const int last = static_cast<int>(min(p.rows - first, static_cast<i64>(ROWS))) - 1;
            if (x_method == CopyMethod::ENGINE) {
                barrier_wait(barriers, parity);
            } else {
                copy_async_wait<0>();
                this->group_barrier();
            }
#pragma unroll
            for (int tile = 0; tile < TILES; ++tile) {
                this->template store_inputs<InputStage, Rows>(rows + tile * Rows::BYTES, x_stage, 0, last, WIDTH * tile);
            }
            this->group_barrier();
            if (residual != nullptr) load_rows(Stage{}, residual_stage, residual, first, features, residual_method, barriers + 1);
            copy_async_commit();
            load_rows(InputStage{}, x_stage, x, first + step, inputs, x_method, barriers);
            copy_async_commit();
            Fragment h;
            Block::template accumulate<false, true, Rows>(h, a, at_linear);
#pragma unroll
            for (int tile = 1; tile < TILES; ++tile) {
                Block::template accumulate<false, false, Rows>(h, a + tile * Rows::BYTES, at_linear + tile * MATRIX_BYTES);
            }
            this->group_barrier();  // The group has read x.
            gate(parameters, h, saved.y, first, rows);
            this->group_barrier();
            Fragment r, s;  // s is l without its bias at first.
            Block::template accumulate_two<Rows>(r, s, a, at_right, at_left);
            if (saved.r != nullptr) this->write(saved.r, first, r);
            this->apply_product(parameters, h, r, s);
            if (saved.s != nullptr) this->write(saved.s, first, s);
            copy_async_wait<1>();  // The group has a barrier in `scale`.
            scale(parameters, s, sums);
            if (residual != nullptr) {
                if (residual_method == CopyMethod::ENGINE) barrier_wait(barriers + 1, parity);
                add(residual_stage, last, s);
            }
            this->write(out, first, s);
        }
    }

    /// y, the result of the first linear map, becomes h in place and in `rows`.
    GW_DEVICE void gate(const Parameters& parameters, Fragment& h, T* saved_y, i64 first, char* rows) const {
#pragma unroll
        for (int at = 0; at < 4; ++at) h[0][at] += parameters.bias(feature + at % 2);
        if (saved_y != nullptr) this->write(saved_y, first, h);
        this->apply_silu(parameters, h);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float both[BLADES][2];
            Block::values_of_row(h, half, both);
            this->template store_operands<Rows>(rows, half, both);
        }
    }

    /// s becomes its layer norm.
    GW_DEVICE void scale(const Parameters& parameters, Fragment& s, float* shared) const {
        float norms[1][2];
        this->sum_norms(s, norms, shared);
#pragma unroll
        for (int at = 0; at < 4; ++at) {
            const float scale = Quick::quotient(parameters.gain(feature + at % 2), norms[0][at / 2] * share + float(NORM_EPSILON));
#pragma unroll
            for (int blade = 0; blade < BLADES; ++blade) s[blade][at] *= scale;
        }
    }

    /// Adds the residual.
    GW_DEVICE void add(const char* stage, int last, Fragment& s) const {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float base[BLADES][2];
            this->template read<Stage>(stage, min(line + 8 * half, last), base);
#pragma unroll
            for (int blade = 0; blade < BLADES; ++blade) {
                s[blade][2 * half] += base[blade][0];
                s[blade][2 * half + 1] += base[blade][1];
            }
        }
    }
};
