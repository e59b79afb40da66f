// The backward pass of a block on many rows, see clifford/mv_tiles_f32.cuh. Names: gw_mv_tiles_bwd<TILES>_<algebra>_<dtype>.
#pragma once

#include "clifford/mv_tile_gradients.cuh"
#include "clifford/mv_tiles_f32.cuh"

/// `TILES` · 32 is at least the number of inputs.
///
/// The two groups work on adjacent rows, and form the gradients of the matrices of all 32 rows together: each warp has the same 16
/// inputs (by its group) and 8 features (by its column) of every matrix, and keeps their sums in registers over all rows.
template <class A, int TILES>
struct MvTilesF32Backward : MvTileGradients<A, MvTilesF32<A>, TILES> {
    using Base = MvTileGradients<A, MvTilesF32<A>, TILES>;
    using Tiles = MvTilesF32<A>;
    using typename Base::Matrices;
    using typename Tiles::Element;
    using typename Tiles::Fragment;
    using typename Tiles::Parameters;
    using typename Tiles::Product;
    template <int N>
    using Operand = typename Tiles::template Operand<N>;
    using Tiles::BLADES, Tiles::GRADES, Tiles::PITCH, Tiles::ROWS, Tiles::WIDTH, Tiles::tables;
    using Tiles::column, Tiles::feature, Tiles::features, Tiles::group, Tiles::inputs, Tiles::line, Tiles::p, Tiles::pair, Tiles::share;
    /// Rows of the block, inputs rounded up, and the pitch of a row of inputs.
    static constexpr int ALL = 2 * ROWS, WIDE = TILES * 32, WIDE_PITCH = WIDE + 4;

    /// The inputs and saved intermediates of the forward pass, and the gradient of its result.
    struct Sources {
        const float *x, *y, *r, *s, *grad;
    };

    /// The gradient of x (may be null), and those of the parameters summed over the block's rows, [gridDim.x, Places.count]. Dynamic
    /// shared memory: the matrices, the parameters, three arrays of rows (see `Rows`), and 256 sums.
    GW_DEVICE static void run(float* shared, const MvBlockWeights<float>& weights, const Sources& sources, float* grad_x, float* partial) {
        MvTilesF32Backward(weights).work(shared, sources, grad_x, partial);
    }

  private:
    /// [BLADES, ALL, PITCH], of which each group has 16 rows: the gradient of r; that of l, later that of y; h, later x with a pitch of
    /// its own.
    struct Rows {
        float *dr, *dl, *h;
    };
    static constexpr int PLANE = ALL * PITCH, WIDE_PLANE = ALL * WIDE_PITCH;

    using Sums = typename Base::LaneSums;

    GW_DEVICE explicit MvTilesF32Backward(const MvBlockWeights<float>& weights) : Base(weights) {}

    GW_DEVICE void work(float* shared, const Sources& sources, float* grad_x, float* partial) const {
        const int features8 = (features + 7) / 8 * 8;
        float* const linear = shared;
        float* const right = this->load_matrices(linear, p.linear, inputs, WIDE, PITCH);
        float* const left = this->load_matrices(right, p.right, features, WIDTH, PITCH);
        float* const values = this->load_matrices(left, p.left, features, WIDTH, PITCH);
        const Parameters parameters = this->load_parameters(values);
        Rows rows;
        rows.dr = values + Parameters::COUNT;
        rows.dl = rows.dr + BLADES * PLANE;
        rows.h = rows.dl + BLADES * PLANE;
        float* const exchange = rows.h + BLADES * WIDE_PLANE + group * 8 * ROWS;
        const int own = group * ROWS * PITCH, own_wide = group * ROWS * WIDE_PITCH;
        const i64 step = static_cast<i64>(gridDim.x) * ALL;
        Sums sums;
        Matrices matrices;
        __syncthreads();
#pragma unroll 1
        for (i64 base = static_cast<i64>(blockIdx.x) * ALL; base < p.rows; base += step) {
            const i64 first = base + group * ROWS;
            norm_backward(parameters, sources, first, rows.dl + own, exchange, sums);
            float dh[1][BLADES][4];
            product_backward(parameters, sources, first, rows, own, dh[0], sums);
            __syncthreads();
            correlate(matrices.right, rows.h + 16 * group, PLANE, PITCH, rows.dr);
            correlate(matrices.left, rows.h + 16 * group, PLANE, PITCH, rows.dl);
            this->template accumulate<true>(dh, rows.dr + own, PLANE, PITCH, features8, {right + 8 * column * PITCH}, WIDTH * PITCH, PITCH);
            this->template accumulate<true>(dh, rows.dl + own, PLANE, PITCH, features8, {left + 8 * column * PITCH}, WIDTH * PITCH, PITCH);
            __syncthreads();  // All have read h and the gradient of l.
            fetch_inputs(rows.h + own_wide, sources.x, first);
            silu_backward(parameters, sources, first, dh[0], rows.dl + own, sums);
            this->fetched();
            __syncthreads();
#pragma unroll
            for (int tile = 0; tile < TILES; ++tile) {
                correlate(matrices.linear[tile], rows.h + 32 * tile + 16 * group, WIDE_PLANE, WIDE_PITCH, rows.dl);
            }
            if (grad_x != nullptr) input_backward(linear, rows.dl + own, first, features8, grad_x);
            __syncthreads();  // All have read x and the gradient of y.
        }
        this->write_matrices(matrices, partial);
        this->write_sums(parameters, sums, rows.dr, partial);
    }

