// What the backward passes of blocks on many rows and of more than 32 features share: gradients at single positions, how the eight lanes
// of a feature add their sums, and how a block of threads writes its sums to global memory.
#pragma once

#include "clifford/block/sm90_common.cuh"

/// Added to `Block`, which is BlockF32x3, Block16Bit or Block64. `TILES` · 32 is at least the number of inputs; with 0, the gradients of matrices
/// are formed elsewhere.
///
/// `Sums` are the sums of a thread in shared memory, where they lie differently for 16 bits and f32. The type gives `load_silu(side, values)`
/// and `store_silu(side, values)` by grade, and to all threads `of(thread, side, n)`, of which n counts the biases, the gains, slopes and
/// shifts of silu by grade, and then the thread's share of the product weights and normalisation parameters, see `fold`.
template <class A, class Block, int TILES>
struct BlockGradients : Block {
    using typename Block::Element;
    using typename Block::Functions;
    using typename Block::Normalizer;
    using typename Block::Parameters;
    using typename Block::Product;
    using Layout = BlockGradientLayout<A, (TILES > 0)>;
    using Block::feature, Block::features, Block::group, Block::inputs, Block::line, Block::p, Block::share;
    using Block::BLADES, Block::COLUMNS, Block::GRADES, Block::PATHS, Block::WIDTH, Block::tables;

    using Block::Block;

    /// Groups of a block of threads.
    static constexpr int GROUPS = WIDTH == 32 ? 2 : 1;

    /// A lane's part of a feature's product weights and normalisation parameters: those that it sums over all eight lanes of the
    /// feature.
    static constexpr int SHARE = (PATHS + GRADES + 7) / 8;

    /// Sums of a thread in shared memory, COUNT floats of the block's THREADS threads. A side has BY_SIDE: the thread's share of the product
    /// weights and normalisation parameters, both biases and the gain; what a derived type needs comes behind them. `own` is the thread's
    /// first; they are THREADS apart.
    template <int THREADS, int BY_SIDE>
    struct ThreadSums {
        static constexpr int COUNT = 2 * BY_SIDE * THREADS;
        float* own;

        GW_DEVICE explicit ThreadSums(float* shared) : own(shared + threadIdx.x) {
#pragma unroll
            for (int n = 0; n < 2 * BY_SIDE; ++n) own[n * THREADS] = 0;
        }
        GW_DEVICE float& at(int side, int n) const { return own[(side * BY_SIDE + n) * THREADS]; }
        GW_DEVICE float& bias(int side) const { return at(side, SHARE); }
        GW_DEVICE void add_left_bias(int side, float value) const { at(side, SHARE + 1) += value; }
        GW_DEVICE void add_gain(int side, float value) const { at(side, SHARE + 2) += value; }
        GW_DEVICE void add_folded(const BlockGradients& pass, int side, const typename Product::Weights& weights,
                                  const float (&norms)[GRADES][1]) const {
            float totals[SHARE];
            pass.fold(weights, norms, totals);
#pragma unroll
            for (int n = 0; n < SHARE; ++n) at(side, n) += totals[n];
        }
    };

    /// `Sums` all of which are in shared memory: those of silu are behind the others.
    template <int THREADS>
    struct SharedSums : ThreadSums<THREADS, SHARE + 3 + 2 * GRADES> {
        using Base = ThreadSums<THREADS, SHARE + 3 + 2 * GRADES>;
        static constexpr int SILU = SHARE + 3, BY_SIDE = SILU + 2 * GRADES;
        using Base::Base, Base::at, Base::own;

