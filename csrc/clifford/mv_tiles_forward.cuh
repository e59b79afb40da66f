// The forward pass of a block on many rows, see clifford/mv_tiles.cuh. Names: gw_mv_tiles_fwd<TILES>_<algebra>_<dtype>.
#pragma once

#include "clifford/mv_tiles.cuh"

/// `TILES` · 32 is at least the number of inputs.
template <class A, class T, int TILES>
struct MvTilesForward : MvTiles<A, T> {
    using Tiles = MvTiles<A, T>;
    using typename Tiles::Fragment;
    using typename Tiles::Parameters;
    using typename Tiles::Operands;
    using typename Tiles::Way;
    using Rows = typename Tiles::template Rows<Tiles::ROWS>;
    using Stage = typename Tiles::template Stage<Tiles::ROWS>;
    using InputStage = typename Tiles::template Stage<Tiles::ROWS, TILES>;
    using Tiles::BLADES, Tiles::MATRIX_BYTES, Tiles::ROWS, Tiles::WIDTH;
    using Tiles::column, Tiles::feature, Tiles::features, Tiles::group, Tiles::inputs, Tiles::line, Tiles::p, Tiles::share;

    /// What the backward pass reads; each may be null.
    struct Kept {
        T *y, *r, *s;
    };

    /// out, plus the residual if one is given. Dynamic shared memory: the matrices, 32 inputs at a time, then for each group 16 rows of x
    /// as operands, the first of which h takes later, and as they come, and the residual; the parameters, and for each group 64 sums
    /// and two barriers.
    GW_DEVICE static void run(char* shared, const MvBlockWeights<T>& weights, const T* x, const T* residual, T* out, const Kept& kept) {
        MvTilesForward(weights).work(shared, x, residual, out, kept);
    }

  private:
    GW_DEVICE explicit MvTilesForward(const MvBlockWeights<T>& weights) : Tiles(weights) {}