    /// Loads x of the group's rows, with zeros for rows past the end. Columns past a row's inputs are not read, or only for results
    /// that are not written. Apart from `Tiles::fetch`, whose pitch is known only at run time and which guards every column.
    GW_DEVICE void fetch_inputs(float* target, const float* source, i64 first) const {
        const int lane = threadIdx.x % 32;
        const bool aligned = inputs % 4 == 0 && reinterpret_cast<u64>(source) % 16 == 0;
        auto copy = [&](auto width, auto lanes) {
            constexpr int V = decltype(width)::value, LANES = decltype(lanes)::value, TOGETHER = 4 * (32 / LANES);
            const int own = column * (32 / LANES) + lane / LANES;
#pragma unroll 1
            for (int i = lane % LANES * V; i < inputs; i += LANES * V) {
#pragma unroll 16
                for (int number = own; number < BLADES * ROWS; number += TOGETHER) {
                    const int blade = number / ROWS, row = number % ROWS;
                    const bool inside = first + row < p.rows;
                    const i64 from = inside ? (blade * p.rows + first + row) * inputs + i : 0;
                    float* const to = target + blade * WIDE_PLANE + row * WIDE_PITCH + i;
                    if constexpr (V == 4) {
                        copy_async_16(to, source + from, inside ? 16 : 0);
                    } else {
                        copy_async_4(to, source + from, inside ? 4 : 0);
                    }
                }
            }
        };
        if (aligned) {
            copy(Constant<4>{}, Constant<8>{});
        } else {
            copy(Constant<1>{}, Constant<32>{});
        }
    }

