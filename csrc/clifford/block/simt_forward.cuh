// The forward pass of a block, see clifford/block/simt.cuh. Names: gw_block_simt_fwd_l<LANES>_r<R>_<algebra>_<dtype>.
#pragma once

#include "clifford/block/simt.cuh"

template <class A, int R, class T, int LANES, class M = typename BlockNorms<(A::BLADES > 8)>::Type>
struct BlockSimtForward : BlockSimt<A, R, T, LANES, M> {
    using Block = BlockSimt<A, R, T, LANES, M>;
    using typename Block::Element;
    using typename Block::Normalizer;
    using typename Block::Product;
    using typename Block::SiluGate;
    using Block::active, Block::column, Block::features4, Block::inputs, Block::inputs4, Block::left, Block::linear;
    using Block::p, Block::right, Block::share, Block::group, Block::working;
    using Block::BLADES, Block::GRADES, Block::SHARED_WEIGHTS;

    /// What the backward pass reads; each may be null.
    struct Saved {
        T *y, *r, *s;
    };

    /// out, plus the residual if one is given. Dynamic shared memory: the matrices, the weights that are not
    /// in registers, then R rows of x and of h for each group.
    GW_DEVICE static void run(float* shared, const BlockOperands<T>& weights, const T* x, const T* residual, T* out,
                              const Saved& saved) {
        BlockSimtForward(weights).work(shared, x, residual, out, saved);
    }

  private:
    GW_DEVICE explicit BlockSimtForward(const BlockOperands<T>& weights) : Block(weights) {}

    GW_DEVICE void work(float* shared, const T* x, const T* residual, T* out, const Saved& saved) {
        float* const weights = this->template place_matrices<false>(shared);
        float* const own = weights + SHARED_WEIGHTS + group * R * BLADES * (inputs4 + features4);
        float* const xs = own;
        float* const hs = own + R * BLADES * inputs4;
        const i64 step = static_cast<i64>(gridDim.x) * working * R;
        i64 first = (static_cast<i64>(blockIdx.x) * working + group) * R;
        // Groups of one warp go through the loop together.
        i64 first_of_warp = first - group % (32 / LANES) * R;
        if (group < working) this->template fetch<1>({xs}, {x}, first, inputs);
        SiluGate silu[GRADES];
        float mix[GRADES];
        typename Block::Weights product;
        this->silu_parameters(silu);
        this->normalization_parameters(mix);
        this->product_weights(product, weights);
        const float bias = p.bias == nullptr ? 0.0f : p.at(p.bias, column), left_bias = p.at(p.left_bias, column);
        const float gain = p.at(p.gain, column);
        this->template load_matrices<false>();
        __syncthreads();
        if (group >= working) return;
        Normalizer normalizer[GRADES];
#pragma unroll
        for (int grade = 0; grade < GRADES; ++grade) normalizer[grade] = Normalizer(mix[grade]);
#pragma unroll 1
        for (; first_of_warp < p.rows; first += step, first_of_warp += step) {
            this->fetched();
            float y[1][R][BLADES] = {};
            this->accumulate(y, xs, inputs4, {linear + 4 * column}, inputs4 * features4, 4 * features4);
            __syncwarp();
            this->template fetch<1>({xs}, {x}, first + step, inputs);
            Element h[R];
#pragma unroll
            for (int r = 0; r < R; ++r) {
                Element at;
#pragma unroll
                for (int blade = 0; blade < BLADES; ++blade) at.at[blade][0] = y[0][r][blade];
                at.at[0][0] += bias;
                if (saved.y != nullptr) this->store_row(saved.y, first + r, at);
                typename SiluGate::At gates[GRADES];
                this->factors(silu, at, gates);
                this->apply(gates, at, h[r]);
                this->store_shared(hs + r * BLADES * features4, h[r]);
            }
            __syncwarp();
            float mapped[2][R][BLADES] = {};  // r, and l without its bias.
            this->accumulate(mapped, hs, features4, {right + 4 * column, left + 4 * column}, features4 * features4, 4 * features4);
#pragma unroll
            for (int r = 0; r < R; ++r) {
                Element factor, result;
#pragma unroll
                for (int blade = 0; blade < BLADES; ++blade) factor.at[blade][0] = mapped[0][r][blade];
                if (saved.r != nullptr) this->store_row(saved.r, first + r, factor);
                Element base = {};
                // Loaded here so that the load overlaps with the product, where there are registers for it.
                constexpr bool EARLY = BLADES <= 16;
                if (EARLY && residual != nullptr) this->load_row(residual, first + r, base);
                typename Normalizer::At norms[GRADES];
                this->factors(normalizer, factor, norms);
                this->apply(norms, factor, factor);
                Product::multiply(h[r], factor, product, result);
                result.at[0][0] += left_bias;
#pragma unroll
                for (int blade = 0; blade < BLADES; ++blade) {
                    result.at[blade][0] = Block::SQRT_HALF * (mapped[1][r][blade] + result.at[blade][0]);
                }
                if (saved.s != nullptr) this->store_row(saved.s, first + r, result);
                if (!EARLY && residual != nullptr) this->load_row(residual, first + r, base);
                const float sum = this->group_sum(active ? smooth_norm<M>(this->total(result)) : 0.0f);
                const float scale = quotient(gain, sum * share + float(NORM_EPSILON));
#pragma unroll
                for (int blade = 0; blade < BLADES; ++blade) {
                    result.at[blade][0] = base.at[blade][0] + result.at[blade][0] * scale;
                }
                this->store_row(out, first + r, result);
            }
        }
    }
};

