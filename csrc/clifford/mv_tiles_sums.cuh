// Gradients of parameters in the backward pass of blocks on many rows, see clifford/mv_tiles_backward.cuh: their sums, and how they are
// written.
#pragma once

#include "clifford/mv_tiles.cuh"

template <class A, class T, int TILES>
struct MvTilesSums : MvTiles<A, T> {
    using Tiles = MvTiles<A, T>;
    using typename Tiles::Normalizer;
    using typename Tiles::Parameters;
    using typename Tiles::Product;
    using Places = MvBlockPlaces<A>;
    using Tiles::feature, Tiles::features, Tiles::group, Tiles::inputs, Tiles::line, Tiles::p;
    using Tiles::GRADES, Tiles::PATHS, Tiles::WIDTH;

    /// A lane's part of a feature's product weights and normalisation parameters: those that it sums over all eight lanes of the
    /// feature.
    static constexpr int SHARE = (PATHS + GRADES + 7) / 8;

    /// Gradients of the parameters of a thread's two features, summed over its rows, in shared memory because registers are short: pairs of
    /// the silu's for each side and grade; then, of both sides, of the biases and the gain, and SHARE pairs of the product weights with
    /// the normalisation behind them, see `fold`.
    struct Sums {
        static constexpr int BIAS = 2 * GRADES, LEFT_BIAS = BIAS + 1, GAIN = BIAS + 2, PRODUCT = BIAS + 3;
        static constexpr int SIZE = (PRODUCT + SHARE) * 2 * 256;
        /// Number of values per feature.
        static constexpr int COUNT = PATHS + 3 * GRADES + 3;
        float* first;

        GW_DEVICE float* at(int number) const { return first + 2 * (number * 256 + threadIdx.x); }
        GW_DEVICE void clear() const {
            const float none[2] = {};
#pragma unroll
            for (int number = 0; number < PRODUCT + SHARE; ++number) ::store<2>(at(number), none);
        }
        GW_DEVICE void get_silu(int side, float (&values)[GRADES][2]) const {
#pragma unroll
            for (int grade = 0; grade < GRADES; ++grade) load<2>(at(side * GRADES + grade), values[grade]);
        }
        GW_DEVICE void put_silu(int side, const float (&values)[GRADES][2]) const {
#pragma unroll
            for (int grade = 0; grade < GRADES; ++grade) ::store<2>(at(side * GRADES + grade), values[grade]);
        }
        GW_DEVICE void add(int number, const float (&values)[2]) const {
            float sums[2];
            load<2>(at(number), sums);
            sums[0] += values[0];
            sums[1] += values[1];
            ::store<2>(at(number), sums);
        }
    };

    /// Gradients of 16×8 elements of the matrices of each grade, as matrix instructions leave them.
    struct Matrices {
        float linear[TILES][GRADES][4] = {}, right[GRADES][4] = {}, left[GRADES][4] = {};
    };

    GW_DEVICE explicit MvTilesSums(const MvBlockWeights<T>& weights) : Tiles(weights) {}

    /// Adds a feature's sums of the eight lanes that have it. Each of the lanes keeps SHARE of them, from number line·SHARE on: in
    /// each of three steps a lane sends half of its remaining sums to another lane and adds that lane's sums of the other half.
    GW_DEVICE void fold(const typename Product::Weights& weights, const float (&norms)[GRADES][1], const Sums& sums, int side) const {
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
        for (int n = 0; n < SHARE; ++n) sums.at(Sums::PRODUCT + n)[side] += left[n];
    }

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

    /// Adds up the lanes' sums of each feature, and writes them. `shared` has room for 2·COUNT·WIDTH values.
    GW_DEVICE void write_sums(const Parameters& parameters, const Sums& sums, float* shared, float* partial) const {
#pragma unroll
        for (int side = 0; side < 2; ++side) {
            float* const own = shared + group * Sums::COUNT * WIDTH + feature + side;
            int number = 0;
            auto give = [&](float value) {
#pragma unroll
                for (int offset = 4; offset < 32; offset *= 2) value += __shfl_xor_sync(0xffffffffu, value, offset);
                if (line == 0) own[number * WIDTH] = value;
                ++number;
            };
            give(sums.at(Sums::BIAS)[side]);
            give(sums.at(Sums::LEFT_BIAS)[side]);
            give(sums.at(Sums::GAIN)[side]);
            float silu[GRADES][2];
            sums.get_silu(side, silu);
#pragma unroll
            for (int grade = 0; grade < GRADES; ++grade) give(silu[grade][0]);
#pragma unroll
            for (int grade = 0; grade < GRADES; ++grade) give(silu[grade][1]);
#pragma unroll
            for (int n = 0; n < SHARE; ++n) {
                const int of = line * SHARE + n;
                float value = sums.at(Sums::PRODUCT + n)[side];
                if (of >= PATHS && of < PATHS + GRADES) value = parameters.normalizer(of - PATHS, feature + side).finish(value);
                if (of < PATHS + GRADES) own[(number + of) * WIDTH] = value;
            }
        }
        __syncthreads();
        partial += blockIdx.x * Places(p.inputs, p.features).count;
        const Places places(p.inputs, p.features, partial);
        for (int at = threadIdx.x; at < Sums::COUNT * WIDTH; at += blockDim.x) {
            const int of = at % WIDTH, number = at / WIDTH;
            if (of < features) partial[place_of(places, number, of)] = shared[at] + shared[Sums::COUNT * WIDTH + at];
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