    /// The gradient of l to `target`: that of the layer norm's argument s, over √2.
    GW_DEVICE void norm_backward(const Parameters& parameters, const Sources& sources, i64 first, float* target, float* exchange,
                                 Sums& sums) const {
        float s[2][BLADES][2], g[2][BLADES][2];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            this->read(sources.s, first, half, s[half]);
            this->read(sources.grad, first, half, g[half]);
        }
        this->norm_gradient(parameters, s, g, exchange, sums);
#pragma unroll
        for (int half = 0; half < 2; ++half) this->put(target, PLANE, half, g[half]);
        // A lane reads back only what it wrote.
    }

    /// The lane's value of every blade of one row and feature.
    GW_DEVICE void read_one(const float* source, i64 first, int half, int side, Element& element) const {
        const i64 row = first + line + 8 * half, plane = p.rows * features;
        const float* at = source + row * features + feature + side;
        const bool inside = row < p.rows && feature + side < features;
#pragma unroll
        for (int blade = 0; blade < BLADES; ++blade, at += plane) element.at[blade][0] = inside ? *at : 0.0f;
    }

    /// The recomputed h and the gradient of r go to shared memory, the product's part of the gradient of h to `dh`.
    GW_DEVICE void product_backward(const Parameters& parameters, const Sources& sources, i64 first, const Rows& rows, int own,
                                    Fragment& dh, Sums& sums) const {
#pragma unroll
        for (int side = 0; side < 2; ++side) {
            typename Product::Weights weights, weight_sums = {};
            float norm_sums[GRADES][1] = {};
            this->product_of(parameters, feature + side, weights);
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int place = own + (line + 8 * half) * PITCH + feature + side;
                Element h, raw, dl, da;
                read_one(sources.y, first, half, side, h);
                read_one(sources.r, first, half, side, raw);
#pragma unroll
                for (int blade = 0; blade < BLADES; ++blade) dl.at[blade][0] = rows.dl[place + blade * PLANE];
                this->apply_silu(parameters, feature + side, h);
#pragma unroll
                for (int blade = 0; blade < BLADES; ++blade) rows.h[place + blade * PLANE] = h.at[blade][0];
                float dr[BLADES];
                this->product_gradient(parameters, feature + side, h, raw, dl, weights, da, dr, weight_sums, norm_sums);
#pragma unroll
                for (int blade = 0; blade < BLADES; ++blade) {
                    rows.dr[place + blade * PLANE] = dr[blade];
                    dh[blade][2 * half + side] = da.at[blade][0];
                }
                // Keeps the positions apart: interleaved, they would take more registers than a thread has.
                asm volatile("" ::: "memory");
            }
            sums.add_folded(*this, side, weight_sums, norm_sums);
        }
    }

    /// The gradient of y to `target`.
    GW_DEVICE void silu_backward(const Parameters& parameters, const Sources& sources, i64 first, const Fragment& dh, float* target,
                                 Sums& sums) const {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float y[BLADES][2];
            this->read(sources.y, first, half, y);
#pragma unroll
            for (int side = 0; side < 2; ++side) {
                this->silu_gradient(parameters, half, side, dh, y, sums, sums.biases[side]);
            }
            this->put(target, PLANE, half, y);
        }
    }

    /// The gradient of x of the group's rows, through the first linear map.
    GW_DEVICE void input_backward(const float* linear, const float* dy, i64 first, int features8, float* grad_x) const {
        const bool paired = Tiles::is_paired(grad_x, inputs);
        const i64 plane = p.rows * inputs;
#pragma unroll 1
        for (int i = 8 * column; i < inputs; i += 32) {
            float dx[1][BLADES][4] = {};
            this->template accumulate<true>(dx, dy, PLANE, PITCH, features8, {linear + i * PITCH}, WIDE * PITCH, PITCH);
            const int input = i + 2 * pair;
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const i64 row = first + line + 8 * half;
                if (row >= p.rows || input >= inputs) continue;
                float* at = grad_x + row * inputs + input;
#pragma unroll
                for (int blade = 0; blade < BLADES; ++blade, at += plane) {
                    const float both[2] = {dx[0][blade][2 * half], dx[0][blade][2 * half + 1]};
                    if (paired) {
                        store<2>(at, both);
                    } else {
                        at[0] = both[0];
                        if (input + 1 < inputs) at[1] = both[1];
                    }
                }
            }
        }
    }

    /// sums[grade] += Σ over all rows and the grade's blades of a[row][i]·b[row][o], for 16 i from `a` on and the warp's 8 features o of b.
    ///
    /// The order of rows within a sum is free: lane t takes rows 2t and 2t+1 instead of t and t+4, so that the lanes of four rows and
    /// eight columns read 32 banks.
    GW_DEVICE void correlate(float (&sums)[GRADES][4], const float* a, int a_plane, int a_pitch, const float* b) const {
        const float* const left = a + 2 * pair * a_pitch + line;
        const float* const right = b + 2 * pair * PITCH + 8 * column + line;
        each<GRADES>([&](auto index) {
            constexpr int grade = decltype(index)::value, begin = tables.first[grade], end = tables.first[grade + 1];
#pragma unroll 1
            for (int blade = begin; blade < end; ++blade) {
#pragma unroll
                for (int row = 0; row < ALL; row += 8) {
                    const float* const one = left + blade * a_plane + row * a_pitch;
                    const float* const two = right + blade * PLANE + row * PITCH;
                    Operand<4> first;
                    Operand<2> second;
                    first.set(0, one[0]);
                    first.set(1, one[8]);
                    first.set(2, one[a_pitch]);
                    first.set(3, one[a_pitch + 8]);
                    second.set(0, two[0]);
                    second.set(1, two[PITCH]);
                    Tiles::multiply(sums[grade], first, second);
                }
            }
        });
    }
};
