// A block of the Clifford-group-equivariant networks (arXiv:2305.11141) in one launch, forward and backward:
//
//     y = linear(x) + bias, h = silu(y), r = linear_right(h), l = linear_left(h) + bias,
//     s = (l + sgp(h, normalization(r), w))/√2, out = layer_norm(s), or what is given as residual + layer_norm(s)
//
// for at most 32 features: a lane of a warp has one, with all blades in registers. A warp works on R rows at a time; all matrices
// and the rows of the block are in shared memory. What crosses lanes goes through there too. Backward, y, r and s are read back.
//
// x is [blades, rows, inputs], the rest of the arrays with rows [blades, rows, features]; matrices [grades, in, out].
// Names: gw_mv_block_<fwd|bwd>_r<R>_<algebra>_f32.
#pragma once

#include "ops/multivectors.cuh"

/// Operands and sizes, by value.
struct MvBlockWeights {
    const float *linear, *bias;           // [grades, inputs, features], [features]
    const float *slope, *shift;           // silu: [features, grades]
    const float *right, *normalization;   // [grades, features, features], [features, grades]
    const float *product;                 // [features, paths]
    const float *left, *left_bias;        // [grades, features, features], [features]
    const float *gain;                    // layer norm: [features]
    i64 rows, inputs, features;
};

/// What a quadratic form is summed in: where squares cancel, in double precision.
template <bool DEFINITE>
struct QuadraticSum {
    using type = double;
};
template <>
struct QuadraticSum<true> {
    using type = float;
};

template <class A, int R>
struct MvBlock {
    static constexpr int BLADES = A::BLADES, GRADES = A::GRADES, PATHS = A::PATHS;
    static constexpr auto tables = A::make();
    using Product = Multivectors<A, float, 1>;
    using Element = typename Product::Element;

    static constexpr bool definite() {
        for (int blade = 0; blade < BLADES; ++blade) {
            if (tables.metric[blade] < 0) return false;
        }
        return true;
    }

    using Sum = typename QuadraticSum<definite()>::type;

    const MvBlockWeights& p;
    int inputs, features;   // As in `p`.
    int inputs4, features4; // Rounded up to 4.
    int pitch;              // Of rows of matrices: odd, so that rows and columns are read without conflicts.
    int lane, warp, warps;
    int column;             // The lane's feature; lanes without one repeat the last.
    bool active;            // Whether the lane has a feature.
    float *linear, *right, *left;

    GW_DEVICE MvBlock(const MvBlockWeights& weights) : p(weights) {
        inputs = static_cast<int>(p.inputs);
        features = static_cast<int>(p.features);
        inputs4 = (inputs + 3) / 4 * 4;
        features4 = (features + 3) / 4 * 4;
        pitch = features4 + 1;
        lane = threadIdx.x % 32;
        warp = threadIdx.x / 32;
        warps = blockDim.x / 32;
        active = lane < features;
        column = active ? lane : features - 1;
    }

    /// Brings the matrices, and returns where the rest of the shared memory begins.
    GW_DEVICE float* open(float* shared) {
        linear = shared;
        right = linear + GRADES * inputs4 * pitch;
        left = right + GRADES * features4 * pitch;
        bring(linear, p.linear, inputs, inputs4);
        bring(right, p.right, features, features4);
        bring(left, p.left, features, features4);
        float* end = left + GRADES * features4 * pitch;
        end += (4 - (end - shared) % 4) % 4;
        __syncthreads();
        return end;
    }

