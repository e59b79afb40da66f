// The forward pass of a block with more than 32 features, see clifford/block/sm90_64.cuh.
// Names: gw_block_sm90_64_fwd_<algebra>_<dtype>, and gw_block_sm90_64_f32x3_fwd_<algebra>_f32 by three products.
#pragma once

#include "clifford/block/sm90_64.cuh"

template <class A, class T, int PRODUCTS, bool PACKED>
struct Block64Forward : Block64<A, T, PRODUCTS, PACKED> {
    using Block = Block64<A, T, PRODUCTS, PACKED>;
    using typename Block::Fragment;
    using typename Block::Parameters;
    using typename Block::Rows;
    using Block::ARRAY, Block::BLADES, Block::COLUMNS, Block::MATRIX, Block::ROWS;
    using Block::feature, Block::p;

    /// out, plus the residual if one is given, from y, the result of the first linear map. Also writes `prepared`, see `Block::Prepared`.
    /// Dynamic shared memory: the two matrices, 16 rows of h in parts and raw, the parameters and scales of the matrices, 128 sums and 8
    /// magnitudes.
    GW_DEVICE static void run(char* shared, const BlockOperands<T>& weights, const T* y, const T* residual, T* out, char* prepared) {
        Block64Forward(weights).work(shared, y, residual, out, prepared);
    }

  private:
    GW_DEVICE explicit Block64Forward(const BlockOperands<T>& weights) : Block(weights) {}

    GW_DEVICE void work(char* const matrices, const T* y, const T* residual, T* out, char* prepared) const {
        using Layout = typename Block::Sizes::Forward;
        char* const rows = matrices + Layout::ROWS_OF_H;
        char* const raws = matrices + Layout::RAW_H;
        float* const values = reinterpret_cast<float*>(matrices + Layout::VALUES);
        float* const matrix_inverses = values + Parameters::COUNT;
        float* const sums = reinterpret_cast<float*>(matrices + Layout::SUMS);
        float* const bounds = reinterpret_cast<float*>(matrices + Layout::MAGNITUDES);
        const i64 step = static_cast<i64>(gridDim.x) * ROWS;
        Rows h;
        this->read(y, static_cast<i64>(blockIdx.x) * ROWS, h);
        this->load_matrices(matrices, matrix_inverses, sums);
        const Parameters parameters = this->load_parameters(values);
        this->publish_largest(h, bounds);
        shared_fence();
        __syncthreads();
        // The same in all blocks.
        if (blockIdx.x == 0 && threadIdx.x == 0) {
            bulk_store(prepared, matrices, Block::Prepared::MATRICES);
            bulk_store(prepared + Block::Prepared::MATRICES, values, Block::Prepared::VALUES);
            store_commit();
        }
#pragma unroll 1
        for (i64 first = static_cast<i64>(blockIdx.x) * ROWS; first < p.rows; first += step) {
            const float inverse = this->gate(parameters, h, bounds, rows, raws);
            this->prefetch(y, first + 2 * step, 0);
            this->prefetch(residual, first + step, 1);
            this->group_barrier();
            // Loads that the products hide: the residual, and y of the next tile.
            Rows base = {};
            if (residual != nullptr) this->read(residual, first, base);
            this->read(y, first + step, h);
            Fragment mapped[2] = {};  // r, and l without its bias; then s in its place.
            this->template accumulate<false>(mapped, rows, matrices, inverse, matrix_inverses);
            this->multiply_rows(parameters, raws, mapped[0], mapped[1]);
            this->publish_largest(h, bounds);
            finish(parameters, base, mapped[1], out, first, sums);
        }
        if (threadIdx.x == 0) store_wait<0>();
    }

    /// Writes the layer norm of s added to `base`; see `sum_features` for `shared`.
    GW_DEVICE void finish(const Parameters& parameters, Rows& base, const Fragment& s, T* out, i64 first, float* shared) const {
        float norms[1][2];
        this->sum_norms(s, norms, shared);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const float scale = quotient(1.0f, norms[0][half] * Block::share + float(NORM_EPSILON));
#pragma unroll
            for (int side = 0; side < 2; ++side) {
                const float factor = parameters.gain(feature + side) * scale;
#pragma unroll
                for (int blade = 0; blade < BLADES; ++blade) base[half][blade][side] += s[blade][2 * half + side] * factor;
            }
        }
        this->write(out, first, base);
    }
};
