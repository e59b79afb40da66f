// The forward pass of a block with more than 32 features, see clifford/mv_wide.cuh.
// Names: gw_mv_wide_fwd_<algebra>_<dtype>, and gw_mv_wide_exact_fwd_<algebra>_f32 in three parts.
#pragma once

#include "clifford/mv_wide.cuh"

template <class A, class T, int PARTS, bool PAIRED>
struct MvWideForward : MvWide<A, T, PARTS, PAIRED> {
    using Wide = MvWide<A, T, PARTS, PAIRED>;
    using typename Wide::Fragment;
    using typename Wide::Parameters;
    using Wide::BLADES, Wide::GRADES, Wide::PITCH, Wide::ROWS, Wide::WIDTH;
    using Wide::column, Wide::feature, Wide::features, Wide::p, Wide::share;
    /// The pitch of matrices: an odd multiple of 8, so that lanes of four rows and eight columns read 32 banks.
    static constexpr int ACROSS = WIDTH + 8, PLANE = ROWS * PITCH;

    /// out, plus the residual if one is given, from y, the result of the first linear map; r and s for the backward pass, or null. Dynamic
    /// shared memory: the two matrices, the parameters, 16 rows of h, and 128 sums.
    GW_DEVICE static void run(float* shared, const MvBlockWeights<T>& weights, const T* y, const T* residual, T* out, T* r, T* s) {
        MvWideForward(weights).work(shared, y, residual, out, r, s);
    }

  private:
    GW_DEVICE explicit MvWideForward(const MvBlockWeights<T>& weights) : Wide(weights) {}

    GW_DEVICE void work(float* shared, const T* y, const T* residual, T* out, T* kept_r, T* kept_s) const {
        const int features8 = (features + 7) / 8 * 8;
        float* const right = shared;
        float* const left = this->fetch_matrices(right, p.right, features8, ACROSS);
        float* const values = this->fetch_matrices(left, p.left, features8, ACROSS);
        const Parameters parameters = this->load_parameters(values);
        float* const hs = values + Parameters::COUNT;
        float* const sums = hs + BLADES * PLANE;
        const i64 step = static_cast<i64>(gridDim.x) * ROWS;
        this->fetched();
        __syncthreads();
#pragma unroll 1
        for (i64 first = static_cast<i64>(blockIdx.x) * ROWS; first < p.rows; first += step) {
            this->prefetch(y, first + step, 0);
            this->prefetch(residual, first + step, 1);
            Fragment h;
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                float row[BLADES][2];
                this->read(y, first, half, row);
#pragma unroll
                for (int blade = 0; blade < BLADES; ++blade) {
                    h[blade][2 * half] = row[blade][0];
                    h[blade][2 * half + 1] = row[blade][1];
                }
            }
            this->apply_silu(parameters, h);
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                float row[BLADES][2];
                Wide::values_of_row(h, half, row);
                this->put(hs, PLANE, half, row);
            }
            this->meet();
            float mapped[2][BLADES][4] = {};  // r, and l without its bias; then s in its place.
            this->template accumulate<false>(mapped, hs, PLANE, PITCH, features8, {right + 8 * column, left + 8 * column},
                                             features8 * ACROSS, ACROSS);
            if (kept_r != nullptr) this->write(kept_r, first, mapped[0]);
            this->apply_product(parameters, h, mapped[0], mapped[1]);
            if (kept_s != nullptr) this->write(kept_s, first, mapped[1]);
            finish(parameters, residual, mapped[1], out, first, sums);
        }
    }

    /// Writes the layer norm of s, plus the residual if there is one, which is on its way during the exchange of norms; see `sum_features` for
    /// `shared`.
    GW_DEVICE void finish(const Parameters& parameters, const T* residual, Fragment& s, T* out, i64 first, float* shared) const {
        float norms[1][2], base[2][BLADES][2] = {};
        if (residual != nullptr) {
#pragma unroll
            for (int half = 0; half < 2; ++half) this->read(residual, first, half, base[half]);
        }
        this->sum_norms(s, norms, shared);
#pragma unroll
        for (int at = 0; at < 4; ++at) {
            const int half = at / 2, side = at % 2;
            const float scale = quotient(parameters.gain(feature + side), norms[0][half] * share + float(NORM_EPSILON));
#pragma unroll
            for (int blade = 0; blade < BLADES; ++blade) s[blade][at] = base[half][blade][side] + s[blade][at] * scale;
        }
        this->write(out, first, s);
    }
};
