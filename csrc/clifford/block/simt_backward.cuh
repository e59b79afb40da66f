// The backward pass of a block, see clifford/block/simt.cuh. Names: gw_block_simt_bwd_l<LANES>_r<R>_<algebra>_<dtype>.
#pragma once

#include "clifford/block/simt.cuh"

template <class A, int R, class T, int LANES, class M = typename BlockNorms<(A::BLADES > 8)>::Type>
struct BlockSimtBackward : BlockSimt<A, R, T, LANES, M> {
    using Block = BlockSimt<A, R, T, LANES, M>;
    using typename Block::Element;
    using typename Block::Normalizer;
    using typename Block::Layout;
    using typename Block::Product;
    using typename Block::SiluGate;
    using typename Block::Weights;
    using Block::active, Block::column, Block::features, Block::features4, Block::inputs, Block::inputs4, Block::lane, Block::left;
    using Block::linear, Block::p, Block::right, Block::share, Block::group, Block::groups, Block::working;
    using Block::BLADES, Block::GRADES, Block::PATHS, Block::MOST_GROUPS, Block::SHARES_WEIGHTS, Block::SHARED_WEIGHTS, Block::tables;

    /// The inputs and saved intermediates of the forward pass, and the gradient of its result.
    struct Sources {
        const T *x, *y, *r, *s, *grad;
    };

    /// The gradient of x (may be null), and those of the parameters summed over the block's rows, [gridDim.x, Layout.count].
    /// Dynamic shared memory: the matrices, then for each of the block's rows x, y, h, r and l, see `Rows`; before these, weights and their sums
    /// where they are not in registers.
    GW_DEVICE static void run(float* shared, const BlockOperands<T>& weights, const Sources& sources, T* grad_x, float* partial) {
        BlockSimtBackward(weights, shared).work(sources, grad_x, partial);
    }

  protected:
    /// Rows of the block in shared memory, [rows, blades, inputs4 or features4]. An operand is fetched to where the gradient that
    /// replaces it goes: y to dys, s and then h to hs, r to drs, the gradient of the result to dls.
    struct Rows {
        float *xs, *dys, *hs, *drs, *dls;
    };

    /// Gradients of the lane's parameters, summed over the group's rows.
    struct Sums {
        float silu[GRADES][SiluGate::COUNT] = {}, normalizer[GRADES][Normalizer::COUNT] = {};
        Weights product = {};
        float bias = 0, left_bias = 0, gain = 0;
        /// Number of values.
        static constexpr int COUNT = block_simt::sums(GRADES, PATHS);
    };

    /// Parameters that a lane keeps in registers over all rows.
    struct Parameters {
        Weights product;
        Normalizer normalizer[GRADES];
        float gain;
    };

    /// Rows of the block, and elements of a row of `features` and of `inputs`.
    int block_rows, feature_row, input_row;
    /// Weights, and sums of their gradients, in shared memory.
    float *weights, *weight_sums;
    float* space;
    Rows rows;

    GW_DEVICE BlockSimtBackward(const BlockOperands<T>& operands, float* shared)
        : Block(operands), block_rows(working * R), feature_row(BLADES * features4), input_row(BLADES * inputs4) {
        weights = this->template place_matrices<true>(shared);
        weight_sums = weights + SHARED_WEIGHTS;
        space = weight_sums + working * SHARED_WEIGHTS;
        rows.xs = space;
        rows.dys = rows.xs + block_rows * input_row;
        rows.hs = rows.dys + block_rows * feature_row;
        rows.drs = rows.hs + block_rows * feature_row;
        rows.dls = rows.drs + block_rows * feature_row;
    }

    GW_DEVICE void work(const Sources& sources, T* grad_x, float* partial) {
        const int mine = group * R;
        const i64 step = static_cast<i64>(gridDim.x) * block_rows, start = static_cast<i64>(blockIdx.x) * block_rows;
        Sums sums;
        clear(sums.product);
        Parameters parameters;
#pragma unroll 1
        for (i64 base = start; base < p.rows; base += step) {
            const i64 first = base + mine;
            const bool again = base > start;
            if (again) __syncthreads();  // `matrix_gradients` may still be reading the rows before.
            if (group < working) fetch_rows(sources, first, mine);
            if (!again) load_parameters(parameters);
            if (group < working) {
                float dh[1][R][BLADES];
                product_backward(parameters, mine, sums, dh);
                linear_backward(mine, dh);
                silu_backward(mine, dh, sums);
                if (grad_x != nullptr) input_backward(mine, first, grad_x);
            }
            __syncthreads();
            const Layout layout(p.inputs, p.features);
            matrix_gradients(layout, block_rows, partial + blockIdx.x * layout.count, again);
        }
        finish(parameters, sums);
        write_sums(sums, partial);
    }

