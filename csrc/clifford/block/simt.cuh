// Blocks of equivariant networks (clifford/block/definition.cuh) for at most 32 features and 32 blades, by ordinary arithmetic on every target.
// Each lane owns one feature and holds its blades in registers; a group of LANES lanes, a warp or half of one, works on R rows at a time. All
// matrices, and the rows of the block, are in shared memory, through which lanes exchange data. The backward pass reads y, r and s, which the
// forward pass saved. Groups without rows help to load the matrices and to form their gradients.
//
// Weights of a product of more than 16 blades, and the sums of their gradients, are in shared memory too: a thread has no registers for them.
//
// Arrays of features are of type T, f32 or 16 bits, which are widened as they are loaded and rounded as they are stored; shared memory and
// arithmetic are f32.
//
// This file: what both passes share. The passes are in simt_forward.cuh and simt_backward.cuh.
#pragma once

#include "clifford/block/block_launch.cuh"
#include "clifford/block/definition.cuh"
#include "clifford/block/element.cuh"
#include "ptx/async.cuh"

/// Weights of a product, or sums of their gradients, of a lane's feature: in registers, or in a column of shared memory.
template <class Product, int LANES, bool SHARED>
struct BlockWeightsChoice {
    using Type = typename Product::Weights;
};
template <class Product, int LANES>
struct BlockWeightsChoice<Product, LANES, true> {
    using Type = typename Product::template Shared<LANES>;
};
template <class Product, int LANES, bool SHARED>
using BlockWeights = typename BlockWeightsChoice<Product, LANES, SHARED>::Type;

/// Blocks of up to 8 blades have no register for the full range of norms.
template <bool FULL_RANGE>
struct BlockNorms {
    using Type = QuickFullRange;
};
template <>
struct BlockNorms<false> {
    using Type = Quick;
};

template <class A, int R, class T = float, int LANES = 32, class M = typename BlockNorms<(A::BLADES > 8)>::Type>
struct BlockSimt : BlockElement<A, M> {
    using Functions = BlockElement<A, M>;
    using typename Functions::Element;
    using typename Functions::Product;
    using typename Functions::SiluGate;
    using Functions::BLADES, Functions::GRADES, Functions::PATHS, Functions::tables;
    using Layout = BlockGradientLayout<A>;
    static_assert(LANES == 16 || LANES == 32, "a group is a warp or half of one");
    /// Groups of a block, at most.
    static constexpr int MOST_GROUPS = block_simt::THREADS / LANES;
    /// Whether the product's weights are in shared memory.
    static constexpr bool SHARES_WEIGHTS = block_simt::weights(BLADES, 1, 1) > 0;
    using Weights = BlockWeights<Product, LANES, SHARES_WEIGHTS>;

    const BlockOperands<T>& p;
    int inputs, features;   // As in `p`.
    int inputs4, features4; // Rounded up to 4.
    int lane, group, groups;
    int working;            // Groups that have rows.
    int maps;               // Square matrices: two, or one where there is no left map.
    int column;             // The lane's feature; lanes without one repeat the last.
    float share;            // 1/features
    bool active;            // Whether the lane has a feature of its own.
    float *linear, *right, *left;

    GW_DEVICE BlockSimt(const BlockOperands<T>& weights) : p(weights) {
        inputs = static_cast<int>(p.inputs);
        features = static_cast<int>(p.features);
        inputs4 = block_simt::padded(inputs);
        features4 = block_simt::padded(features);
        lane = threadIdx.x % LANES;
        group = threadIdx.x / LANES;
        groups = blockDim.x / LANES;
        working = static_cast<int>(p.groups);
        maps = p.left == nullptr ? 1 : 2;
        share = 1.0f / static_cast<float>(features);
        active = lane < features;
        column = active ? lane : features - 1;
    }

