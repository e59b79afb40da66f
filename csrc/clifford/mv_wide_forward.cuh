// The forward pass of a block with more than 32 features, see clifford/mv_wide.cuh.
// Names: gw_mv_wide_fwd_<algebra>_<dtype>, and gw_mv_wide_exact_fwd_<algebra>_f32 in three parts.
#pragma once

#include "clifford/mv_wide.cuh"

template <class A, class T, int PARTS, bool PAIRED>
struct MvWideForward : MvWide<A, T, PARTS, PAIRED> {
    using Wide = MvWide<A, T, PARTS, PAIRED>;
    using typename Wide::Fragment;
    using typename Wide::Parameters;
    using typename Wide::Rows;
    using Wide::BLADES, Wide::COLUMNS, Wide::MATRICES, Wide::PLANE, Wide::ROWS;
    using Wide::feature, Wide::group, Wide::p;
    /// Groups of warps, which work on tiles of their own: one computes while the other waits for memory or at a barrier.
    static constexpr int GROUPS = 2;

    /// out, plus the residual if one is given, from y, the result of the first linear map. Dynamic shared memory: the two matrices, the
    /// parameters, and for each group 16 rows of h and 128 sums.
    GW_DEVICE static void run(float* shared, const MvBlockWeights<T>& weights, const T* y, const T* residual, T* out) {
        MvWideForward(weights).work(shared, y, residual, out);
    }

  private:
    GW_DEVICE explicit MvWideForward(const MvBlockWeights<T>& weights) : Wide(weights) {}

    GW_DEVICE void work(float* shared, const T* y, const T* residual, T* out) const {
        float* const matrices = shared;
        this->fetch_matrices(matrices, p.right);
        this->fetch_matrices(matrices + MATRICES, p.left);
        float* const values = matrices + 2 * MATRICES;
        const Parameters parameters = this->load_parameters(values);
        float* const rows = values + Parameters::COUNT + group * BLADES * PLANE;
        float* const sums = values + Parameters::COUNT + GROUPS * BLADES * PLANE;
        this->fetched();
        __syncthreads();
        // The first groups of all blocks take the first tiles, so that few tiles are spread over all multiprocessors.
        const i64 step = static_cast<i64>(gridDim.x) * GROUPS * ROWS;
#pragma unroll 1
        for (i64 first = (blockIdx.x + static_cast<i64>(group) * gridDim.x) * ROWS; first < p.rows; first += step) {
            this->prefetch(y, first + step, 0);
            this->prefetch(residual, first + step, 1);
            Rows h;
            this->read(y, first, h);
            this->gate(parameters, h, rows);
            this->meet();
            Fragment mapped[2] = {};  // r, and l without its bias; then s in its place.
            this->template accumulate<false>(mapped, rows, matrices);
            this->multiply_rows(parameters, rows, mapped[0], mapped[1]);
            finish(parameters, residual, mapped[1], out, first, sums + Wide::anew(group) * ROWS * COLUMNS);
        }
    }

    /// Writes the layer norm of s, plus the residual if there is one, which is on its way during the exchange of norms; see `sum_features` for
    /// `shared`.
    GW_DEVICE void finish(const Parameters& parameters, const T* residual, const Fragment& s, T* out, i64 first, float* shared) const {
        float norms[1][2];
        Rows base = {};
        if (residual != nullptr) this->read(residual, first, base);
        this->sum_norms(s, norms, shared);
        const float count = static_cast<float>(Wide::features);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const float scale = quotient(count, norms[0][half] + float(NORM_EPSILON) * count);
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
