// The backward pass of a block with more than 32 features, see clifford/mv_wide.cuh.
// Names: gw_mv_wide_bwd_<algebra>_<dtype>, and gw_mv_wide_exact_bwd_<algebra>_f32 in three parts.
#pragma once

#include "clifford/mv_tile_gradients.cuh"
#include "clifford/mv_wide.cuh"

/// Gradients at one position of a row are formed as in clifford/mv_split_backward.cuh, which has more of its rows in shared memory,
/// and forms the gradients of matrices itself.
template <class A, class T, int PARTS, bool PAIRED>
struct MvWideBackward : MvTileGradients<A, MvWide<A, T, PARTS, PAIRED>, 0> {
    using Base = MvTileGradients<A, MvWide<A, T, PARTS, PAIRED>, 0>;
    using Wide = MvWide<A, T, PARTS, PAIRED>;
    using typename Wide::Element;
    using typename Wide::Fragment;
    using typename Wide::Parameters;
    using typename Wide::Product;
    using Wide::BLADES, Wide::GRADES, Wide::PITCH, Wide::ROWS, Wide::WIDTH, Wide::tables;
    using Wide::column, Wide::feature, Wide::features, Wide::line, Wide::p, Wide::share;
    static constexpr int PLANE = ROWS * PITCH;

    /// The first map's result, the saved intermediates of the forward pass, and the gradient of its result.
    struct Sources {
        const T *y, *r, *s, *grad;
    };

    /// h, and the gradients of r, l and y.
    struct Results {
        T *h, *r, *l, *y;
    };

    /// Also writes the gradients of the parameters but the matrices, summed over the block's rows, to [gridDim.x, Places.count]. Dynamic
    /// shared memory: the two matrices, the parameters, two arrays of rows, 256 sums of rows, and the lanes' sums of parameters.
    GW_DEVICE static void run(float* shared, const MvBlockWeights<T>& weights, const Sources& sources, const Results& results,
                              float* partial) {
        MvWideBackward(weights).work(shared, sources, results, partial);
    }

  private:
    /// `Sums` of MvTileGradients, of which those of silu are in registers until the end: there is no more shared memory. `own` is the
    /// thread's first; they are THREADS apart.
    struct Sums {
        static constexpr int THREADS = 256, BY_SIDE = Base::SHARE + 3, COUNT = 2 * BY_SIDE * THREADS, SILU = 2 * GRADES;
        float silu[2][GRADES][2] = {};
        float *own, *own_silu = nullptr;

        GW_DEVICE explicit Sums(float* shared) : own(shared + threadIdx.x) {
#pragma unroll
            for (int n = 0; n < 2 * BY_SIDE; ++n) own[n * THREADS] = 0;
        }
        GW_DEVICE float& at(int side, int n) const { return own[(side * BY_SIDE + n) * THREADS]; }
        GW_DEVICE float& bias(int side) const { return at(side, Base::SHARE); }
        GW_DEVICE void add_left_bias(int side, float value) const { at(side, Base::SHARE + 1) += value; }
        GW_DEVICE void add_gain(int side, float value) const { at(side, Base::SHARE + 2) += value; }
        GW_DEVICE void add_folded(const MvWideBackward& pass, int side, const typename Product::Weights& weights,
                                  const float (&norms)[GRADES][1]) {
            float totals[Base::SHARE];
            pass.fold(weights, norms, totals);
#pragma unroll
            for (int n = 0; n < Base::SHARE; ++n) at(side, n) += totals[n];
        }
        GW_DEVICE void get_silu(int side, float (&values)[GRADES][2]) const {
#pragma unroll
            for (int n = 0; n < SILU; ++n) values[n / 2][n % 2] = silu[side][n / 2][n % 2];
        }
        GW_DEVICE void put_silu(int side, const float (&values)[GRADES][2]) {
#pragma unroll
            for (int n = 0; n < SILU; ++n) silu[side][n / 2][n % 2] = values[n / 2][n % 2];
        }

        /// Puts the sums of silu to shared memory, 4 · GRADES values of each thread. A barrier must follow before `of`.
        GW_DEVICE void publish(float* shared) {
            own_silu = shared + threadIdx.x;
#pragma unroll
            for (int n = 0; n < 2 * SILU; ++n) own_silu[n * THREADS] = silu[n / SILU][n % SILU / 2][n % 2];
        }
        GW_DEVICE float of(int thread, int side, int n) const {
            const int singles = 3 + SILU, grade = n - 3, other = thread - static_cast<int>(threadIdx.x);
            if (n >= 3 && n < singles) return own_silu[(side * SILU + 2 * (grade % GRADES) + grade / GRADES) * THREADS + other];
            return own[(side * BY_SIDE + (n < 3 ? Base::SHARE + n : n - singles)) * THREADS + other];
        }
    };

    GW_DEVICE explicit MvWideBackward(const MvBlockWeights<T>& weights) : Base(weights) {}

