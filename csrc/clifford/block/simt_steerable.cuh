// The steerable layer alone, (left(x) + bias + sgp(x, normalization(right(x)), w))/√2 or the product without a left map, by the means of
// clifford/block/simt.cuh. The backward pass computes the right factor again. Names: gw_steerable_simt_<fwd|bwd>_l<LANES>_<algebra>_<dtype>.
#pragma once

#include "clifford/block/simt_backward.cuh"

template <class A, class T, int LANES>
struct SteerableSimtForward : BlockSimt<A, 1, T, LANES, QuickFullRange> {
    using Block = BlockSimt<A, 1, T, LANES, QuickFullRange>;
    using typename Block::Element;
    using typename Block::Normalizer;
    using typename Block::Product;
    using Block::column, Block::features, Block::features4, Block::group, Block::left, Block::maps, Block::p, Block::right, Block::working;
    using Block::BLADES, Block::GRADES, Block::SHARED_WEIGHTS;

    /// Dynamic shared memory: the matrices, the weights that are not in registers, then a row of x for each group.
    GW_DEVICE static void run(float* shared, const BlockOperands<T>& weights, const T* x, T* out) {
        SteerableSimtForward(weights).work(shared, x, out);
    }

  private:
    GW_DEVICE explicit SteerableSimtForward(const BlockOperands<T>& weights) : Block(weights) {}

    GW_DEVICE void work(float* shared, const T* x, T* out) {
        float* const weights = this->template place_matrices<false>(shared);
        float* const own = weights + SHARED_WEIGHTS + group * BLADES * features4;
        const i64 step = static_cast<i64>(gridDim.x) * working;
        i64 row = static_cast<i64>(blockIdx.x) * working + group;
        // Groups of one warp go through the loop together.
        i64 first_of_warp = row - group % (32 / LANES);
        if (group < working) this->template fetch<1>({own}, {x}, row, features);
        float mix[GRADES];
        typename Block::Weights product;
        this->normalization_parameters(mix);
        this->product_weights(product, weights);
        const float bias = maps == 2 ? p.at(p.left_bias, column) : 0.0f;
        this->template load_matrices<false>();
        __syncthreads();
        if (group >= working) return;
        Normalizer normalizer[GRADES];
#pragma unroll
        for (int grade = 0; grade < GRADES; ++grade) normalizer[grade] = Normalizer(mix[grade]);
#pragma unroll 1
        for (; first_of_warp < p.rows; row += step, first_of_warp += step) {
            this->fetched();
            float mapped[1][1][BLADES] = {}, added[1][1][BLADES] = {};
            const int stride = features4 * features4;
            this->accumulate(mapped, own, features4, {right + 4 * column}, stride, 4 * features4);
            if (maps == 2) this->accumulate(added, own, features4, {left + 4 * column}, stride, 4 * features4);
            Element at, factor, result;
            this->load_shared(own, at);
            __syncwarp();
            this->template fetch<1>({own}, {x}, row + step, features);
#pragma unroll
            for (int blade = 0; blade < BLADES; ++blade) factor.at[blade][0] = mapped[0][0][blade];
            typename Normalizer::At norms[GRADES];
            this->factors(normalizer, factor, norms);
            this->apply(norms, factor, factor);
            Product::multiply(at, factor, product, result);
            if (maps == 2) {
                result.at[0][0] += bias;
#pragma unroll
                for (int blade = 0; blade < BLADES; ++blade) {
                    result.at[blade][0] = Block::SQRT_HALF * (added[0][0][blade] + result.at[blade][0]);
                }
            }
            this->store_row(out, row, result);
        }
    }
};

template <class A, class T, int LANES>
struct SteerableSimtBackward : BlockSimtBackward<A, 1, T, LANES, QuickFullRange> {
    using Backward = BlockSimtBackward<A, 1, T, LANES, QuickFullRange>;
    using typename Backward::Element;
    using typename Backward::Layout;
    using typename Backward::Normalizer;
    using typename Backward::Parameters;
    using typename Backward::Product;
    using typename Backward::Sums;
    using Backward::block_rows, Backward::feature_row, Backward::features, Backward::features4, Backward::group, Backward::maps, Backward::p;
    using Backward::right, Backward::rows, Backward::working;
    using Backward::BLADES, Backward::GRADES;

    /// The gradient of x (may be null), and those of the parameters summed over the block's rows, [gridDim.x, Layout.count]: the layout of a
    /// block without inputs. Dynamic shared memory as in `BlockSimtBackward`.
    GW_DEVICE static void run(float* shared, const BlockOperands<T>& weights, const T* x, const T* grad, T* grad_x, float* partial) {
        SteerableSimtBackward(weights, shared).work(x, grad, grad_x, partial);
    }

