// A block of the Clifford-group-equivariant networks (arXiv:2305.11141) in one launch, forward and backward:
//
//     y = linear(x) + bias, h = silu(y), r = linear_right(h), l = linear_left(h) + bias,
//     s = (l + sgp(h, normalization(r), w))/√2, out = layer_norm(s), or what is given as residual + layer_norm(s)
//
// for at most 32 features: a lane of a warp has one, with all blades in registers. A warp works on R rows at a time; all matrices
// and the rows of the block are in shared memory. What crosses lanes goes through there too. Backward, y, r and s are read back.
// Warps that have no rows help to bring the matrices and to form their gradients.
//
// x is [blades, rows, inputs], the rest of the arrays with rows [blades, rows, features]; matrices [grades, in, out].
// Names: gw_mv_block_<fwd|bwd>_r<R>_<algebra>_f32.
#pragma once

#include "clifford/multivectors.cuh"
#include "ptx/async.cuh"

/// Operands and sizes, by value.
struct MvBlockWeights {
    const float *linear, *bias;           // [grades, inputs, features], [features]
    const float *slope, *shift;           // silu: [features, grades]
    const float *right, *normalization;   // [grades, features, features], [features, grades]
    const float *product;                 // [features, paths]
    const float *left, *left_bias;        // [grades, features, features], [features]
    const float *gain;                    // layer norm: [features]
    i64 rows, inputs, features;
    i64 warps;                            // Of a block, that have rows; others help to bring matrices and with their gradients.
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
    /// Of a block of 256 threads.
    static constexpr int MOST_WARPS = 8;
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
    int lane, warp, warps, working;
    int column;             // The lane's feature; lanes without one repeat the last.
    float share;            // 1/features
    bool active;            // Whether the lane has a feature.
    float *linear, *right, *left;

    GW_DEVICE MvBlock(const MvBlockWeights& weights) : p(weights) {
        inputs = static_cast<int>(p.inputs);
        features = static_cast<int>(p.features);
        inputs4 = (inputs + 3) / 4 * 4;
        features4 = (features + 3) / 4 * 4;
        lane = threadIdx.x % 32;
        warp = threadIdx.x / 32;
        warps = blockDim.x / 32;
        working = static_cast<int>(p.warps);
        share = 1.0f / static_cast<float>(features);
        active = lane < features;
        column = active ? lane : features - 1;
    }

    /// Where the matrices go; returns where the rest of the shared memory begins. Four successive terms of a sum lie side by side:
    /// forward [grades, in/4, out, 4]; backward, where sums run along rows, [grades, out/4, in + 1, 4], whose odd pitch keeps the writing
    /// free of conflicts.
    template <bool BACKWARD>
    GW_DEVICE float* open(float* shared) {
        const int padding = BACKWARD ? 1 : 0;
        linear = shared;
        right = linear + GRADES * features4 * (inputs4 + padding);
        left = right + GRADES * features4 * (features4 + padding);
        return left + GRADES * features4 * (features4 + padding);
    }