    GW_DEVICE void work(float* shared, const Sources& sources, const Results& results, float* partial) const {
        const int features8 = (features + 7) / 8 * 8;
        float* const right = shared;
        float* const left = this->fetch_matrices(right, p.right, features8, PITCH);
        float* const values = this->fetch_matrices(left, p.left, features8, PITCH);
        const Parameters parameters = this->load_parameters(values);
        // [BLADES, ROWS, PITCH]: r, then its gradient; the gradient of l.
        float* const dr = values + Parameters::COUNT;
        float* const dl = dr + BLADES * PLANE;
        float* const exchange = dl + BLADES * PLANE;
        const i64 step = static_cast<i64>(gridDim.x) * ROWS;
        Sums sums(exchange + 2 * ROWS * Base::COLUMNS);
        this->fetched();
        __syncthreads();
#pragma unroll 1
        for (i64 first = static_cast<i64>(blockIdx.x) * ROWS; first < p.rows; first += step) {
            this->prefetch(sources.s, first + step, 0);
            this->prefetch(sources.grad, first + step, 1);
            this->prefetch(sources.y, first + step, 2);
            this->prefetch(sources.r, first + step, 3);
            float dh[1][BLADES][4];  // It is y first, then h.
            norm_backward(parameters, sources, results, first, dr, dl, exchange, dh[0], sums);
            product_backward(parameters, results, first, dr, dl, dh[0], sums);
            this->meet();
            accumulate_columns(dh, dr, features8, right);
            accumulate_columns(dh, dl, features8, left);
            silu_backward(parameters, sources, results, first, dh[0], sums);
            this->meet();  // All have read the gradients of r and l.
        }
        sums.publish(dr);
        __syncthreads();
        this->write_sums(parameters, sums, partial);
    }

    /// dh += rows · the transposed matrices, for the warp's 8 columns.
    GW_DEVICE void accumulate_columns(float (&dh)[1][BLADES][4], const float* rows, int count, const float* matrices) const {
        this->template accumulate<true>(dh, rows, PLANE, PITCH, count, {matrices + 8 * column * PITCH}, count * PITCH, PITCH);
    }

    /// The gradient of l: that of the layer norm's argument s, over √2. Also brings r to its place, and y: the loads of all four arrays are
    /// in flight together.
    GW_DEVICE void norm_backward(const Parameters& parameters, const Sources& sources, const Results& results, i64 first, float* dr,
                                 float* dl, float* exchange, Fragment& y, Sums& sums) const {
        float s[2][BLADES][2], g[2][BLADES][2], r[2][BLADES][2];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            this->read(sources.s, first, half, s[half]);
            this->read(sources.grad, first, half, g[half]);
        }
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float row[BLADES][2];
            this->read(sources.r, first, half, r[half]);
            this->read(sources.y, first, half, row);
#pragma unroll
            for (int blade = 0; blade < BLADES; ++blade) {
                y[blade][2 * half] = row[blade][0];
                y[blade][2 * half + 1] = row[blade][1];
            }
        }
        this->norm_gradient(parameters, s, g, exchange, sums);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            this->put(dr, PLANE, half, r[half]);
            this->put(dl, PLANE, half, g[half]);
            this->write_row(results.l, first, half, g[half]);
        }
        // A lane reads back only what it wrote.
    }

    /// h and the gradient of r, in the place of r; the product's part of the gradient of h to `dh`, which is y.
    GW_DEVICE void product_backward(const Parameters& parameters, const Results& results, i64 first, float* dr, const float* dl,
                                    Fragment& dh, Sums& sums) const {
        this->apply_silu(parameters, dh);
        this->write(results.h, first, dh);
        // Loops that are not unrolled take one position after the other, the first of `waiting`, which moves up: unrolled, they would need the
        // operands of several at a time, and spill. At the end all values are gradients, in the order in which they were.
        float waiting[BLADES][4];
#pragma unroll
        for (int blade = 0; blade < BLADES; ++blade) {
#pragma unroll
            for (int at = 0; at < 4; ++at) waiting[blade][2 * (at % 2) + at / 2] = dh[blade][at];
        }
#pragma unroll 1
        for (int side = 0; side < 2; ++side) {
            typename Product::Weights weights, weight_sums = {};
            float norm_sums[GRADES][1] = {};
            this->product_of(parameters, feature + side, weights);
#pragma unroll 1
            for (int half = 0; half < 2; ++half) {
                const int place = (line + 8 * half) * PITCH + feature + side;
                Element h, raw, grad, da;
#pragma unroll
                for (int blade = 0; blade < BLADES; ++blade) {
                    h.at[blade][0] = waiting[blade][0];
                    raw.at[blade][0] = dr[place + blade * PLANE];
                    grad.at[blade][0] = dl[place + blade * PLANE];
                }
                float gradient[BLADES];
                this->product_gradient(parameters, feature + side, h, raw, grad, weights, da, gradient, weight_sums, norm_sums);
#pragma unroll
                for (int blade = 0; blade < BLADES; ++blade) {
                    dr[place + blade * PLANE] = gradient[blade];
#pragma unroll
                    for (int at = 0; at < 3; ++at) waiting[blade][at] = waiting[blade][at + 1];
                    waiting[blade][3] = da.at[blade][0];
                }
            }
            sums.add_folded(*this, side, weight_sums, norm_sums);
        }
#pragma unroll
        for (int blade = 0; blade < BLADES; ++blade) {
#pragma unroll
            for (int at = 0; at < 4; ++at) dh[blade][at] = waiting[blade][2 * (at % 2) + at / 2];
        }
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float row[BLADES][2];
            const float* at = dr + (line + 8 * half) * PITCH + feature;
#pragma unroll
            for (int blade = 0; blade < BLADES; ++blade, at += PLANE) load<2>(at, row[blade]);
            this->write_row(results.r, first, half, row);
        }
    }

    /// The gradient of y.
    GW_DEVICE void silu_backward(const Parameters& parameters, const Sources& sources, const Results& results, i64 first,
                                 const Fragment& dh, Sums& sums) const {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float y[BLADES][2];
            this->read(sources.y, first, half, y);
#pragma unroll
            for (int side = 0; side < 2; ++side) {
                this->silu_gradient(parameters, half, side, dh, y, sums, sums.bias(side));
            }
            this->write_row(results.y, first, half, y);
        }
    }
};
