// What the backward passes of blocks on many rows and of more than 32 features share: gradients at single positions, how the eight lanes
// of a feature add their sums, and how a block of threads writes its sums to global memory.
#pragma once

#include "clifford/mv_tile_warp.cuh"

/// Added to `Tiles`, which is MvTilesF32 or MvTiles. `TILES` · 32 is at least the number of inputs; with 0, the gradients of matrices are
/// formed elsewhere.
///
/// The kernels keep the sums of a lane in different places, in registers or in shared memory. Here `Sums` is a type that gives, for
/// each side, `bias(side)`, `left_bias(side)`, `gain(side)`, `get_silu(side, values)` and `put_silu(side, values)` by grade, and
/// `folded(side, n)`, sum n of the lane's share, see `fold`.
template <class A, class Tiles, int TILES>
struct MvTileGradients : Tiles {
    using typename Tiles::Element;
    using typename Tiles::Functions;
    using typename Tiles::Normalizer;
    using typename Tiles::Parameters;
    using typename Tiles::Product;
    using Places = MvBlockPlaces<A, (TILES > 0)>;
    using Tiles::feature, Tiles::features, Tiles::group, Tiles::inputs, Tiles::line, Tiles::p, Tiles::share;
    using Tiles::BLADES, Tiles::GRADES, Tiles::PATHS, Tiles::WIDTH, Tiles::tables;

    using Tiles::Tiles;

    /// Groups of a block of threads.
    static constexpr int GROUPS = WIDTH == 32 ? 2 : 1;

    /// A lane's part of a feature's product weights and normalisation parameters: those that it sums over all eight lanes of the
    /// feature.
    static constexpr int SHARE = (PATHS + GRADES + 7) / 8;

    /// The part of `Sums` for silu's parameters, in registers.
    struct SiluSums {
        float silu[2][GRADES][2] = {};

        GW_DEVICE void get_silu(int side, float (&values)[GRADES][2]) const {
#pragma unroll
            for (int grade = 0; grade < GRADES; ++grade) {
                values[grade][0] = silu[side][grade][0];
                values[grade][1] = silu[side][grade][1];
            }
        }
        GW_DEVICE void put_silu(int side, const float (&values)[GRADES][2]) {
#pragma unroll
            for (int grade = 0; grade < GRADES; ++grade) {
                silu[side][grade][0] = values[grade][0];
                silu[side][grade][1] = values[grade][1];
            }
        }
    };

    /// `Sums` in registers: gradients of the parameters of the lane's two features, summed over its rows; of the product weights and, behind them, of the
    /// normalisation the lane's share, see `fold`.
    struct LaneSums : SiluSums {
        float product[2][SHARE] = {};
        float biases[2] = {}, left_biases[2] = {}, gains[2] = {};

        GW_DEVICE float bias(int side) const { return biases[side]; }
        GW_DEVICE float left_bias(int side) const { return left_biases[side]; }
        GW_DEVICE float gain(int side) const { return gains[side]; }
        GW_DEVICE float folded(int side, int n) const { return product[side][n]; }
        GW_DEVICE void add_gain(int side, float value) { gains[side] += value; }
        GW_DEVICE void add_left_bias(int side, float value) { left_biases[side] += value; }

        /// Adds the sums over a tile's rows of a side; see `fold`.
        GW_DEVICE void add_folded(const MvTileGradients& pass, int side, const typename Product::Weights& weights,
                                  const float (&norms)[GRADES][1]) {
            float totals[SHARE];
            pass.fold(weights, norms, totals);
#pragma unroll
            for (int n = 0; n < SHARE; ++n) product[side][n] += totals[n];
        }
    };

    /// Number of gradients per feature, without those of matrices.
    static constexpr int COUNT = PATHS + 3 * GRADES + 3;

    /// Gradients of 16×8 elements of the matrices of each grade, as matrix instructions leave them.
    struct Matrices {
        float linear[TILES][GRADES][4] = {}, right[GRADES][4] = {}, left[GRADES][4] = {};
    };

    /// What the gradient of the layer norm needs of s and the gradient of its result, at the lane's positions: their scalar product by
    /// blades, and the quadratic form and norm of s. `totals` are sums over features, for each half: of norms, and of gain times
    /// product.
    struct NormTerms {
        float dots[4], forms[4], norms[4], totals[2][2] = {};
    };