  private:
    GW_DEVICE SteerableSimtBackward(const BlockOperands<T>& operands, float* shared) : Backward(operands, shared) {}

    GW_DEVICE void work(const T* x, const T* grad, T* grad_x, float* partial) {
        const int own = group * feature_row;
        const i64 step = static_cast<i64>(gridDim.x) * block_rows, start = static_cast<i64>(blockIdx.x) * block_rows;
        const Layout layout(0, features, nullptr, maps);
        Sums sums;
        this->clear(sums.product);
        Parameters parameters;
#pragma unroll 1
        for (i64 base = start; base < p.rows; base += step) {
            const bool again = base > start;
            if (again) __syncthreads();  // `matrix_gradients` may still be reading the rows before.
            if (group < working) this->template fetch<2>({rows.hs + own, rows.dls + own}, {x, grad}, base + group, features);
            if (!again) this->load_parameters(parameters);
            if (group < working) {
                float dx[1][1][BLADES];
                product_backward(parameters, own, sums, dx);
                this->linear_backward(group, dx);
                if (grad_x != nullptr) {
                    Element element;
#pragma unroll
                    for (int blade = 0; blade < BLADES; ++blade) element.at[blade][0] = dx[0][0][blade];
                    this->store_row(grad_x, base + group, element);
                }
            }
            __syncthreads();
            this->matrix_gradients(layout, block_rows, partial + blockIdx.x * layout.count, again);
        }
        this->finish(parameters, sums);
        this->write_sums(sums, partial);
    }

    /// The right factor of the group's row, which is at `own` in `hs`: matrices as the backward pass has them are read by columns here.
    GW_DEVICE void right_factor(int own, Element& factor) const {
        const int pitch = 4 * (features4 + 1), place = this->column / 4 * pitch + this->column % 4;
#pragma unroll
        for (int blade = 0; blade < BLADES; ++blade) factor.at[blade][0] = 0;
#pragma unroll 1
        for (int i = 0; i < features4; i += 4) {
            float weight[GRADES][4];
#pragma unroll
            for (int grade = 0; grade < GRADES; ++grade) {
#pragma unroll
                for (int k = 0; k < 4; ++k) weight[grade][k] = right[grade * features4 / 4 * pitch + place + 4 * (i + k)];
            }
            each<BLADES>([&](auto index) {
                constexpr int blade = decltype(index)::value, grade = Backward::tables.grade[blade];
                float values[4];
                load<4>(rows.hs + own + blade * features4 + i, values);
#pragma unroll
                for (int k = 0; k < 4; ++k) factor.at[blade][0] += values[k] * weight[grade][k];
            });
        }
    }

    /// Product and normalisation of the group's row: the gradients of both maps' results go to `dls` and `drs`, and the product's part of the
    /// gradient of x to `dx`. Waits for the row, and ends with a __syncwarp().
    GW_DEVICE void product_backward(const Parameters& parameters, int own, Sums& sums, float (&dx)[1][1][BLADES]) const {
        this->fetched();
        Element at, g, raw, factor, da, db;
        right_factor(own, raw);
        this->load_shared(rows.dls + own, g);
        if (maps == 2) {
#pragma unroll
            for (int blade = 0; blade < BLADES; ++blade) g.at[blade][0] *= Backward::SQRT_HALF;
            sums.left_bias += g.at[0][0];
            this->store_shared(rows.dls + own, g);
        }
        this->load_shared(rows.hs + own, at);
        typename Normalizer::At norms[GRADES];
        this->factors(parameters.normalizer, raw, norms);
        this->apply(norms, raw, factor);
        // Kept in shared memory over the product, which leaves no registers.
        this->store_shared(rows.drs + own, raw);
        __syncwarp();  // Lanes without a feature read that of the last.
        Product::differentiate(at, factor, g, parameters.product, da, db, sums.product);
        float dr[BLADES];
#pragma unroll
        for (int blade = 0; blade < BLADES; ++blade) dr[blade] = db.at[blade][0];
        this->load_shared(rows.drs + own, raw);
        this->differentiate(parameters.normalizer, norms, raw, dr, sums.normalizer, dr);
#pragma unroll
        for (int blade = 0; blade < BLADES; ++blade) db.at[blade][0] = dr[blade];
        this->store_shared(rows.drs + own, db);
#pragma unroll
        for (int blade = 0; blade < BLADES; ++blade) dx[0][0][blade] = da.at[blade][0];
        __syncwarp();
    }
};
