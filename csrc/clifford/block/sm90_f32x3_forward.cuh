// The forward pass of a block on many rows of f32, see clifford/block/sm90_f32x3.cuh. Names: gw_block_sm90_f32x3_fwd_in<inputs>_<algebra>_f32.
#pragma once

#include "clifford/block/sm90_f32x3.cuh"

/// `TILES` · 32 is at least the number of inputs.
template <class A, int TILES, bool PAIRED>
struct BlockF32x3Forward : BlockF32x3<A, TILES, PAIRED> {
    using Block = BlockF32x3<A, TILES, PAIRED>;
    using typename Block::Fragment;
    using typename Block::MatrixScales;
    using typename Block::Parameters;
    using typename Block::TwoF16;
    using Block::ARRAY, Block::BLADES, Block::COLUMNS, Block::MATRIX, Block::ROWS, Block::WIDTH;
    using Block::column, Block::feature, Block::features, Block::group, Block::inputs, Block::p, Block::share;
    static constexpr int GROUPS = 2;

    /// What the backward pass reads; each may be null.
    struct Saved {
        float *y, *r, *s;
    };

    /// out, plus the residual if one is given. Dynamic shared memory: the matrices; for each group 16 rows of x, 32 columns at a time, and
    /// of h; the parameters, and for each group 64 sums and 16 scales; the scales of matrices.
    GW_DEVICE static void run(char* shared, const BlockOperands<float>& weights, const float* x, const float* residual, float* out,
                              const Saved& saved) {
        BlockF32x3Forward(weights).work(shared, x, residual, out, saved);
    }

  private:
    GW_DEVICE explicit BlockF32x3Forward(const BlockOperands<float>& weights) : Block(weights) {}

    GW_DEVICE void work(char* shared, const float* x, const float* residual, float* out, const Saved& saved) const {
        using Layout = typename Block::Sizes::Forward;
        char* const right = shared + Block::Sizes::RIGHT;
        char* const xs = shared + Block::Sizes::AFTER_MATRICES + group * Layout::GROUP;
        char* const hs = xs + TILES * ARRAY;
        float* const values = reinterpret_cast<float*>(shared + Layout::VALUES);
        float* const sums = reinterpret_cast<float*>(shared + Layout::SUMS) + group * (Layout::GROUP_SUMS / 4);
        float* const scales = sums + 4 * ROWS;
        auto* const matrix_scales = reinterpret_cast<MatrixScales*>(shared + Layout::SCALES);
        static_assert(sizeof(MatrixScales) == Block::Sizes::MATRIX_SCALES);
        const i64 step = static_cast<i64>(GROUPS) * gridDim.x * ROWS;
        i64 first = (static_cast<i64>(GROUPS) * blockIdx.x + group) * ROWS;
        auto fetch = [&](i64 row) {
#pragma unroll 1
            for (int tile = 0; tile < TILES; ++tile) this->fetch_raw(this->own_words(xs + tile * ARRAY), x, row, WIDTH * tile, inputs);
            copy_async_commit();
        };
        const Parameters parameters = this->template fetch_parameters<128 * GROUPS>(values);
        fetch(first);
        this->template load_matrices<128 * GROUPS>(right, matrix_scales, values + Parameters::COUNT);
        const int chunks = (features + 7) / 8;
        this->template fetched<1>();
        __syncthreads();
#pragma unroll 1
        for (; first < p.rows; first += step) {
            const u32 a = TwoF16::left_offset(this->opaque_thread() % 32), b = this->template matrices_at<false>(right);
            this->fetched();
#pragma unroll 1
            for (int tile = 0; tile < TILES; ++tile) {
                char* const own = this->own_words(xs + tile * ARRAY);
                Fragment values;
                this->read_raw(own, values);
                this->store_operands(own, values, scales + tile * COLUMNS);
            }
            this->group_barrier();
            float h[1][BLADES][4] = {};
#pragma unroll 1
            for (int tile = 0; tile < TILES; ++tile) {
                const int rest = (inputs - WIDTH * tile + 7) / 8;
                this->template accumulate<false, 1>(h, shared_address(xs) + a + tile * ARRAY, scales + tile * COLUMNS, rest < COLUMNS ? rest : COLUMNS,
                                                    {b + (2 + tile) * MATRIX}, {matrix_scales->inverse[2 + tile]});
            }
            gate(parameters, h[0], saved.y, first);
            this->store_operands(this->own_words(hs), h[0], scales + 2 * COLUMNS);
            this->group_barrier();  // The group has read x.
            fetch(first + step);
            float r[1][BLADES][4] = {}, result[1][BLADES][4] = {};
            this->template accumulate<false, 1>(r, shared_address(hs) + a, scales + 2 * COLUMNS, chunks, {b}, {matrix_scales->inverse[0]});
            if (saved.r != nullptr) this->write(saved.r, first, r[0]);
            // The product first, and then l, which takes no registers of its own.
            this->apply_product(parameters, h[0], r[0], result[0]);
            Fragment base = {};
            if (residual != nullptr) this->read(residual, first, base);  // On its way during all that follows.
            this->template accumulate<false, 1>(result, shared_address(hs) + a, scales + 2 * COLUMNS, chunks, {b + MATRIX},
                                                {Block::SQRT_HALF * matrix_scales->inverse[1]});
            if (saved.s != nullptr) this->write(saved.s, first, result[0]);
            finish(parameters, base, result[0], out, first, sums);
        }
    }

    /// y, the result of the first linear map, becomes h.
    GW_DEVICE void gate(const Parameters& parameters, Fragment& h, float* saved_y, i64 first) const {
#pragma unroll
        for (int at = 0; at < 4; ++at) h[0][at] += parameters.bias(feature + at % 2);
        if (saved_y != nullptr) this->write(saved_y, first, h);
        this->apply_silu(parameters, h);
    }

    /// Writes the layer norm of s, plus `base`; see `sum_features` for `shared`.
    GW_DEVICE void finish(const Parameters& parameters, const Fragment& base, Fragment& s, float* out, i64 first, float* shared) const {
        float norms[1][2];
        this->sum_norms(s, norms, shared);
#pragma unroll
        for (int at = 0; at < 4; ++at) {
            const float scale = quotient(parameters.gain(feature + at % 2), norms[0][at / 2] * share + float(NORM_EPSILON));
#pragma unroll
            for (int blade = 0; blade < BLADES; ++blade) s[blade][at] = base[blade][at] + s[blade][at] * scale;
        }
        this->write(out, first, s);
    }
};