    GW_DEVICE void work(char* shared, const T* x, const T* residual, T* out, const Kept& kept) const {
        constexpr int GROUP = TILES * Rows::BYTES + InputStage::BYTES + Stage::BYTES;
        const int groups = blockDim.x / 128;
        char* const right = shared;
        char* const left = right + MATRIX_BYTES;
        char* const linear = left + MATRIX_BYTES;
        char* const rows = linear + TILES * MATRIX_BYTES + group * GROUP;
        char* const x_stage = rows + TILES * Rows::BYTES;
        char* const residual_stage = x_stage + InputStage::BYTES;
        float* const values = reinterpret_cast<float*>(linear + TILES * MATRIX_BYTES + groups * GROUP);
        float* const sums = values + Parameters::COUNT + group * 4 * ROWS;
        u64* const barriers = reinterpret_cast<u64*>(values + Parameters::COUNT + groups * 4 * ROWS) + group * 2;
        const i64 step = static_cast<i64>(groups) * gridDim.x * ROWS;
        i64 first = (static_cast<i64>(groups) * blockIdx.x + group) * ROWS;
        const Way x_way = this->template way_of<1>({x}, inputs), residual_way = this->template way_of<1>({residual}, features);
        if (threadIdx.x % 128 == 0) {
            barrier_init(barriers, BLADES);
            barrier_init(barriers + 1, BLADES);
            barrier_init_fence();
        }
        this->meet();
        auto bring = [&](auto stage, char* target, const T* source, i64 row, int width, Way way, u64* barrier) {
            this->template bring<decltype(stage), ROWS, 1>({target}, {source}, row, width, way, 128 * group, 128, barrier);
        };
        bring(InputStage{}, x_stage, x, first, inputs, x_way, barriers);
        copy_async_commit();
        // Not `load_all_matrices`, with which this pass took 1.5% longer (docs/lab/kernels.md).
        this->load_matrices(right, p.right, features, 0);
        this->load_matrices(left, p.left, features, 0);
#pragma unroll
        for (int tile = 0; tile < TILES; ++tile) this->load_matrices(linear + tile * MATRIX_BYTES, p.linear, inputs, WIDTH * tile);
        const Parameters parameters = this->load_parameters(values);
        const u32 a = shared_address(rows) + Operands::left_offset(), b = Operands::right_offset(threadIdx.x % 32, column);
        const u32 at_right = shared_address(right) + b, at_left = shared_address(left) + b, at_linear = shared_address(linear) + b;
        u32 parity = 0;
        __syncthreads();
#pragma unroll 1
        for (; first < p.rows; first += step, parity ^= 1) {
            const int last = static_cast<int>(min(p.rows - first, static_cast<i64>(ROWS))) - 1;
            if (x_way == Way::ENGINE) {
                barrier_wait(barriers, parity);
            } else {
                copy_async_wait<0>();
                this->meet();
            }
#pragma unroll
            for (int tile = 0; tile < TILES; ++tile) {
                this->template place_inputs<InputStage, Rows>(rows + tile * Rows::BYTES, x_stage, 0, last, WIDTH * tile);
            }
            this->meet();
            if (residual != nullptr) bring(Stage{}, residual_stage, residual, first, features, residual_way, barriers + 1);
            copy_async_commit();
            bring(InputStage{}, x_stage, x, first + step, inputs, x_way, barriers);
            copy_async_commit();
            Fragment h;
            Tiles::template accumulate<false, true, Rows>(h, a, at_linear);
#pragma unroll
            for (int tile = 1; tile < TILES; ++tile) {
                Tiles::template accumulate<false, false, Rows>(h, a + tile * Rows::BYTES, at_linear + tile * MATRIX_BYTES);
            }
            this->meet();  // The group has read x.
            gate(parameters, h, kept.y, first, rows);
            this->meet();
            Fragment r, s;  // s is l without its bias at first.
            Tiles::template accumulate_two<Rows>(r, s, a, at_right, at_left);
            if (kept.r != nullptr) this->write(kept.r, first, r);
            this->apply_product(parameters, h, r, s);
            if (kept.s != nullptr) this->write(kept.s, first, s);
            copy_async_wait<1>();  // The group meets in `scale`.
            scale(parameters, s, sums);
            if (residual != nullptr) {
                if (residual_way == Way::ENGINE) barrier_wait(barriers + 1, parity);
                add(residual_stage, last, s);
            }
            this->write(out, first, s);
        }
    }

    /// y, the result of the first linear map, becomes h in place and in `rows`.
    GW_DEVICE void gate(const Parameters& parameters, Fragment& h, T* kept_y, i64 first, char* rows) const {
#pragma unroll
        for (int at = 0; at < 4; ++at) h[0][at] += parameters.bias(feature + at % 2);
        if (kept_y != nullptr) this->write(kept_y, first, h);
        this->apply_silu(parameters, h);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float both[BLADES][2];
            Tiles::values_of_row(h, half, both);
            this->template put<Rows>(rows, half, both);
        }
    }

    /// s becomes its layer norm.
    GW_DEVICE void scale(const Parameters& parameters, Fragment& s, float* shared) const {
        float norms[1][2];
        this->sum_norms(s, norms, shared);
#pragma unroll
        for (int at = 0; at < 4; ++at) {
            const float scale = Quick::quotient(parameters.gain(feature + at % 2), norms[0][at / 2] * share + float(NORM_EPSILON));
#pragma unroll
            for (int blade = 0; blade < BLADES; ++blade) s[blade][at] *= scale;
        }
    }

    /// Adds the residual.
    GW_DEVICE void add(const char* stage, int last, Fragment& s) const {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float base[BLADES][2];
            this->template read<Stage>(stage, min(line + 8 * half, last), base);
#pragma unroll
            for (int blade = 0; blade < BLADES; ++blade) {
                s[blade][2 * half] += base[blade][0];
                s[blade][2 * half + 1] += base[blade][1];
            }
        }
    }
};