    /// `s` and `grad` are the lane's values by [half][blade][side], and `grad` is zero where there is no row; see `sum_features` for
    /// `shared`.
    GW_DEVICE void norm_terms(const Parameters& parameters, const float (&s)[2][BLADES][2], const float (&grad)[2][BLADES][2],
                              float* shared, NormTerms& terms) const {
#pragma unroll
        for (int at = 0; at < 4; ++at) {
            const int half = at / 2, side = at % 2;
            float dot = 0;
            Element element;
#pragma unroll
            for (int blade = 0; blade < BLADES; ++blade) {
                element.at[blade][0] = s[half][blade][side];
                dot += s[half][blade][side] * grad[half][blade][side];
            }
            terms.dots[at] = dot;
            terms.forms[at] = Functions::total(element);
            terms.norms[at] = smooth_norm<Quick>(terms.forms[at]);
            if (feature + side < features) terms.totals[0][half] += terms.norms[at];
            terms.totals[1][half] += parameters.gain(feature + side) * dot;
        }
        this->template sum_features<2>(terms.totals, shared);
    }

    /// The gradient of the layer norm: `grad`, the gradient of its result, becomes that of its argument s, over √2, which is also the gradient of
    /// l; adds those of the gain and of l's bias to `sums`. The arguments are those of `norm_terms`.
    template <class Sums>
    GW_DEVICE void norm_gradient(const Parameters& parameters, const float (&s)[2][BLADES][2], float (&grad)[2][BLADES][2], float* shared,
                                 Sums& sums) const {
        NormTerms terms;
        this->norm_terms(parameters, s, grad, shared, terms);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const float scale = quotient(1.0f, terms.totals[0][half] * share + float(NORM_EPSILON));
            const float norm_grad = -terms.totals[1][half] * scale * scale * share;
#pragma unroll
            for (int side = 0; side < 2; ++side) {
                const int at = 2 * half + side;
                const float gain = parameters.gain(feature + side);
                sums.add_gain(side, terms.dots[at] * scale);
                const float form_grad = norm_grad * smooth_norm_slope<Quick>(terms.forms[at], terms.norms[at]);
                each<BLADES>([&](auto index) {
                    constexpr int blade = decltype(index)::value, metric = tables.metric[blade];
                    float value = grad[half][blade][side] * gain * scale;
                    if constexpr (metric != 0) value += float(metric) * form_grad * s[half][blade][side];
                    grad[half][blade][side] = feature + side < features ? Tiles::SQRT_HALF * value : 0.0f;
                });
                sums.add_left_bias(side, grad[half][0][side]);
            }
        }
    }

    /// The gradients of h and of the raw right factor r through the product of h and the normalised r, at one position; adds those of the
    /// weights and of the normalisation to their sums.
    GW_DEVICE void product_gradient(const Parameters& parameters, int feature, const Element& h, const Element& r, const Element& grad,
                                    const typename Product::Weights& weights, Element& grad_h, float (&grad_r)[BLADES],
                                    typename Product::Weights& weight_sums, float (&norm_sums)[GRADES][1]) const {
        Normalizer normalizer[GRADES];
        this->normalizer_of(parameters, feature, normalizer);
        typename Normalizer::At norms[GRADES];
        Functions::factors(normalizer, r, norms);
        Element factor, grad_factor;
        Functions::apply(norms, r, factor);
        Product::differentiate(h, factor, grad, weights, grad_h, grad_factor, weight_sums);
#pragma unroll
        for (int blade = 0; blade < BLADES; ++blade) grad_r[blade] = grad_factor.at[blade][0];
        Functions::differentiate(normalizer, norms, r, grad_r, norm_sums, grad_r);
    }

    /// The gradient of y from that of h, at the position (`half`, `side`): y becomes its gradient; adds those of silu's parameters to
    /// `sums`, and that of the bias to `bias_sum`.
    template <class Sums>
    GW_DEVICE void silu_gradient(const Parameters& parameters, int half, int side, const typename Tiles::Fragment& grad_h,
                                 float (&y)[BLADES][2], Sums& sums, float& bias_sum) const {
        typename Tiles::SiluGate silu[GRADES];
        this->silu_of(parameters, feature + side, silu);
        Element at;
        float g[BLADES];
#pragma unroll
        for (int blade = 0; blade < BLADES; ++blade) {
            at.at[blade][0] = y[blade][side];
            g[blade] = grad_h[blade][2 * half + side];
        }
        typename Tiles::SiluGate::At gates[GRADES];
        Functions::factors(silu, at, gates);
        // Loaded as late as possible: sums in shared memory take registers from here on.
        float silu_sums[GRADES][2];
        sums.get_silu(side, silu_sums);
        Functions::differentiate(silu, gates, at, g, silu_sums, g);
        sums.put_silu(side, silu_sums);
        bias_sum += g[0];
#pragma unroll
        for (int blade = 0; blade < BLADES; ++blade) y[blade][side] = g[blade];
    }

    /// Adds a feature's sums, product weights and then normalisation, over the eight lanes that have it. Each of the lanes gets SHARE of
    /// the totals, from number line·SHARE on: in each of three steps a lane sends half of its remaining sums to another lane and adds
    /// that lane's sums of the other half.
    GW_DEVICE void fold(const typename Product::Weights& weights, const float (&norms)[GRADES][1], float (&totals)[SHARE]) const {
        float left[8 * SHARE] = {};
#pragma unroll
        for (int path = 0; path < PATHS; ++path) left[path] = weights.at[path][0];
#pragma unroll
        for (int grade = 0; grade < GRADES; ++grade) left[PATHS + grade] = norms[grade][0];
        each<3>([&](auto index) {
            constexpr int step = decltype(index)::value, count = 4 * SHARE >> step, offset = 16 >> step;
            const bool is_upper = line & (4 >> step);
#pragma unroll
            for (int n = 0; n < count; ++n) {
                const float given = is_upper ? left[n] : left[count + n], kept = is_upper ? left[count + n] : left[n];
                left[n] = kept + __shfl_xor_sync(0xffffffffu, given, offset);
            }
        });
#pragma unroll
        for (int n = 0; n < SHARE; ++n) totals[n] = left[n];
    }

    /// Writes the block's sums of the matrices' gradients to its place in `partial`.
    GW_DEVICE void write_matrices(const Matrices& matrices, float* partial) const {
        const Places places(p.inputs, p.features);
        partial += blockIdx.x * places.count;
        auto write = [&](const float (&sums)[GRADES][4], i64 place, int first, int count) {
#pragma unroll
            for (int grade = 0; grade < GRADES; ++grade) {
#pragma unroll
                for (int at = 0; at < 4; ++at) {
                    const int i = first + 16 * group + line + at / 2 * 8, o = feature + at % 2;
                    if (i < count && o < features) partial[place + (static_cast<i64>(grade) * count + i) * features + o] = sums[grade][at];
                }
            }
        };
#pragma unroll
        for (int tile = 0; tile < TILES; ++tile) write(matrices.linear[tile], places.linear, 32 * tile, inputs);
        write(matrices.right, places.right, 0, features);
        write(matrices.left, places.left, 0, features);
    }

    /// Adds up the lanes' sums of each feature, and writes them. `shared` has room for GROUPS·COUNT·WIDTH values.
    template <class Sums>
    GW_DEVICE void write_sums(const Parameters& parameters, const Sums& sums, float* shared, float* partial) const {
#pragma unroll
        for (int side = 0; side < 2; ++side) {
            float* const own = shared + group * COUNT * WIDTH + feature + side;
            int number = 0;
            auto give = [&](float value) {
#pragma unroll
                for (int offset = 4; offset < 32; offset *= 2) value += __shfl_xor_sync(0xffffffffu, value, offset);
                if (line == 0) own[number * WIDTH] = value;
                ++number;
            };
            give(sums.bias(side));
            give(sums.left_bias(side));
            give(sums.gain(side));
            float silu[GRADES][2];
            sums.get_silu(side, silu);
#pragma unroll
            for (int grade = 0; grade < GRADES; ++grade) give(silu[grade][0]);
#pragma unroll
            for (int grade = 0; grade < GRADES; ++grade) give(silu[grade][1]);
#pragma unroll
            for (int n = 0; n < SHARE; ++n) {
                const int of = line * SHARE + n;
                float value = sums.folded(side, n);
                if (of >= PATHS && of < PATHS + GRADES) value = parameters.normalizer(of - PATHS, feature + side).finish(value);
                if (of < PATHS + GRADES) own[(number + of) * WIDTH] = value;
            }
        }
        __syncthreads();
        partial += blockIdx.x * Places(p.inputs, p.features).count;
        const Places places(p.inputs, p.features, partial);
        for (int at = threadIdx.x; at < COUNT * WIDTH; at += blockDim.x) {
            const int of = at % WIDTH, number = at / WIDTH;
            float sum = shared[at];
            if constexpr (GROUPS == 2) sum += shared[COUNT * WIDTH + at];
            if (of < features) partial[place_of(places, number, of)] = sum;
        }
    }

    /// The offset of a value of a feature, in the order of `write_sums`.
    GW_DEVICE i64 place_of(const Places& places, int number, int of) const {
        if (number == 0) return places.bias + of;
        if (number == 1) return places.left_bias + of;
        if (number == 2) return places.gain + of;
        const int product = number - 3 - 2 * GRADES;
        if (product < 0) return (number < 3 + GRADES ? places.slope : places.shift) + of * GRADES + (number - 3) % GRADES;
        return product < PATHS ? places.product + of * PATHS + product : places.normalization + of * GRADES + product - PATHS;
    }
};