    /// Brings the matrices; to be followed by a barrier.
    template <bool BACKWARD>
    GW_DEVICE void bring() const {
        const int quads = features4 / 4, wide = inputs4 / 4, lines = wide + 2 * quads;
        // Four rows of a matrix to a line. Many loads are on their way at a time: the launch waits for nothing as long as for these.
        constexpr int LINES = 4;
        const u64 addresses = reinterpret_cast<u64>(p.linear) | reinterpret_cast<u64>(p.right) | reinterpret_cast<u64>(p.left);
        const bool whole = features % 4 == 0 && addresses % 16 == 0;
#pragma unroll 1
        for (int start = warp; start < lines; start += LINES * warps) {
            float values[LINES][GRADES][4];
#pragma unroll
            for (int line = 0; line < LINES; ++line) {
                const int number = start + line * warps;
                const bool first = number < wide, second = number < wide + quads;
                const float* const source = first ? p.linear : second ? p.right : p.left;
                const int count = first ? inputs : features, at = 4 * (number - (first ? 0 : second ? wide : wide + quads));
                const bool there = number < lines;
#pragma unroll
                for (int grade = 0; grade < GRADES; ++grade) {
                    if constexpr (BACKWARD) {
                        const int i = at + lane / 8, o = lane % 8 * 4;
                        const float* const from = source + (grade * count + i) * features + o;
#pragma unroll
                        for (int k = 0; k < 4; ++k) values[line][grade][k] = 0;
                        if (whole) {
                            if (there && i < count && o < features) load<4>(from, values[line][grade]);
                        } else {
#pragma unroll
                            for (int k = 0; k < 4; ++k) {
                                if (there && i < count && o + k < features) values[line][grade][k] = from[k];
                            }
                        }
                    } else {
                        const float* const from = source + (grade * count + at) * features + lane;
#pragma unroll
                        for (int k = 0; k < 4; ++k) {
                            values[line][grade][k] = there && at + k < count && active ? from[k * features] : 0.0f;
                        }
                    }
                }
            }
#pragma unroll
            for (int line = 0; line < LINES; ++line) {
                const int number = start + line * warps;
                const bool first = number < wide, second = number < wide + quads;
                float* const target = first ? linear : second ? right : left;
                const int count4 = first ? inputs4 : features4, at = 4 * (number - (first ? 0 : second ? wide : wide + quads));
                if (number >= lines || (BACKWARD ? lane % 8 >= quads : lane >= features4)) continue;
#pragma unroll
                for (int grade = 0; grade < GRADES; ++grade) {
                    const int place = BACKWARD ? (grade * quads + lane % 8) * (count4 + 1) + at + lane / 8
                                               : (grade * (count4 / 4) + at / 4) * features4 + lane;
                    ::store<4>(target + 4 * place, values[line][grade]);
                }
            }
        }
    }

    /// sum[m][r][blade] += Σ_i in[r][blade][i]·w[m][grade][i] for M matrices; a lane's weights of four successive i are side by side at
    /// `w`, `step` from one four to the next.
    template <int M>
    GW_DEVICE static void accumulate(float (&sum)[M][R][BLADES], const float* in, int count, const float* const (&w)[M],
                                     int grade_stride, int step) {
#pragma unroll 1
        for (int i = 0, at = 0; i < count; i += 4, at += step) {
            float weight[M][GRADES][4];
#pragma unroll
            for (int m = 0; m < M; ++m) {
#pragma unroll
                for (int grade = 0; grade < GRADES; ++grade) load<4>(w[m] + at + grade * grade_stride, weight[m][grade]);
            }
#pragma unroll
            for (int r = 0; r < R; ++r) {
                each<BLADES>([&](auto index) {
                    constexpr int blade = decltype(index)::value, grade = tables.grade[blade];
                    float values[4];
                    load<4>(in + (r * BLADES + blade) * count + i, values);
#pragma unroll
                    for (int k = 0; k < 4; ++k) {
#pragma unroll
                        for (int m = 0; m < M; ++m) sum[m][r][blade] += values[k] * weight[m][grade][k];
                    }
                });
            }
        }
    }

    /// Starts bringing the warp's rows of N arrays [blades, rows, width] into [R, blades, width rounded up to 4]; zeros where there
    /// are none.
    template <int N>
    GW_DEVICE void fetch(float* const (&targets)[N], const float* const (&sources)[N], i64 first, int width) const {
        bool aligned = width % 4 == 0;
#pragma unroll
        for (int n = 0; n < N; ++n) aligned = aligned && reinterpret_cast<u64>(sources[n]) % 16 == 0;
        if (aligned) {
            fetch_by<4, 8>(targets, sources, first, width);
        } else {
            fetch_by<1, 32>(targets, sources, first, width);
        }
    }