    /// Layout the matrices at the start of shared memory and returns the first address behind them. Four successive terms of a sum
    /// are adjacent: forward [grades, in/4, out, 4]; backward, where sums run along rows, [grades, out/4, in + 1, 4], whose odd
    /// pitch keeps stores free of bank conflicts.
    template <bool BACKWARD>
    GW_DEVICE float* place_matrices(float* shared) {
        const int padding = BACKWARD ? 1 : 0;
        linear = shared;
        right = linear + GRADES * features4 * (inputs4 + padding);
        left = right + GRADES * features4 * (features4 + padding);
        return left + (maps - 1) * GRADES * features4 * (features4 + padding);
    }

    /// Loads the matrices into shared memory; all warps take part. A barrier must follow before they are read.
    template <bool BACKWARD>
    GW_DEVICE void load_matrices() const {
        const int warp = threadIdx.x / 32, warps = blockDim.x / 32, lane = threadIdx.x % 32;
        const int square_lines = features4 / 4, input_lines = inputs4 / 4, lines = input_lines + maps * square_lines;
        // A line is four rows of a matrix. Four lines' loads are in flight at a time: the launch waits longer for these than for
        // anything else.
        constexpr int LINES = 4;
        const u64 addresses = reinterpret_cast<u64>(p.linear) | reinterpret_cast<u64>(p.right) | reinterpret_cast<u64>(p.left);
        const bool whole = features % 4 == 0 && addresses % 16 == 0;  // Enough in either type.
#pragma unroll 1
        for (int start = warp; start < lines; start += LINES * warps) {
            float values[LINES][GRADES][4];
            p.typed([&](auto zero) {
                if (BACKWARD && whole) {
                    load_lines<BACKWARD, true, decltype(zero)>(values, start, lane, warps);
                } else {
                    load_lines<BACKWARD, false, decltype(zero)>(values, start, lane, warps);
                }
            });
#pragma unroll
            for (int line = 0; line < LINES; ++line) {
                const int number = start + line * warps;
                const bool first = number < input_lines, second = number < input_lines + square_lines;
                float* const target = first ? linear : second ? right : left;
                const int count4 = first ? inputs4 : features4, at = 4 * (number - (first ? 0 : second ? input_lines : input_lines + square_lines));
                if (number >= lines || (BACKWARD ? lane % 8 >= square_lines : lane >= features4)) continue;
#pragma unroll
                for (int grade = 0; grade < GRADES; ++grade) {
                    const int place = BACKWARD ? (grade * square_lines + lane % 8) * (count4 + 1) + at + lane / 8
                                               : (grade * (count4 / 4) + at / 4) * features4 + lane;
                    ::store<4>(target + 4 * place, values[line][grade]);
                }
            }
        }
    }

    /// Loads the warp's lines of matrices of type P, from number `start` on; quads of a row's elements are aligned if `WHOLE`.
    template <bool BACKWARD, bool WHOLE, class P, int LINES>
    GW_DEVICE void load_lines(float (&values)[LINES][GRADES][4], int start, int lane, int warps) const {
        const int square_lines = features4 / 4, input_lines = inputs4 / 4, lines = input_lines + maps * square_lines;
#pragma unroll
        for (int line = 0; line < LINES; ++line) {
            const int number = start + line * warps;
            const bool first = number < input_lines, second = number < input_lines + square_lines, exists = number < lines;
            const P* const source = static_cast<const P*>(first ? p.linear : second ? p.right : p.left);
            const int count = first ? inputs : features, at = 4 * (number - (first ? 0 : second ? input_lines : input_lines + square_lines));
#pragma unroll
            for (int grade = 0; grade < GRADES; ++grade) {
                float(&four)[4] = values[line][grade];
                if constexpr (BACKWARD) {
                    const int i = at + lane / 8, o = lane % 8 * 4;
                    const int from = (grade * count + i) * features + o;
                    if constexpr (WHOLE) {
                        load_if<4>(exists && i < count && o < features, source + from, four);
                    } else {
#pragma unroll
                        for (int k = 0; k < 4; ++k) four[k] = element_if(exists && i < count && o + k < features, source + from + k);
                    }
                } else {
                    const int from = (grade * count + at) * features + lane;
#pragma unroll
                    for (int k = 0; k < 4; ++k) four[k] = element_if(exists && at + k < count && lane < features, source + from + k * features);
                }
            }
        }
    }