    /// Turns the sums of the normalisation into gradients.
    GW_DEVICE static void finish(const Parameters& parameters, Sums& sums) {
#pragma unroll
        for (int grade = 0; grade < GRADES; ++grade) {
            float& sum = sums.normalizer[grade][0];
            sum = parameters.normalizer[grade].finish(sum);
        }
    }

    /// Sets the sums of the product's weights to 0.
    GW_DEVICE void clear(Weights& sums) const {
        if constexpr (SHARES_WEIGHTS) {
            if (group >= working) return;
            sums.first = weight_sums + group * SHARED_WEIGHTS + lane;
#pragma unroll 8
            for (int path = 0; path < PATHS; ++path) sums.at(path, 0) = 0;
        }
    }

    /// Loads the parameters and the matrices, with a barrier at the end.
    GW_DEVICE void load_parameters(Parameters& parameters) const {
        float mix[GRADES];
        this->normalization_parameters(mix);
        this->product_weights(parameters.product, weights);
        parameters.gain = p.gain == nullptr ? 1.0f : p.at(p.gain, column);
        this->template load_matrices<true>();
        __syncthreads();
#pragma unroll
        for (int grade = 0; grade < GRADES; ++grade) parameters.normalizer[grade] = Normalizer(mix[grade]);
    }

    /// Starts copying the group's rows, `first` on, to where the gradients that replace them go.
    GW_DEVICE void fetch_rows(const Sources& sources, i64 first, int mine) const {
        const int own_row = mine * feature_row;
        this->template fetch<4>({rows.hs + own_row, rows.dls + own_row, rows.dys + own_row, rows.drs + own_row},
                                {sources.s, sources.grad, sources.y, sources.r}, first, features);
        this->template fetch<1>({rows.xs + mine * input_row}, {sources.x}, first, inputs);
    }

    /// From the gradient of the layer norm's result g to that of its argument s, in place.
    GW_DEVICE void layer_norm_backward(const Element& s, float gain, Element& g, float& gain_sum) const {
        float dot = 0;
#pragma unroll
        for (int blade = 0; blade < BLADES; ++blade) dot += s.at[blade][0] * g.at[blade][0];
        const float q = this->total(s), norm = smooth_norm<M>(q);
        const float norms = this->group_sum(active ? norm : 0.0f), dots = this->group_sum(active ? gain * dot : 0.0f);
        const float scale = quotient(1.0f, norms * share + float(NORM_EPSILON));
        gain_sum += dot * scale;
        const float norm_grad = -dots * scale * scale * share;
        const float form_grad = norm_grad * smooth_norm_slope<M>(q, norm);
        each<BLADES>([&](auto index) {
            constexpr int blade = decltype(index)::value, metric = tables.metric[blade];
            float value = g.at[blade][0] * gain * scale;
            if constexpr (metric != 0) value += float(metric) * form_grad * s.at[blade][0];
            g.at[blade][0] = value;
        });
    }