    /// The same, V elements to each of LANES lanes along a row.
    template <int V, int LANES, int N>
    GW_DEVICE void fetch_by(float* const (&targets)[N], const float* const (&sources)[N], i64 first, int width) const {
        static_assert(BLADES % (32 / LANES) == 0, "lines are dealt out evenly");
        const int pitch = (width + 3) / 4 * 4;
#pragma unroll 1
        for (int i = lane % LANES * V; i < pitch; i += LANES * V) {
            const i64 blade_step = p.rows * width, own = lane / LANES * blade_step + first * width + i;
#pragma unroll
            for (int step = 0; step < R * BLADES * LANES / 32; ++step) {
                // As many lines as there are sets of lanes in a warp; BLADES are a multiple of that.
                constexpr int TOGETHER = 32 / LANES;
                const int r = step * TOGETHER / BLADES, blade = step * TOGETHER % BLADES + lane / LANES;
                const bool inside = first + r < p.rows && i < width;
                const i64 from = inside ? own + blade_step * (step * TOGETHER % BLADES) + static_cast<i64>(r) * width : 0;
                const int to = (r * BLADES + blade) * pitch + i;
#pragma unroll
                for (int n = 0; n < N; ++n) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
                    if constexpr (V == 4) {
                        copy_async_16(targets[n] + to, sources[n] + from, inside ? 16 : 0);
                    } else {
                        copy_async_4(targets[n] + to, sources[n] + from, inside ? 4 : 0);
                    }
#else
                    float values[V] = {};
                    if (inside) load<V>(sources[n] + from, values);
                    ::store<V>(targets[n] + to, values);
#endif
                }
            }
        }
    }

    /// Waits for what the warp fetched.
    GW_DEVICE static void fetched() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
        copy_async_commit();
        copy_async_wait<0>();