    /// sum[m][r][blade] += Σ_i in[r][blade][i]·w[m][grade][i] for MAPS matrices. A lane's weights of four successive i are adjacent at
    /// `w`; consecutive groups of four are `step` apart.
    template <int MAPS>
    GW_DEVICE static void accumulate(float (&sum)[MAPS][R][BLADES], const float* in, int count, const float* const (&w)[MAPS],
                                     int grade_stride, int step) {
#pragma unroll 1
        for (int i = 0, at = 0; i < count; i += 4, at += step) {
            float weight[MAPS][GRADES][4];
#pragma unroll
            for (int m = 0; m < MAPS; ++m) {
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
                        for (int m = 0; m < MAPS; ++m) sum[m][r][blade] += values[k] * weight[m][grade][k];
                    }
                });
            }
        }
    }

    /// Starts copying the group's rows of N arrays [blades, rows, width] to [R, blades, width rounded up to 4] in shared memory,
    /// padded with zeros. The data is there after `fetched`.
    template <int N>
    GW_DEVICE void fetch(float* const (&targets)[N], const T* const (&sources)[N], i64 first, int width) const {
        bool aligned = width % 4 == 0;
#pragma unroll
        for (int n = 0; n < N; ++n) aligned = aligned && reinterpret_cast<u64>(sources[n]) % (4 * sizeof(T)) == 0;
        if (aligned) {
            fetch_by<4, 8>(targets, sources, first, width);
        } else {
            fetch_by<1, LANES>(targets, sources, first, width);
        }
    }

    /// The same, V elements to each of ACROSS lanes along a row.
    template <int V, int ACROSS, int N>
    GW_DEVICE void fetch_by(float* const (&targets)[N], const T* const (&sources)[N], i64 first, int width) const {
        static_assert(BLADES % (LANES / ACROSS) == 0, "lines are dealt out evenly");
        // As many lines as there are sets of lanes in a group; BLADES are a multiple of that.
        constexpr int TOGETHER = LANES / ACROSS, STEPS = R * BLADES * ACROSS / LANES;
        const int pitch = (width + 3) / 4 * 4;
#pragma unroll 1
        for (int i = lane % ACROSS * V; i < pitch; i += ACROSS * V) {
            const i64 blade_step = p.rows * width, own = lane / ACROSS * blade_step + first * width + i;
            // Calls f(step, whether there is data, its offset, the offset it goes to) for the lane's line of each step.
            auto each_line = [&](auto f) {
#pragma unroll
                for (int step = 0; step < STEPS; ++step) {
                    const int r = step * TOGETHER / BLADES, blade = step * TOGETHER % BLADES + lane / ACROSS;
                    const bool inside = first + r < p.rows && i < width;
                    const i64 from = inside ? own + blade_step * (step * TOGETHER % BLADES) + static_cast<i64>(r) * width : 0;
                    f(step, inside, from, (r * BLADES + blade) * pitch + i);
                }
            };
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
            if constexpr (sizeof(T) == 4) {
                each_line([&](int, bool inside, i64 from, int to) {
#pragma unroll
                    for (int n = 0; n < N; ++n) {
                        if constexpr (V == 4) {
                            copy_async_16(targets[n] + to, sources[n] + from, inside ? 16 : 0);
                        } else {
                            copy_async_4(targets[n] + to, sources[n] + from, inside ? 4 : 0);
                        }
                    }
                });
                continue;
            }
#endif
            // All loads before the first store, which waits.
            float values[STEPS][N][V];
            each_line([&](int step, bool inside, i64 from, int) {
#pragma unroll
                for (int n = 0; n < N; ++n) load_if<V>(inside, sources[n] + from, values[step][n]);
            });
            each_line([&](int step, bool, i64, int to) {
#pragma unroll
                for (int n = 0; n < N; ++n) ::store<V>(targets[n] + to, values[step][n]);
            });
        }
    }

    /// Waits until all copies that the group started are visible to all of its lanes.
    GW_DEVICE static void fetched() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
        if constexpr (sizeof(T) == 4) {
            copy_async_commit();
            copy_async_wait<0>();
        }
