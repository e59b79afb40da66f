// The backward pass of a block with more than 32 features, see clifford/mv_wide.cuh.
// Names: gw_mv_wide_bwd_<algebra>_<dtype>, and gw_mv_wide_exact_bwd_<algebra>_f32 in three parts.
#pragma once

#include "clifford/mv_tile_gradients.cuh"
#include "clifford/mv_wide.cuh"

/// Gradients at one position of a row are formed as in clifford/mv_split_backward.cuh, which has more of its rows in shared memory,
/// and forms the gradients of matrices itself.
template <class A, class T, int PARTS, bool PACKED>
struct MvWideBackward : MvTileGradients<A, MvWide<A, T, PARTS, PACKED>, 0> {
    using Base = MvTileGradients<A, MvWide<A, T, PARTS, PACKED>, 0>;
    using Wide = MvWide<A, T, PARTS, PACKED>;
    using typename Wide::Element;
    using typename Wide::Fragment;
    using typename Wide::Parameters;
    using typename Wide::Product;
    using typename Wide::Rows;
    using Wide::BLADES, Wide::GRADES, Wide::MATRICES, Wide::PLANE, Wide::ROWS;
    using Wide::feature, Wide::p;

    /// The first map's result, and the gradient of that of the block.
    struct Sources {
        const T *y, *grad;
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
    /// `Sums` of MvTileGradients, of which those of silu are in registers until the end: there is no more shared memory.
    static constexpr int THREADS = 256, BY_SIDE = Base::SHARE + 3;
    struct Sums : Base::template ThreadSums<THREADS, BY_SIDE> {
        using Shared = typename Base::template ThreadSums<THREADS, BY_SIDE>;
        using Shared::own;
        static constexpr int SILU = 2 * GRADES;
        float silu[2][GRADES][2] = {};
        float* own_silu = nullptr;

        GW_DEVICE explicit Sums(float* shared) : Shared(shared) {}
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
        float* const matrices = shared;
        this->fetch_matrices(matrices, p.right);
        this->fetch_matrices(matrices + MATRICES, p.left);
        float* const values = matrices + 2 * MATRICES;
        const Parameters parameters = this->load_parameters(values);
        // [BLADES, ROWS, WIDTH]: h, then r and its gradient; the gradient of l.
        float* const dr = values + Parameters::COUNT;
        float* const dl = dr + BLADES * PLANE;
        float* const exchange = dl + BLADES * PLANE;
        const i64 step = static_cast<i64>(gridDim.x) * ROWS;
        Sums sums(exchange + 2 * ROWS * Base::COLUMNS);
        this->fetched();
        __syncthreads();
        Rows y;
        this->read(sources.y, static_cast<i64>(blockIdx.x) * ROWS, y);
#pragma unroll 1
        for (i64 first = static_cast<i64>(blockIdx.x) * ROWS; first < p.rows; first += step) {
            Rows grad;
            this->read(sources.grad, first, grad);
            this->prefetch(sources.grad, first + step, 0);
            this->prefetch(sources.y, first + step, 1);
            this->gate(parameters, y, dr);
            this->meet();
            this->write_tile(results.h, first, dr);
            float dh[1][BLADES][4];
            {
                Fragment mapped[2] = {};  // r, and l without its bias; then s in its place.
                this->template accumulate<false>(mapped, dr, matrices);
                this->multiply_rows(parameters, dr, mapped[0], mapped[1]);
                norm_backward(parameters, mapped[0], mapped[1], grad, dr, dl, exchange, dh[0], sums);
            }
            product_backward(parameters, dr, dl, dh[0], sums);
            this->meet();
            this->write_tile(results.l, first, dl);
            this->write_tile(results.r, first, dr);
            Rows again;
            this->read(sources.y, first, again);  // On its way during the products.
            this->template accumulate<true>(dh, dr, matrices);
            this->template accumulate<true>(dh, dl, matrices + MATRICES);
            this->read(sources.y, first + step, y);
            silu_backward(parameters, results, first, again, dh[0], sums);
            this->meet();  // All have read the gradients of r and l.
        }
        sums.publish(dr);
        __syncthreads();
        this->write_sums(parameters, sums, partial);
    }

    /// The gradient of l: that of the layer norm's argument s, over √2. Also exchanges h and r: h from its place `dr` to `waiting`, by [side][half],
    /// and r to there.
    GW_DEVICE void norm_backward(const Parameters& parameters, const Fragment& r, const Fragment& s, Rows& grad, float* dr, float* dl,
                                 float* exchange, Fragment& waiting, Sums& sums) const {
        Rows by_row;
#pragma unroll
        for (int half = 0; half < 2; ++half) Wide::values_of_row(s, half, by_row[half]);
        this->norm_gradient(parameters, by_row, grad, exchange, sums);
        // There was a barrier since rows of h were read. A lane reads back only what it wrote.
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            this->put(dl, half, grad[half]);
#pragma unroll
            for (int blade = 0; blade < BLADES; ++blade) {
                float* const at = dr + blade * PLANE + this->place(half, 0);
                float h[2];
                load<2>(at, h);
                waiting[blade][half] = h[0];
                waiting[blade][2 + half] = h[1];
                const float both[2] = {r[blade][2 * half], r[blade][2 * half + 1]};
                store<2>(at, both);
            }
        }
    }

    /// The gradient of r, in the place of r; the product's part of the gradient of h to `waiting`, which is h by [side][half], at the end by
    /// [half][side].
    GW_DEVICE void product_backward(const Parameters& parameters, float* dr, const float* dl, Fragment& waiting, Sums& sums) const {
        // Loops that are not unrolled take one position after the other, the first of `waiting`, which moves up: unrolled, they would need the
        // operands of several at a time, and spill. At the end all values are gradients, in the order in which they were.
#pragma unroll 1
        for (int side = 0; side < 2; ++side) {
            typename Product::Weights weights, weight_sums = {};
            float norm_sums[GRADES][1] = {};
            this->product_of(parameters, feature + side, weights);
#pragma unroll 1
            for (int half = 0; half < 2; ++half) {
                const int place = this->place(half, side);
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
            const float second = waiting[blade][1];
            waiting[blade][1] = waiting[blade][2];
            waiting[blade][2] = second;
        }
    }

    /// The gradient of y.
    GW_DEVICE void silu_backward(const Parameters& parameters, const Results& results, i64 first, Rows& y, const Fragment& dh,
                                 Sums& sums) const {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
#pragma unroll
            for (int side = 0; side < 2; ++side) {
                this->silu_gradient(parameters, half, side, dh, y[half], sums, sums.bias(side));
            }
            this->write(results.y, first, half, y[half]);
        }
    }
};