    /// Layer norm, product and normalisation of the group's rows: the gradients of l and r go to `dls` and `drs`, the recomputed h
    /// to `hs`, and the product's part of the gradient of h to `dh`. Waits for the rows, and ends with a __syncwarp().
    GW_DEVICE void product_backward(const Parameters& parameters, int mine, Sums& sums, float (&dh)[1][R][BLADES]) const {
        // Loaded again in silu_backward: kept until then, they would take more registers than a thread has.
        SiluGate silu[GRADES];
        this->silu_parameters(silu);
        this->fetched();
        // Not unrolled: a launch on few rows waits longer for instructions that it executes once than for those that it repeats. In f32, for compute
        // capabilities 10.0 and 12.0, the compiler spills registers in the loop.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
        constexpr int UNROLLED = sizeof(T) == 4 ? R : 1;
#else
        constexpr int UNROLLED = 1;
#endif
#pragma unroll UNROLLED
        for (int r = 0; r < R; ++r) {
            const int row = (mine + r) * feature_row;
            // Keeps the rows apart: interleaved, they would take more registers than a thread has.
            asm volatile("" ::: "memory");
            Element at, g;
            this->load_shared(rows.hs + row, at);
            this->load_shared(rows.dls + row, g);
            layer_norm_backward(at, parameters.gain, g, sums.gain);
#pragma unroll
            for (int blade = 0; blade < BLADES; ++blade) g.at[blade][0] *= Block::SQRT_HALF;
            sums.left_bias += g.at[0][0];
            this->store_shared(rows.dls + row, g);
            Element h, raw, factor, da, db;
            this->load_shared(rows.dys + row, at);
            typename SiluGate::At gates[GRADES];
            this->factors(silu, at, gates);
            this->apply(gates, at, h);
            this->store_shared(rows.hs + row, h);
            this->load_shared(rows.drs + row, raw);
            typename Normalizer::At norms[GRADES];
            this->factors(parameters.normalizer, raw, norms);
            this->apply(norms, raw, factor);
            Product::differentiate(h, factor, g, parameters.product, da, db, sums.product);
            float dr[BLADES];
#pragma unroll
            for (int blade = 0; blade < BLADES; ++blade) dr[blade] = db.at[blade][0];
            this->differentiate(parameters.normalizer, norms, raw, dr, sums.normalizer, dr);
#pragma unroll
            for (int blade = 0; blade < BLADES; ++blade) db.at[blade][0] = dr[blade];
            this->store_shared(rows.drs + row, db);
#pragma unroll
            for (int blade = 0; blade < BLADES; ++blade) {
                // At the end, all are in their places.
#pragma unroll
                for (int n = 0; n + 1 < R; ++n) dh[0][n][blade] = dh[0][n + 1][blade];
                dh[0][R - 1][blade] = da.at[blade][0];
            }
        }
        __syncwarp();
    }

    /// Adds the parts of both linear maps to the gradient of h, `dh`.
    GW_DEVICE void linear_backward(int mine, float (&dh)[1][R][BLADES]) const {
        const int line = lane < features4 ? lane : 0, pitch = features4 + 1;
        this->accumulate(dh, rows.drs + mine * feature_row, features4, {right + 4 * line}, features4 * pitch, 4 * pitch);
        if (Block::maps == 1) return;
        this->accumulate(dh, rows.dls + mine * feature_row, features4, {left + 4 * line}, features4 * pitch, 4 * pitch);
    }

    /// Writes the gradient of y to `dys`, and ends with a __syncwarp().
    GW_DEVICE void silu_backward(int mine, const float (&dh)[1][R][BLADES], Sums& sums) const {
        SiluGate silu[GRADES];
        this->silu_parameters(silu);
#pragma unroll
        for (int r = 0; r < R; ++r) {
            Element at, dy;
            this->load_shared(rows.dys + (mine + r) * feature_row, at);
            typename SiluGate::At gates[GRADES];
            this->factors(silu, at, gates);
            float out[BLADES];
            this->differentiate(silu, gates, at, dh[0][r], sums.silu, out);
#pragma unroll
            for (int blade = 0; blade < BLADES; ++blade) dy.at[blade][0] = out[blade];
            sums.bias += dy.at[0][0];
            this->store_shared(rows.dys + (mine + r) * feature_row, dy);
        }
        __syncwarp();
    }

    /// Writes the gradient of x through the first linear map.
    GW_DEVICE void input_backward(int mine, i64 first, T* grad_x) const {
        const int pitch = inputs4 + 1;
#pragma unroll 1
        for (int i = lane; i - lane < inputs; i += LANES) {
            float dx[1][R][BLADES] = {};
            const float* const own = linear + 4 * (i < inputs ? i : 0);
            this->accumulate(dx, rows.dys + mine * feature_row, features4, {own}, features4 * pitch, 4 * pitch);
#pragma unroll
            for (int r = 0; r < R; ++r) {
                if (i >= inputs || first + r >= p.rows) continue;
#pragma unroll
                for (int blade = 0; blade < BLADES; ++blade) {
                    grad_x[(blade * p.rows + first + r) * inputs + i] = narrow<T>(dx[0][r][blade]);
                }
            }
        }
    }