    GW_DEVICE void bring(float* target, const float* source, int count, int padded) const {
        // Many loads on their way at a time: the launch waits for nothing as long as for these.
        constexpr int LINES = 4;
#pragma unroll 1
        for (int first = warp; first < padded; first += LINES * warps) {
            float values[LINES][GRADES];
#pragma unroll
            for (int line = 0; line < LINES; ++line) {
                const int i = first + line * warps;
                const bool inside = i < count && active;
#pragma unroll
                for (int grade = 0; grade < GRADES; ++grade) {
                    values[line][grade] = inside ? source[(grade * count + i) * features + lane] : 0.0f;
                }
            }
#pragma unroll
            for (int line = 0; line < LINES; ++line) {
                const int i = first + line * warps;
                if (i >= padded || lane >= features4) continue;
#pragma unroll
                for (int grade = 0; grade < GRADES; ++grade) target[(grade * padded + i) * pitch + lane] = values[line][grade];
            }
        }
    }

    /// sum[r][blade] += Σ_i in[r][blade][i]·w[grade][i], where a lane's weights of successive i are `step` apart from `w` on.
    GW_DEVICE static void accumulate(float (&sum)[R][BLADES], const float* in, int count, const float* w, int grade_stride,
                                     int step) {
#pragma unroll 1
        for (int i = 0; i < count; i += 4) {
            float weight[GRADES][4];
#pragma unroll
            for (int grade = 0; grade < GRADES; ++grade) {
#pragma unroll
                for (int k = 0; k < 4; ++k) weight[grade][k] = w[grade * grade_stride + (i + k) * step];
            }
#pragma unroll
            for (int r = 0; r < R; ++r) {
                each<BLADES>([&](auto index) {
                    constexpr int blade = decltype(index)::value, grade = tables.grade[blade];
                    float values[4];
                    load<4>(in + (r * BLADES + blade) * count + i, values);
#pragma unroll
                    for (int k = 0; k < 4; ++k) sum[r][blade] += values[k] * weight[grade][k];
                });
            }
        }
    }

    /// Puts a lane's blades of a row where other lanes read them.
    GW_DEVICE void put(float* row, const Element& element) const {
        if (lane >= features4) return;
#pragma unroll
        for (int blade = 0; blade < BLADES; ++blade) row[blade * features4 + lane] = active ? element.at[blade][0] : 0.0f;
    }

    GW_DEVICE void store_row(float* target, i64 row, const Element& element) const {
        if (!active || row >= p.rows) return;
        const i64 plane = p.rows * features;
        target += row * features + lane;
#pragma unroll
        for (int blade = 0; blade < BLADES; ++blade, target += plane) *target = element.at[blade][0];
    }

    /// A lane's blades of a row; zero where there is none.
    GW_DEVICE void load_row(const float* source, i64 row, Element& element) const {
        const bool inside = active && row < p.rows;
        const i64 plane = p.rows * features;
        source += row * features + lane;
#pragma unroll
        for (int blade = 0; blade < BLADES; ++blade, source += plane) element.at[blade][0] = inside ? *source : 0.0f;
    }

    /// The warp's rows of x.
    GW_DEVICE void load_inputs(float* target, const float* x, i64 first) const {
#pragma unroll
        for (int r = 0; r < R; ++r) {
            for (int i = lane; i < inputs4; i += 32) {
                const bool inside = first + r < p.rows && i < inputs;
                const i64 plane = p.rows * inputs;
                const float* source = x + (first + r) * inputs + i;
#pragma unroll
                for (int blade = 0; blade < BLADES; ++blade, source += plane) {
                    target[(r * BLADES + blade) * inputs4 + i] = inside ? *source : 0.0f;
                }
            }
        }
    }

    /// The quadratic form of each grade.
    GW_DEVICE static void quadratic(const Element& x, float (&q)[GRADES]) {
        Sum sum[GRADES] = {};
        each<BLADES>([&](auto index) {
            constexpr int blade = decltype(index)::value, grade = tables.grade[blade], metric = tables.metric[blade];
            const Sum value = x.at[blade][0];
            if constexpr (metric != 0) sum[grade] += Sum(metric) * value * value;
        });
#pragma unroll
        for (int grade = 0; grade < GRADES; ++grade) q[grade] = static_cast<float>(sum[grade]);
    }