#endif
        __syncwarp();
    }

    /// Reads a lane's blades of a row of `features` that `fetch` or `store_shared` stored.
    GW_DEVICE void load_shared(const float* row, Element& element) const {
#pragma unroll
        for (int blade = 0; blade < BLADES; ++blade) element.at[blade][0] = row[blade * features4 + column];
    }

    /// Writes a lane's blades of a row to shared memory, with zeros as padding. Other lanes may read them after a __syncwarp().
    GW_DEVICE void store_shared(float* row, const Element& element) const {
        // Lanes without a feature may still be reading what the last lane overwrites here.
        __syncwarp();
        if (lane >= features4) return;
#pragma unroll
        for (int blade = 0; blade < BLADES; ++blade) row[blade * features4 + lane] = active ? element.at[blade][0] : 0.0f;
    }

    GW_DEVICE void store_row(T* target, i64 row, const Element& element) const {
        if (!active || row >= p.rows) return;
        const i64 plane = p.rows * features;
        target += row * features + lane;
#pragma unroll
        for (int blade = 0; blade < BLADES; ++blade, target += plane) *target = narrow<T>(element.at[blade][0]);
    }

    /// Loads a lane's blades of a row; zero where there is none.
    GW_DEVICE void load_row(const T* source, i64 row, Element& element) const {
        const bool inside = active && row < p.rows;
        const i64 plane = p.rows * features;
        source += row * features + lane;
#pragma unroll
        for (int blade = 0; blade < BLADES; ++blade, source += plane) element.at[blade][0] = inside ? widen(*source) : 0.0f;
    }

    /// The sum over the lanes of a group.
    GW_DEVICE static float group_sum(float value) {
#pragma unroll
        for (int offset = LANES / 2; offset > 0; offset /= 2) value += __shfl_xor_sync(0xffffffffu, value, offset);
        return value;
    }

    /// The parameters of the lane's feature.
    GW_DEVICE void silu_parameters(SiluGate (&silu)[GRADES]) const {
        float slope[GRADES], shift[GRADES];
        p.typed([&](auto zero) {
            own_parameters<decltype(zero)>(p.slope, slope);
            own_parameters<decltype(zero)>(p.shift, shift);
        });
#pragma unroll
        for (int grade = 0; grade < GRADES; ++grade) {
            silu[grade].slope = slope[grade];
            silu[grade].shift = shift[grade];
        }
    }

    GW_DEVICE void normalization_parameters(float (&mix)[GRADES]) const {
        p.typed([&](auto zero) { own_parameters<decltype(zero)>(p.normalization, mix); });
    }

    /// Floats of the weights in shared memory.
    static constexpr int SHARED_WEIGHTS = block_simt::weights(BLADES, PATHS, LANES);

    /// Reads the product's weights. Those in shared memory, at `place`, are there for all groups after a barrier.
    GW_DEVICE void product_weights(Weights& values, float* place) const {
        if constexpr (SHARES_WEIGHTS) {
            values.first = place + lane;
            if (group > 0) return;
            p.typed([&](auto zero) {
                using P = decltype(zero);
                const P* const own = static_cast<const P*>(p.product) + column * PATHS;
#pragma unroll 8
                for (int path = 0; path < PATHS; ++path) values.at(path, 0) = widen(own[path]);
            });
        } else {
            float weights[PATHS];
            p.typed([&](auto zero) { own_parameters<decltype(zero)>(p.product, weights); });
#pragma unroll
            for (int path = 0; path < PATHS; ++path) values.at[path][0] = weights[path];
        }
    }

    /// COUNT parameters of the lane's feature, of type P.
    template <class P, int COUNT>
    GW_DEVICE void own_parameters(const void* source, float (&values)[COUNT]) const {
        const P* const own = static_cast<const P*>(source) + column * COUNT;
#pragma unroll
        for (int n = 0; n < COUNT; ++n) values[n] = widen(own[n]);
    }
};