    /// Adds the groups' sums in order and writes them. All threads of the block call it.
    GW_DEVICE void write_sums(const Sums& sums, float* partial) const {
        constexpr int COUNT = Sums::COUNT;
        __syncthreads();  // `matrix_gradients` may still be reading the rows.
        if (group < working) {
            float* const own = space + group * COUNT * LANES + lane;
            own[0] = sums.bias;
            own[LANES] = sums.left_bias;
            own[2 * LANES] = sums.gain;
#pragma unroll
            for (int grade = 0; grade < GRADES; ++grade) {
                own[(3 + grade) * LANES] = sums.silu[grade][0];
                own[(3 + GRADES + grade) * LANES] = sums.silu[grade][1];
                own[(3 + 2 * GRADES + grade) * LANES] = sums.normalizer[grade][0];
            }
#pragma unroll
            for (int path = 0; path < PATHS; ++path) own[(3 + 3 * GRADES + path) * LANES] = sums.product(path, 0);
        }
        __syncthreads();
        partial += blockIdx.x * Layout(inputs, features, nullptr, Block::maps).count;
        const Layout layout(inputs, features, partial, Block::maps);
        for (int value = group; value < COUNT; value += groups) {
            if (!active) continue;
            float parts[MOST_GROUPS];
#pragma unroll
            for (int other = 0; other < MOST_GROUPS; ++other) {
                parts[other] = other < working ? space[(other * COUNT + value) * LANES + lane] : 0.0f;
            }
            float sum = 0;
#pragma unroll
            for (int other = 0; other < MOST_GROUPS; ++other) sum += parts[other];
            partial[gradient_offset(layout, value)] = sum;
        }
    }

    /// The offset of the lane's value number `value`, in the order of `write_sums`.
    GW_DEVICE i64 gradient_offset(const Layout& layout, int value) const {
        if (value == 0) return layout.bias + lane;
        if (value == 1) return layout.left_bias + lane;
        if (value == 2) return layout.gain + lane;
        if (value >= 3 + 3 * GRADES) return layout.product + lane * PATHS + value - 3 - 3 * GRADES;
        const int kind = (value - 3) / GRADES;
        const i64 start = kind == 0 ? layout.slope : kind == 1 ? layout.shift : layout.normalization;
        return start + lane * GRADES + (value - 3) % GRADES;
    }

    /// Grades in order of their number of blades, the largest first.
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

    /// Gradients of the three matrices [grades, in, features]: Σ_rows Σ_blades-of-grade a[row][blade][i]·b[row][blade][o], added to
    /// what `sums` holds if `again`. A thread computes tiles of 4×4. Tiles of the largest grades come first, and every second round is dealt
    /// out backwards, which balances the threads.
    ///
    /// Before: a barrier behind the writes of all rows. All threads of the block call it.
    GW_DEVICE void matrix_gradients(const Layout& layout, int count_rows, float* sums, bool again) const {
        const int across = features4 / 4, input_tiles = inputs4 / 4 * across, square_tiles = across * across, tiles = input_tiles + Block::maps * square_tiles;
#pragma unroll 1
        for (int begun = 0, own = threadIdx.x; begun < GRADES * tiles; begun += blockDim.x, own = blockDim.x - 1 - own) {
            const int task = begun + own, rank = task / tiles, number = task % tiles;
            if (task >= GRADES * tiles) continue;
            int grade = 0, begin = 0, end = 0;
            each<GRADES>([&](auto index) {
                constexpr int at = decltype(index)::value, g = order.at[at], first = tables.first[g], last = tables.first[g + 1];
                if (rank == at) {
                    grade = g;
                    begin = first;
                    end = last;
                }
            });
            const bool first = number < input_tiles, second = number < input_tiles + square_tiles;
            const int tile = number - (first ? 0 : second ? input_tiles : input_tiles + square_tiles);
            const int count = first ? inputs : features, count4 = first ? inputs4 : features4;
            const int i = tile / across * 4, o = tile % across * 4;
            const float* const a = (first ? rows.xs : rows.hs) + i;
            const float* const b = (first ? rows.dys : second ? rows.drs : rows.dls) + o;
            float* const target = sums + (first ? layout.linear : second ? layout.right : layout.left);
            float sum[4][4] = {};
#pragma unroll 1
            for (int blade = begin; blade < end; ++blade) {
                const float* left_side = a + blade * count4;
                const float* right_side = b + blade * features4;
#pragma unroll 4
                for (int row = 0; row < count_rows; ++row) {
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