        /// Sum n of a thread's side, see `BlockGradients`.
        GW_DEVICE float of(int thread, int side, int n) const {
            const int singles = 3 + 2 * GRADES, grade = n - 3;
            const int number = n < 3          ? SHARE + n
                               : n >= singles ? n - singles
                                              : SILU + (grade < GRADES ? 2 * grade : 2 * (grade - GRADES) + 1);
            return own[(side * BY_SIDE + number) * THREADS + thread - static_cast<int>(threadIdx.x)];
        }
        GW_DEVICE void load_silu(int side, float (&values)[GRADES][2]) const {
#pragma unroll
            for (int n = 0; n < 2 * GRADES; ++n) values[n / 2][n % 2] = at(side, SILU + n);
        }
        GW_DEVICE void store_silu(int side, const float (&values)[GRADES][2]) const {
#pragma unroll
            for (int n = 0; n < 2 * GRADES; ++n) at(side, SILU + n) = values[n / 2][n % 2];
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
                    grad[half][blade][side] = feature + side < features ? Block::SQRT_HALF * value : 0.0f;
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

    /// The same at all of the lane's positions. `waiting` is h by [side][half], and becomes its gradient. `dr` and `dl` are the arrays in which the
    /// lane has r, which becomes its gradient, and the gradient of l, as raw values (see `raw` in the derived types).
    ///
    /// Loops that are not unrolled take one position after the other, the first of `waiting`, which moves up: unrolled, they would need the
    /// operands of several at a time, and spill. At the end all values are gradients, in the order in which they were.
    template <class Sums>
    GW_DEVICE void product_gradients(const Parameters& parameters, char* dr, char* dl, typename Block::Fragment& waiting, Sums& sums) const {
#pragma unroll 1
        for (int side = 0; side < 2; ++side) {
            typename Product::Weights weights, weight_sums = {};
            float norm_sums[GRADES][1] = {};
            this->product_of(parameters, feature + side, weights);
#pragma unroll 1
            for (int half = 0; half < 2; ++half) {
                Element h, r, grad, da;
#pragma unroll
                for (int blade = 0; blade < BLADES; ++blade) {
                    h.at[blade][0] = waiting[blade][0];
                    r.at[blade][0] = this->raw(dr, blade, half, side);
                    grad.at[blade][0] = this->raw(dl, blade, half, side);
                }
                float gradient[BLADES];
                this->product_gradient(parameters, feature + side, h, r, grad, weights, da, gradient, weight_sums, norm_sums);
#pragma unroll
                for (int blade = 0; blade < BLADES; ++blade) {
                    this->raw(dr, blade, half, side) = gradient[blade];
#pragma unroll
                    for (int at = 0; at < 3; ++at) waiting[blade][at] = waiting[blade][at + 1];
                    waiting[blade][3] = da.at[blade][0];
                }
            }
            sums.add_folded(*this, side, weight_sums, norm_sums);
        }
    }

    /// The gradient of y from that of h, at the position (`half`, `side`): y becomes its gradient; adds those of silu's parameters to
    /// `sums`, and that of the bias to `bias_sum`.
    template <class Sums>
    GW_DEVICE void silu_gradient(const Parameters& parameters, int half, int side, const typename Block::Fragment& grad_h,
                                 float (&y)[BLADES][2], Sums& sums, float& bias_sum) const {
        typename Block::SiluGate silu[GRADES];
        this->silu_of(parameters, feature + side, silu);
        Element at;
        float g[BLADES];
#pragma unroll
        for (int blade = 0; blade < BLADES; ++blade) {
            at.at[blade][0] = y[blade][side];
            g[blade] = grad_h[blade][2 * half + side];
        }
        typename Block::SiluGate::At gates[GRADES];
        Functions::factors(silu, at, gates);
        // Loaded as late as possible: sums in shared memory take registers from here on.
        float silu_sums[GRADES][2];
        sums.load_silu(side, silu_sums);
        Functions::differentiate(silu, gates, at, g, silu_sums, g);
        sums.store_silu(side, silu_sums);
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
                const float sent = is_upper ? left[n] : left[count + n], kept = is_upper ? left[count + n] : left[n];
                left[n] = kept + __shfl_xor_sync(0xffffffffu, sent, offset);
            }
        });
#pragma unroll
        for (int n = 0; n < SHARE; ++n) totals[n] = left[n];
    }

    /// Writes the block's sums of the matrices' gradients to its place in `partial`, by way of shared memory, so that a loop over rows
    /// serves all of them. A barrier must come before; one follows.
    GW_DEVICE void write_matrices(const Matrices& matrices, float* shared, float* partial) const {
        // Pairs of eight rows of four lanes are in 32 banks by halves of a warp.
        constexpr int PITCH = WIDTH + 8, GRADE = WIDTH * PITCH, MATRIX = GRADES * GRADE;
        float* const own = shared + (16 * group + line) * PITCH + feature;
        auto store_matrix = [&](const float (&sums)[GRADES][4], int matrix) {
#pragma unroll
            for (int at = 0; at < 2 * GRADES; ++at) {
                const float both[2] = {sums[at / 2][at % 2 * 2], sums[at / 2][at % 2 * 2 + 1]};
                store<2>(own + matrix * MATRIX + at / 2 * GRADE + at % 2 * 8 * PITCH, both);
            }
        };
        store_matrix(matrices.right, 0);
        store_matrix(matrices.left, 1);
#pragma unroll
        for (int tile = 0; tile < TILES; ++tile) store_matrix(matrices.linear[tile], 2 + tile);
        __syncthreads();
        const Layout layout(p.inputs, p.features);
        partial += blockIdx.x * layout.count;
        const int o = threadIdx.x % 32;
#pragma unroll 1
        for (int matrix = 0; matrix < 2 + TILES; ++matrix) {
            const int first = matrix < 2 ? 0 : WIDTH * (matrix - 2), all = matrix < 2 ? features : inputs;
            const int count = all - first < WIDTH ? all - first : WIDTH;
            float* const target = partial + (matrix == 0 ? layout.right : matrix == 1 ? layout.left : layout.linear);
#pragma unroll 1
            for (int grade = 0; grade < GRADES; ++grade) {
#pragma unroll 4
                for (int i = threadIdx.x / 32; i < count; i += 4 * GROUPS) {
                    if (o < features) target[(grade * all + first + i) * features + o] = shared[matrix * MATRIX + grade * GRADE + i * PITCH + o];
                }
            }
        }
        __syncthreads();
    }

    /// Adds up the lanes' sums of each feature, and writes them. Barriers must come before: all sums are there.
    template <class Sums>
    GW_DEVICE void write_sums(const Parameters& parameters, const Sums& sums, float* partial) const {
        constexpr int SINGLE = 3 + 2 * GRADES;
        partial += blockIdx.x * Layout(p.inputs, p.features).count;
        const Layout layout(p.inputs, p.features, partial);
#pragma unroll 1
        for (int at = threadIdx.x; at < COUNT * WIDTH; at += 32 * COLUMNS * GROUPS) {
            const int of = at % WIDTH, number = at / WIDTH, folded = number - SINGLE;
            // The first lane of the feature, of eight that are four apart; folded sums are in one of them.
            const int thread = of / 8 * 32 + of % 8 / 2;
            float sum = 0;
            if (folded < 0) {
#pragma unroll
                for (int n = 0; n < 8 * GROUPS; ++n) sum += sums.of(thread + n / 8 * 32 * COLUMNS + n % 8 * 4, of % 2, number);
            } else {
#pragma unroll
                for (int n = 0; n < GROUPS; ++n) {
                    sum += sums.of(thread + n * 32 * COLUMNS + folded / SHARE * 4, of % 2, SINGLE + folded % SHARE);
                }
                if (folded >= PATHS) sum = parameters.normalizer(folded - PATHS, of).finish(sum);
            }
            if (of < features) partial[gradient_offset(layout, number, of)] = sum;
        }
    }

    /// The offset of a value of a feature, in the order of `write_sums`.
    GW_DEVICE i64 gradient_offset(const Layout& layout, int number, int of) const {
        if (number == 0) return layout.bias + of;
        if (number == 1) return layout.left_bias + of;
        if (number == 2) return layout.gain + of;
        const int product = number - 3 - 2 * GRADES;
        if (product < 0) return (number < 3 + GRADES ? layout.slope : layout.shift) + of * GRADES + (number - 3) % GRADES;
        return product < PATHS ? layout.product + of * PATHS + product : layout.normalization + of * GRADES + product - PATHS;
    }
};