    GW_DEVICE static float total(const Element& x) {
        Sum sum = 0;
        each<BLADES>([&](auto index) {
            constexpr int blade = decltype(index)::value, metric = tables.metric[blade];
            const Sum value = x.at[blade][0];
            if constexpr (metric != 0) sum += Sum(metric) * value * value;
        });
        return static_cast<float>(sum);
    }

    GW_DEVICE static float smooth_norm(float q) { return root(root(q * q + 1e-16f)); }

    GW_DEVICE static float warp_sum(float value) {
#pragma unroll
        for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(0xffffffffu, value, offset);
        return value;
    }

    /// A lane's parameters [features, count].
    template <int COUNT>
    GW_DEVICE void parameters(const float* source, float (&values)[COUNT]) const {
#pragma unroll
        for (int i = 0; i < COUNT; ++i) values[i] = source[column * COUNT + i];
    }

    GW_DEVICE void product_weights(typename Product::Weights& values) const {
#pragma unroll
        for (int path = 0; path < PATHS; ++path) values.at[path][0] = p.product[column * PATHS + path];
    }

    /// What the silu takes of y: its arguments and the gates.
    GW_DEVICE static void gates(const Element& y, const float (&slope)[GRADES], const float (&shift)[GRADES],
                                float (&u)[GRADES], float (&s)[GRADES]) {
        quadratic(y, u);
        u[0] = y.at[0][0];
#pragma unroll
        for (int grade = 0; grade < GRADES; ++grade) s[grade] = sigmoid(slope[grade] * u[grade] + shift[grade]);
    }

    GW_DEVICE static void scale_grades(const Element& x, const float (&factor)[GRADES], Element& out) {
        each<BLADES>([&](auto index) {
            constexpr int blade = decltype(index)::value, grade = tables.grade[blade];
            out.at[blade][0] = x.at[blade][0] * factor[grade];
        });
    }

    /// out, to which the residual is added where given, and, where given, y, r and s for the gradients. Shared memory: matrices, then R
    /// rows of x and of h per warp.
    GW_DEVICE static void forward(float* shared, const MvBlockWeights& weights, const float* x, const float* residual, float* out,
                                  float* kept_y, float* kept_r, float* kept_s) {
        MvBlock block(weights);
        block.run_forward(shared, x, residual, out, kept_y, kept_r, kept_s);
    }

