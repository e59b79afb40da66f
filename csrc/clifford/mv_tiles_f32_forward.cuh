// The forward pass of a block on many rows, see clifford/mv_tiles_f32.cuh. Names: gw_mv_tiles_fwd_<algebra>_<dtype>.
#pragma once

#include "clifford/mv_tiles_f32.cuh"

template <class A>
struct MvTilesF32Forward : MvTilesF32<A> {
    using Tiles = MvTilesF32<A>;
    using typename Tiles::Fragment;
    using typename Tiles::Parameters;
    using Tiles::BLADES, Tiles::GRADES, Tiles::PITCH, Tiles::ROWS, Tiles::WIDTH;
    using Tiles::column, Tiles::feature, Tiles::features, Tiles::group, Tiles::inputs, Tiles::p, Tiles::share;
    /// The pitch of matrices: an odd multiple of 8, so that lanes of four rows and eight columns read 32 banks.
    static constexpr int ACROSS = WIDTH + 8;

    /// What the backward pass reads; each may be null.
    struct Kept {
        float *y, *r, *s;
    };

    /// out, plus the residual if one is given. Dynamic shared memory: the matrices, the parameters, then for each group 16 rows of x and
    /// of h, and 64 sums.
    GW_DEVICE static void run(float* shared, const MvBlockWeights<float>& weights, const float* x, const float* residual, float* out,
                              const Kept& kept) {
        MvTilesF32Forward(weights).work(shared, x, residual, out, kept);
    }

  private:
    GW_DEVICE explicit MvTilesF32Forward(const MvBlockWeights<float>& weights) : Tiles(weights) {}

    GW_DEVICE void work(float* shared, const float* x, const float* residual, float* out, const Kept& kept) const {
        const int inputs8 = (inputs + 7) / 8 * 8, features8 = (features + 7) / 8 * 8, wide = inputs8 + 4;
        const int x_plane = ROWS * wide, h_plane = ROWS * PITCH;
        float* const linear = shared;
        float* const right = linear + GRADES * inputs8 * ACROSS;
        float* const left = right + GRADES * features8 * ACROSS;
        float* const values = left + GRADES * features8 * ACROSS;
        float* const own = values + Parameters::COUNT + group * (BLADES * (x_plane + h_plane) + 4 * ROWS);
        float* const xs = own;
        float* const hs = xs + BLADES * x_plane;
        float* const sums = hs + BLADES * h_plane;
        const i64 groups = blockDim.x / 128, step = groups * gridDim.x * ROWS;
        i64 first = (groups * blockIdx.x + group) * ROWS;
        this->fetch(xs, x, first, inputs8, wide);
        this->load_matrices(linear, p.linear, inputs, inputs8, ACROSS);
        this->load_matrices(right, p.right, features, features8, ACROSS);
        this->load_matrices(left, p.left, features, features8, ACROSS);
        const Parameters parameters = this->load_parameters(values);
        __syncthreads();
#pragma unroll 1
        for (; first < p.rows; first += step) {
            this->fetched();
            this->meet();
            float h[1][BLADES][4] = {};
            this->template accumulate<false>(h, xs, x_plane, wide, inputs8, {linear + 8 * column}, inputs8 * ACROSS, ACROSS);
            this->meet();  // The group has read x.
            this->fetch(xs, x, first + step, inputs8, wide);
            gate(parameters, h[0], kept.y, first, hs);
            this->meet();
            float mapped[2][BLADES][4] = {};  // r, and l without its bias; then s in its place.
            this->template accumulate<false>(mapped, hs, h_plane, PITCH, features8, {right + 8 * column, left + 8 * column},
                                             features8 * ACROSS, ACROSS);
            if (kept.r != nullptr) this->write(kept.r, first, mapped[0]);
            this->apply_product(parameters, h[0], mapped[0], mapped[1]);
            if (kept.s != nullptr) this->write(kept.s, first, mapped[1]);
            finish(parameters, residual, mapped[1], out, first, sums);
        }
    }

    /// y, the result of the first linear map, becomes h in place and in `rows`.
    GW_DEVICE void gate(const Parameters& parameters, Fragment& h, float* kept_y, i64 first, float* rows) const {
#pragma unroll
        for (int at = 0; at < 4; ++at) h[0][at] += parameters.bias(feature + at % 2);
        if (kept_y != nullptr) this->write(kept_y, first, h);
        this->apply_silu(parameters, h);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float both[BLADES][2];
            Tiles::values_of_row(h, half, both);
            this->put(rows, ROWS * PITCH, half, both);
        }
    }

    /// Writes the layer norm of s, plus the residual if there is one; see `sum_features` for `shared`.
    GW_DEVICE void finish(const Parameters& parameters, const float* residual, Fragment& s, float* out, i64 first, float* shared) const {
        float norms[1][2];
        this->sum_norms(s, norms, shared);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float base[BLADES][2] = {};
            if (residual != nullptr) this->read(residual, first, half, base);
#pragma unroll
            for (int side = 0; side < 2; ++side) {
                const int at = 2 * half + side;
                const float scale = quotient(parameters.gain(feature + side), norms[0][half] * share + float(NORM_EPSILON));
#pragma unroll
                for (int blade = 0; blade < BLADES; ++blade) s[blade][at] = base[blade][side] + s[blade][at] * scale;
            }
        }
        this->write(out, first, s);
    }
};