#endif
        __syncwarp();
    }

    /// A lane's blades of a row of `features`, as `fetch` or `put` left them.
    GW_DEVICE void get(const float* row, Element& element) const {
#pragma unroll
        for (int blade = 0; blade < BLADES; ++blade) element.at[blade][0] = row[blade * features4 + column];
    }

    /// Puts a lane's blades of a row where other lanes read them.
    GW_DEVICE void put(float* row, const Element& element) const {
        // Lanes without a feature have read what the last one has.
        __syncwarp();
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

    GW_DEVICE static float smooth_norm(float q) { return quick_root(quick_root(q * q + 1e-16f)); }
    /// As `sigmoid`, without the branches of an exact division.
    GW_DEVICE static float logistic(float x) { return quotient(1.0f, 1.0f + exponential(-x)); }

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

    /// The weights of a norm and of one in the normalisation.
    GW_DEVICE static void shares(const float (&mix)[GRADES], float (&part)[GRADES], float (&rest)[GRADES]) {
#pragma unroll
        for (int grade = 0; grade < GRADES; ++grade) {
            part[grade] = logistic(mix[grade]);
            rest[grade] = logistic(-mix[grade]);
        }
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
        for (int grade = 0; grade < GRADES; ++grade) s[grade] = logistic(slope[grade] * u[grade] + shift[grade]);
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
        float* const own = open<false>(shared) + warp * R * BLADES * (inputs4 + features4);
        float* const xs = own;
        float* const hs = own + R * BLADES * inputs4;
        const i64 step = static_cast<i64>(gridDim.x) * working * R;
        i64 first = (static_cast<i64>(blockIdx.x) * working + warp) * R;
        if (warp < working) fetch<1>({xs}, {x}, first, inputs);
        float slope[GRADES], shift[GRADES], mix[GRADES];
        typename Product::Weights product;
        parameters(p.slope, slope);
        parameters(p.shift, shift);
        parameters(p.normalization, mix);
        product_weights(product);
        const float bias = p.bias == nullptr ? 0.0f : p.bias[column], left_bias = p.left_bias[column];
        const float gain = p.gain[column];
        bring<false>();
        __syncthreads();
        if (warp >= working) return;
        float part[GRADES], rest[GRADES];
        shares(mix, part, rest);
#pragma unroll 1
        for (; first < p.rows; first += step) {
            fetched();
            float y[1][R][BLADES] = {};
            accumulate(y, xs, inputs4, {linear + 4 * column}, inputs4 * features4, 4 * features4);
            __syncwarp();
            fetch<1>({xs}, {x}, first + step, inputs);
            Element h[R];
#pragma unroll
            for (int r = 0; r < R; ++r) {
                Element at;
#pragma unroll
                for (int blade = 0; blade < BLADES; ++blade) at.at[blade][0] = y[0][r][blade];
                at.at[0][0] += bias;
                if (kept_y != nullptr) store_row(kept_y, first + r, at);
                float u[GRADES], s[GRADES];
                gates(at, slope, shift, u, s);
                scale_grades(at, s, h[r]);
                put(hs + r * BLADES * features4, h[r]);
            }
            __syncwarp();
            float mapped[2][R][BLADES] = {};  // To the right and to the left.
            accumulate(mapped, hs, features4, {right + 4 * column, left + 4 * column}, features4 * features4, 4 * features4);
#pragma unroll
            for (int r = 0; r < R; ++r) {
                Element factor, result;
#pragma unroll
                for (int blade = 0; blade < BLADES; ++blade) factor.at[blade][0] = mapped[0][r][blade];
                if (kept_r != nullptr) store_row(kept_r, first + r, factor);
                // On its way while the product is computed.
                Element base = {};
                if (residual != nullptr) load_row(residual, first + r, base);
                float q[GRADES], scale[GRADES];
                quadratic(factor, q);
#pragma unroll
                for (int grade = 0; grade < GRADES; ++grade) {
                    scale[grade] = quotient(1.0f, part[grade] * smooth_norm(q[grade]) + rest[grade] + 1e-6f);
                }
                scale_grades(factor, scale, factor);
                Product::multiply(h[r], factor, product, result);
                result.at[0][0] += left_bias;
#pragma unroll
                for (int blade = 0; blade < BLADES; ++blade) {
                    result.at[blade][0] = 0.70710678118654752f * (mapped[1][r][blade] + result.at[blade][0]);
                }
                if (kept_s != nullptr) store_row(kept_s, first + r, result);
                const float norms = warp_sum(active ? smooth_norm(total(result)) : 0.0f);
                const float factor_of_row = quotient(gain, norms * share + 1e-6f);
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

        /// With zeros between them in `sums`, if that is given.
        GW_DEVICE Places(i64 inputs, i64 features, float* sums = nullptr) {
            i64 at = 0;
            auto next = [&](i64 size) {
                const i64 place = at, end = at + size;
                at += (size + 3) / 4 * 4;
                if (sums != nullptr && end + threadIdx.x < at) sums[end + threadIdx.x] = 0;
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
        float* const space = open<true>(shared);
        const int group = working * R, narrow_row = BLADES * features4, wide_row = BLADES * inputs4;
        float* const xs = space;
        float* const dys = xs + group * wide_row;
        float* const hs = dys + group * narrow_row;
        float* const drs = hs + group * narrow_row;
        float* const dls = drs + group * narrow_row;
        const int mine = warp * R;

        float to_slope[GRADES] = {}, to_shift[GRADES] = {}, to_mix[GRADES] = {};
        typename Product::Weights to_product = {};
        float to_bias = 0, to_left_bias = 0, to_gain = 0;

        const i64 step = static_cast<i64>(gridDim.x) * group;
        // What is read of a row is where what is computed of it goes.
        const auto fetch_all = [&](i64 first) {
            const int narrow = mine * narrow_row;
            fetch<4>({hs + narrow, dls + narrow, dys + narrow, drs + narrow}, {s_of, grad, y, r_of}, first, features);
            fetch<1>({xs + mine * wide_row}, {x}, first, inputs);
        };
        if (warp < working) fetch_all(static_cast<i64>(blockIdx.x) * group + mine);
        float mix[GRADES];
        typename Product::Weights product;
        parameters(p.normalization, mix);
        product_weights(product);
        const float gain = p.gain[column];
        bring<true>();
        __syncthreads();
        float part[GRADES], rest[GRADES];
        shares(mix, part, rest);
        bool again = false;
#pragma unroll 1
        for (i64 base = static_cast<i64>(blockIdx.x) * group; base < p.rows; base += step) {
            const i64 first = base + mine;
            if (again) __syncthreads();  // The rows before are still being read.
            if (warp < working) {
                if (again) fetch_all(first);
                // Asked for again after the rows: kept, they would take more registers than there are.
                float slope[GRADES], shift[GRADES];
                parameters(p.slope, slope);
                parameters(p.shift, shift);
                fetched();
                float dh[1][R][BLADES];
#pragma unroll
                for (int r = 0; r < R; ++r) {
                    Element at, g;
                    get(hs + (mine + r) * narrow_row, at);
                    get(dls + (mine + r) * narrow_row, g);
                    // Layer norm.
                    float dot = 0;
#pragma unroll
                    for (int blade = 0; blade < BLADES; ++blade) dot += at.at[blade][0] * g.at[blade][0];
                    const float q = total(at), norm = smooth_norm(q);
                    const float norms = warp_sum(active ? norm : 0.0f), dots = warp_sum(active ? gain * dot : 0.0f);
                    const float scale = quotient(1.0f, norms * share + 1e-6f);
                    to_gain += dot * scale;
                    const float pull = -dots * scale * scale * share;
                    const float through = pull * quotient(q, norm * norm * norm);
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
                    get(dys + (mine + r) * narrow_row, at);
                    float u[GRADES], gate[GRADES];
                    gates(at, slope, shift, u, gate);
                    scale_grades(at, gate, h);
                    put(hs + (mine + r) * narrow_row, h);
                    get(drs + (mine + r) * narrow_row, raw);
                    float form[GRADES], length[GRADES], inverse[GRADES];
                    quadratic(raw, form);
#pragma unroll
                    for (int grade = 0; grade < GRADES; ++grade) {
                        length[grade] = smooth_norm(form[grade]);
                        inverse[grade] = quotient(1.0f, part[grade] * length[grade] + rest[grade] + 1e-6f);
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
                        along[grade] = pulled * part[grade] * quotient(form[grade], length[grade] * length[grade] * length[grade]);
                    }
                    each<BLADES>([&](auto index) {
                        constexpr int blade = decltype(index)::value, grade = tables.grade[blade], metric = tables.metric[blade];
                        float value = db.at[blade][0] * inverse[grade];
                        if constexpr (metric != 0) value += float(metric) * along[grade] * raw.at[blade][0];
                        db.at[blade][0] = value;
                    });
                    put(drs + (mine + r) * narrow_row, db);
#pragma unroll
                    for (int blade = 0; blade < BLADES; ++blade) dh[0][r][blade] = da.at[blade][0];
                    // One row after the other: moved together, they would take more registers than there are.
                    asm volatile("" ::: "memory");
                }
                __syncwarp();
                // Through the linear maps: rows of the matrices.
                const int line = lane < features4 ? lane : 0;
                const int narrow_pitch = features4 + 1, wide_pitch = inputs4 + 1;
                accumulate(dh, drs + mine * narrow_row, features4, {right + 4 * line}, features4 * narrow_pitch, 4 * narrow_pitch);
                accumulate(dh, dls + mine * narrow_row, features4, {left + 4 * line}, features4 * narrow_pitch, 4 * narrow_pitch);
                parameters(p.slope, slope);
                parameters(p.shift, shift);
#pragma unroll
                for (int r = 0; r < R; ++r) {
                    // Silu.
                    Element at, dy;
                    get(dys + (mine + r) * narrow_row, at);
                    float u[GRADES], gate[GRADES], pull[GRADES] = {};
                    gates(at, slope, shift, u, gate);
                    each<BLADES>([&](auto index) {
                        constexpr int blade = decltype(index)::value, grade = tables.grade[blade];
                        pull[grade] += at.at[blade][0] * dh[0][r][blade];
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
                        float value = dh[0][r][blade] * gate[grade];
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
                        float dx[1][R][BLADES] = {};
                        const float* const own = linear + 4 * (i < inputs ? i : 0);
                        accumulate(dx, dys + mine * narrow_row, features4, {own}, features4 * wide_pitch, 4 * wide_pitch);
#pragma unroll
                        for (int r = 0; r < R; ++r) {
                            if (i >= inputs || first + r >= p.rows) continue;
#pragma unroll
                            for (int blade = 0; blade < BLADES; ++blade) {
                                grad_x[(blade * p.rows + first + r) * inputs + i] = dx[0][r][blade];
                            }
                        }
                    }
                }
            }
            __syncthreads();
            const Places places(p.inputs, p.features);
            float* const sums = partial + blockIdx.x * places.count;
            matrices(places, xs, hs, dys, drs, dls, group, sums, again);
            again = true;
        }

        // The warps' sums for the other parameters, in order.
        constexpr int VALUES = 3 + 3 * GRADES + PATHS;
        __syncthreads();
        if (warp < working) {
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
        }
        __syncthreads();
        partial += blockIdx.x * Places(p.inputs, p.features).count;
        const Places places(p.inputs, p.features, partial);
        for (int value = warp; value < VALUES; value += warps) {
            if (!active) continue;
            float sums[MOST_WARPS];
#pragma unroll
            for (int other = 0; other < MOST_WARPS; ++other) {
                sums[other] = other < working ? space[(other * VALUES + value) * 32 + lane] : 0.0f;
            }
            float sum = 0;
#pragma unroll
            for (int other = 0; other < MOST_WARPS; ++other) sum += sums[other];
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

    /// Grades, those of the most blades first.
    struct BySize {
        int at[GRADES];
    };
    static constexpr BySize by_size() {
        BySize list{};
        int next = 0;
        for (int size = BLADES; size > 0; --size) {
            for (int grade = 0; grade < GRADES; ++grade) {
                if (tables.first[grade + 1] - tables.first[grade] == size) list.at[next++] = grade;
            }
        }
        return list;
    }

    static constexpr BySize order = by_size();

    /// Gradients of the three matrices [grades, in, features]: Σ_rows Σ_blades-of-grade a[row][blade][i]·b[row][blade][o], added to what
    /// `sums` holds if `again`. A thread has tiles of 4×4, and those of the largest grades come first, so that all end together.
    GW_DEVICE void matrices(const Places& places, const float* xs, const float* hs, const float* dys, const float* drs,
                            const float* dls, int rows, float* sums, bool again) const {
        const int across = features4 / 4, wide = inputs4 / 4 * across, narrow = across * across, tiles = wide + 2 * narrow;
#pragma unroll 1
        for (int task = threadIdx.x; task < GRADES * tiles; task += blockDim.x) {
            const int rank = task / tiles, number = task % tiles;
            int grade = 0, begin = 0, end = 0;
            each<GRADES>([&](auto index) {
                constexpr int at = decltype(index)::value, g = order.at[at], first = tables.first[g], last = tables.first[g + 1];
                if (rank == at) {
                    grade = g;
                    begin = first;
                    end = last;
                }
            });
            const bool first = number < wide, second = number < wide + narrow;
            const int tile = number - (first ? 0 : second ? wide : wide + narrow);
            const int count = first ? inputs : features, count4 = first ? inputs4 : features4;
            const int i = tile / across * 4, o = tile % across * 4;
            const float* const a = (first ? xs : hs) + i;
            const float* const b = (first ? dys : second ? drs : dls) + o;
            float* const target = sums + (first ? places.linear : second ? places.right : places.left);
            float sum[4][4] = {};
#pragma unroll 1
            for (int blade = begin; blade < end; ++blade) {
                const float* left_side = a + blade * count4;
                const float* right_side = b + blade * features4;
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
                float* const line = target + (grade * count + i + k) * features + o;
                if (features % 4 == 0) {
                    float before[4] = {};
                    if (again) load<4>(line, before);
#pragma unroll
                    for (int l = 0; l < 4; ++l) sum[k][l] += before[l];
                    ::store<4>(line, sum[k]);
                    continue;
                }
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
        begin_kernel();                                                                                                          \
        extern __shared__ uint4 shared[];                                                                                        \
        MvBlock<Algebra<P, Q, R_>, ROWS>::forward(reinterpret_cast<float*>(shared), weights, x, residual, out, y, r, s);         \
    }                                                                                                                            \
    extern "C" __global__ void __launch_bounds__(256, 1) gw_mv_block_bwd_r##ROWS##_##P##_##Q##_##R_##_f32(                       \
        GW_PARAMETER MvBlockWeights weights, const float* x, const float* y, const float* r, const float* s, const float* grad,  \
        float* grad_x, float* partial) {                                                                                         \
        begin_kernel();                                                                                                          \
        extern __shared__ uint4 shared[];                                                                                        \
        MvBlock<Algebra<P, Q, R_>, ROWS>::backward(reinterpret_cast<float*>(shared), weights, x, y, r, s, grad, grad_x,          \
                                                   partial);                                                                     \
    }