    GW_DEVICE void run_forward(float* shared, const float* x, const float* residual, float* out, float* kept_y, float* kept_r,
                               float* kept_s) {
        float* const own = open(shared) + warp * R * BLADES * (inputs4 + features4);
        float* const xs = own;
        float* const hs = own + R * BLADES * inputs4;
        float slope[GRADES], shift[GRADES], mix[GRADES];
        typename Product::Weights product;
        parameters(p.slope, slope);
        parameters(p.shift, shift);
        parameters(p.normalization, mix);
        product_weights(product);
        const float bias = p.bias == nullptr ? 0.0f : p.bias[column], left_bias = p.left_bias[column];
        const float gain = p.gain[column];
        const i64 step = static_cast<i64>(gridDim.x) * warps * R;
#pragma unroll 1
        for (i64 first = (static_cast<i64>(blockIdx.x) * warps + warp) * R; first < p.rows; first += step) {
            __syncwarp();
            load_inputs(xs, x, first);
            __syncwarp();
            float y[R][BLADES] = {};
            accumulate(y, xs, inputs4, linear + column, inputs4 * pitch, pitch);
            Element h[R];
#pragma unroll
            for (int r = 0; r < R; ++r) {
                Element at;
#pragma unroll
                for (int blade = 0; blade < BLADES; ++blade) at.at[blade][0] = y[r][blade];
                at.at[0][0] += bias;
                if (kept_y != nullptr) store_row(kept_y, first + r, at);
                float u[GRADES], s[GRADES];
                gates(at, slope, shift, u, s);
                scale_grades(at, s, h[r]);
                put(hs + r * BLADES * features4, h[r]);
            }
            __syncwarp();
            float to_right[R][BLADES] = {}, to_left[R][BLADES] = {};
            accumulate(to_right, hs, features4, right + column, features4 * pitch, pitch);
            accumulate(to_left, hs, features4, left + column, features4 * pitch, pitch);
#pragma unroll
            for (int r = 0; r < R; ++r) {
                Element factor, result;
#pragma unroll
                for (int blade = 0; blade < BLADES; ++blade) factor.at[blade][0] = to_right[r][blade];
                if (kept_r != nullptr) store_row(kept_r, first + r, factor);
                // On its way while the product is computed.
                Element base = {};
                if (residual != nullptr) load_row(residual, first + r, base);
                float q[GRADES], scale[GRADES];
                quadratic(factor, q);
#pragma unroll
                for (int grade = 0; grade < GRADES; ++grade) {
                    const float part = sigmoid(mix[grade]), rest = sigmoid(-mix[grade]);
                    scale[grade] = 1.0f / (part * smooth_norm(q[grade]) + rest + 1e-6f);
                }
                scale_grades(factor, scale, factor);
                Product::multiply(h[r], factor, product, result);
                result.at[0][0] += left_bias;
#pragma unroll
                for (int blade = 0; blade < BLADES; ++blade) {
                    result.at[blade][0] = 0.70710678118654752f * (to_left[r][blade] + result.at[blade][0]);
                }
                if (kept_s != nullptr) store_row(kept_s, first + r, result);
                const float norms = warp_sum(active ? smooth_norm(total(result)) : 0.0f);
                const float factor_of_row = gain / (norms / static_cast<float>(features) + 1e-6f);
#pragma unroll
                for (int blade = 0; blade < BLADES; ++blade) {
                    result.at[blade][0] = base.at[blade][0] + result.at[blade][0] * factor_of_row;
                }
                store_row(out, first + r, result);
            }
        }
    }

    /// Where the gradients are in a block's partial sums; each begins at a multiple of 4. In the order of the operands.
    struct Places {
        i64 linear, bias, slope, shift, right, normalization, product, left, left_bias, gain, count;

        GW_DEVICE Places(i64 inputs, i64 features) {
            i64 at = 0;
            auto next = [&](i64 size) {
                const i64 place = at;
                at += (size + 3) / 4 * 4;
                return place;
            };
            linear = next(GRADES * inputs * features);
            bias = next(features);
            slope = next(features * GRADES);
            shift = next(features * GRADES);
            right = next(GRADES * features * features);
            normalization = next(features * GRADES);
            product = next(features * PATHS);
            left = next(GRADES * features * features);
            left_bias = next(features);
            gain = next(features);
            count = at;
        }
    };

    /// The gradient of x (may be null), and those of the parameters summed over the block's rows, [gridDim.x, Places.count].
    /// Shared memory: matrices, then for each of the block's rows x and dy, h, dr, dl.
    GW_DEVICE static void backward(float* shared, const MvBlockWeights& weights, const float* x, const float* y, const float* r,
                                   const float* s, const float* grad, float* grad_x, float* partial) {
        MvBlock block(weights);
        block.run_backward(shared, x, y, r, s, grad, grad_x, partial);
    }

    GW_DEVICE void run_backward(float* shared, const float* x, const float* y, const float* r_of, const float* s_of,
                                const float* grad, float* grad_x, float* partial) {
        float* const space = open(shared);
        const int group = warps * R, narrow_row = BLADES * features4, wide_row = BLADES * inputs4;
        float* const xs = space;
        float* const dys = xs + group * wide_row;
        float* const hs = dys + group * narrow_row;
        float* const drs = hs + group * narrow_row;
        float* const dls = drs + group * narrow_row;
        const int mine = warp * R;

        float slope[GRADES], shift[GRADES], mix[GRADES];
        typename Product::Weights product;
        parameters(p.slope, slope);
        parameters(p.shift, shift);
        parameters(p.normalization, mix);
        product_weights(product);
        const float gain = p.gain[column];
        float to_slope[GRADES] = {}, to_shift[GRADES] = {}, to_mix[GRADES] = {};
        typename Product::Weights to_product = {};
        float to_bias = 0, to_left_bias = 0, to_gain = 0;

        const i64 step = static_cast<i64>(gridDim.x) * group;
        bool again = false;
#pragma unroll 1
        for (i64 base = static_cast<i64>(blockIdx.x) * group; base < p.rows; base += step) {
            const i64 first = base + mine;
            if (again) __syncthreads();  // The rows before are still being read.
            load_inputs(xs + mine * wide_row, x, first);
            float dh[R][BLADES];
#pragma unroll
            for (int r = 0; r < R; ++r) {
                Element at, g;
                load_row(s_of, first + r, at);
                load_row(grad, first + r, g);
                // Layer norm.
                float dot = 0;
#pragma unroll
                for (int blade = 0; blade < BLADES; ++blade) dot += at.at[blade][0] * g.at[blade][0];
                const float q = total(at), norm = smooth_norm(q);
                const float norms = warp_sum(active ? norm : 0.0f), dots = warp_sum(active ? gain * dot : 0.0f);
                const float scale = 1.0f / (norms / static_cast<float>(features) + 1e-6f);
                to_gain += dot * scale;
                const float pull = -dots * scale * scale / static_cast<float>(features);
                const float through = pull * (q / (norm * norm * norm));
                each<BLADES>([&](auto index) {
                    constexpr int blade = decltype(index)::value, metric = tables.metric[blade];
                    float value = g.at[blade][0] * gain * scale;
                    if constexpr (metric != 0) value += float(metric) * through * at.at[blade][0];
                    g.at[blade][0] = 0.70710678118654752f * value;
                });
                to_left_bias += g.at[0][0];
                put(dls + (mine + r) * narrow_row, g);
                // The factors again, and the product.
                Element h, raw, factor, da, db;
                load_row(y, first + r, at);
                float u[GRADES], gate[GRADES];
                gates(at, slope, shift, u, gate);
                scale_grades(at, gate, h);
                put(hs + (mine + r) * narrow_row, h);
                load_row(r_of, first + r, raw);
                float form[GRADES], length[GRADES], inverse[GRADES], part[GRADES], rest[GRADES];
                quadratic(raw, form);
#pragma unroll
                for (int grade = 0; grade < GRADES; ++grade) {
                    part[grade] = sigmoid(mix[grade]);
                    rest[grade] = sigmoid(-mix[grade]);
                    length[grade] = smooth_norm(form[grade]);
                    inverse[grade] = 1.0f / (part[grade] * length[grade] + rest[grade] + 1e-6f);
                }
                scale_grades(raw, inverse, factor);
                Product::differentiate(h, factor, g, product, da, db, to_product);
                // Normalisation.
                float along[GRADES] = {};
                each<BLADES>([&](auto index) {
                    constexpr int blade = decltype(index)::value, grade = tables.grade[blade];
                    along[grade] += raw.at[blade][0] * db.at[blade][0];
                });
#pragma unroll
                for (int grade = 0; grade < GRADES; ++grade) {
                    const float pulled = -along[grade] * inverse[grade] * inverse[grade];
                    to_mix[grade] += pulled * (length[grade] - 1.0f) * part[grade] * rest[grade];
                    along[grade] = pulled * part[grade] * (form[grade] / (length[grade] * length[grade] * length[grade]));
                }
                each<BLADES>([&](auto index) {
                    constexpr int blade = decltype(index)::value, grade = tables.grade[blade], metric = tables.metric[blade];
                    float value = db.at[blade][0] * inverse[grade];
                    if constexpr (metric != 0) value += float(metric) * along[grade] * raw.at[blade][0];
                    db.at[blade][0] = value;
                });
                put(drs + (mine + r) * narrow_row, db);
#pragma unroll
                for (int blade = 0; blade < BLADES; ++blade) dh[r][blade] = da.at[blade][0];
                // One row after the other: moved together, they would take more registers than there are.
                asm volatile("" ::: "memory");
            }
            __syncwarp();
            // Through the linear maps: rows of the matrices.
            const int line = lane < features4 ? lane : 0;
            accumulate(dh, drs + mine * narrow_row, features4, right + line * pitch, features4 * pitch, 1);
            accumulate(dh, dls + mine * narrow_row, features4, left + line * pitch, features4 * pitch, 1);
#pragma unroll
            for (int r = 0; r < R; ++r) {
                // Silu.
                Element at, dy;
                load_row(y, first + r, at);
                float u[GRADES], gate[GRADES], pull[GRADES] = {};
                gates(at, slope, shift, u, gate);
                each<BLADES>([&](auto index) {
                    constexpr int blade = decltype(index)::value, grade = tables.grade[blade];
                    pull[grade] += at.at[blade][0] * dh[r][blade];
                });
#pragma unroll
                for (int grade = 0; grade < GRADES; ++grade) {
                    pull[grade] *= gate[grade] * (1.0f - gate[grade]);
                    to_slope[grade] += pull[grade] * u[grade];
                    to_shift[grade] += pull[grade];
                    pull[grade] *= slope[grade];
                }
                each<BLADES>([&](auto index) {
                    constexpr int blade = decltype(index)::value, grade = tables.grade[blade], metric = tables.metric[blade];
                    float value = dh[r][blade] * gate[grade];
                    if constexpr (grade == 0) {
                        value += pull[0];
                    } else if constexpr (metric != 0) {
                        value += 2.0f * float(metric) * pull[grade] * at.at[blade][0];
                    }
                    dy.at[blade][0] = value;
                });
                to_bias += dy.at[0][0];
                put(dys + (mine + r) * narrow_row, dy);
            }
            __syncwarp();
            if (grad_x != nullptr) {
#pragma unroll 1
                for (int i = lane; i - lane < inputs; i += 32) {
                    float dx[R][BLADES] = {};
                    accumulate(dx, dys + mine * narrow_row, features4, linear + (i < inputs ? i : 0) * pitch, inputs4 * pitch, 1);
#pragma unroll
                    for (int r = 0; r < R; ++r) {
                        if (i >= inputs || first + r >= p.rows) continue;
#pragma unroll
                        for (int blade = 0; blade < BLADES; ++blade) {
                            grad_x[(blade * p.rows + first + r) * inputs + i] = dx[r][blade];
                        }
                    }
                }
            }
            __syncthreads();
            const Places places(p.inputs, p.features);
            float* const sums = partial + blockIdx.x * places.count;
            matrices(xs, inputs, inputs4, dys, group, sums + places.linear, again);
            matrices(hs, features, features4, drs, group, sums + places.right, again);
            matrices(hs, features, features4, dls, group, sums + places.left, again);
            again = true;
        }

        // The warps' sums for the other parameters, in order.
        constexpr int VALUES = 3 + 3 * GRADES + PATHS;
        __syncthreads();
        float* const given = space + warp * VALUES * 32 + lane;
        given[0] = to_bias;
        given[32] = to_left_bias;
        given[64] = to_gain;
#pragma unroll
        for (int grade = 0; grade < GRADES; ++grade) {
            given[(3 + grade) * 32] = to_slope[grade];
            given[(3 + GRADES + grade) * 32] = to_shift[grade];
            given[(3 + 2 * GRADES + grade) * 32] = to_mix[grade];
        }
#pragma unroll
        for (int path = 0; path < PATHS; ++path) given[(3 + 3 * GRADES + path) * 32] = to_product(path, 0);
        __syncthreads();
        const Places places(p.inputs, p.features);
        partial += blockIdx.x * places.count;
        for (int value = warp; value < VALUES; value += warps) {
            if (!active) continue;
            float sum = 0;
            for (int other = 0; other < warps; ++other) sum += space[(other * VALUES + value) * 32 + lane];
            i64 place;
            if (value == 0) {
                place = places.bias + lane;
            } else if (value == 1) {
                place = places.left_bias + lane;
            } else if (value == 2) {
                place = places.gain + lane;
            } else if (value < 3 + 3 * GRADES) {
                const int kind = (value - 3) / GRADES;
                const i64 start = kind == 0 ? places.slope : kind == 1 ? places.shift : places.normalization;
                place = start + lane * GRADES + (value - 3) % GRADES;
            } else {
                place = places.product + lane * PATHS + value - 3 - 3 * GRADES;
            }
            partial[place] = sum;
        }
    }

    /// Gradients of matrices [grades, count, features]: Σ_rows Σ_blades-of-grade a[row][blade][i]·b[row][blade][o], added to what
    /// `target` holds if `again`. A thread has tiles of 4×4.
    GW_DEVICE void matrices(const float* a, int count, int count4, const float* b, int rows, float* target, bool again) const {
        const int down = count4 / 4, across = features4 / 4, tiles = down * across;
#pragma unroll 1
        for (int task = threadIdx.x; task < GRADES * tiles; task += blockDim.x) {
            const int grade = task / tiles, i = task % tiles / across * 4, o = task % across * 4;
            int begin = 0, end = 0;
            each<GRADES>([&](auto index) {
                constexpr int g = decltype(index)::value, first = tables.first[g], last = tables.first[g + 1];
                if (grade == g) {
                    begin = first;
                    end = last;
                }
            });
            float sum[4][4] = {};
#pragma unroll 1
            for (int blade = begin; blade < end; ++blade) {
                const float* left_side = a + blade * count4 + i;
                const float* right_side = b + blade * features4 + o;
#pragma unroll 4
                for (int row = 0; row < rows; ++row) {
                    float one[4], two[4];
                    load<4>(left_side + row * BLADES * count4, one);
                    load<4>(right_side + row * BLADES * features4, two);
#pragma unroll
                    for (int k = 0; k < 4; ++k) {
#pragma unroll
                        for (int l = 0; l < 4; ++l) sum[k][l] += one[k] * two[l];
                    }
                }
            }
#pragma unroll
            for (int k = 0; k < 4; ++k) {
                if (i + k >= count) continue;
                float* const line = target + (static_cast<i64>(grade) * count + i + k) * features + o;
#pragma unroll
                for (int l = 0; l < 4; ++l) {
                    if (o + l < features) line[l] = again ? line[l] + sum[k][l] : sum[k][l];
                }
            }
        }
    }
};

#define GW_MV_BLOCK(P, Q, R_, ROWS)                                                                                              \
    extern "C" __global__ void __launch_bounds__(256, 1) gw_mv_block_fwd_r##ROWS##_##P##_##Q##_##R_##_f32(                       \
        GW_PARAMETER MvBlockWeights weights, const float* x, const float* residual, float* out, float* y, float* r, float* s) {  \
        extern __shared__ uint4 shared[];                                                                                        \
        MvBlock<Algebra<P, Q, R_>, ROWS>::forward(reinterpret_cast<float*>(shared), weights, x, residual, out, y, r, s);         \
    }                                                                                                                            \
    extern "C" __global__ void __launch_bounds__(256, 1) gw_mv_block_bwd_r##ROWS##_##P##_##Q##_##R_##_f32(                       \
        GW_PARAMETER MvBlockWeights weights, const float* x, const float* y, const float* r, const float* s, const float* grad,  \
        float* grad_x, float* partial) {                                                                                         \
        extern __shared__ uint4 shared[];                                                                                        \
        MvBlock<Algebra<P, Q, R_>, ROWS>::backward(reinterpret_cast<float*>(shared), weights, x, y, r, s, grad, grad_x,          \
                                                   partial);                                                                     \
    }
