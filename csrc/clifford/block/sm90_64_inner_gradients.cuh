// Gradients of the matrices `right` and `left` of blocks with more than 32 features, see clifford/block/sm90_64.cuh.
// Names: gw_block_sm90_64_bwd_inner_<algebra>_f32, and gw_block_sm90_64_f32x3_bwd_inner… of operands in two numbers.
#pragma once

#include "clifford/block/sm90_64_halves.cuh"
#include "clifford/block/sm90_64_products.cuh"

/// partial[block][c][grade][m][n] = Σ h[blade][row][m]·d_c[blade][row][n] over the blades of the grade and the block's rows, for the gradients
/// d_0 of r and d_1 of l. All three are as the backward pass stored them: 16 rows each, in the layout that matrix instructions read.
///
/// A block has half of the grades, by blockIdx.z, and keeps their sums in registers; each of its warps has 16 columns of h and 32 of the
/// gradients. The blades of one tile at a time come to shared memory by the copy engine, some tiles ahead. Matrix instructions, which truncate,
/// add the products of 16 rows; the rest are additions that round.
template <class A, int PRODUCTS>
struct Block64InnerGradients {
    /// The layout of tiles does not depend on the type of features.
    using Tile = Block64Products<A, float, PRODUCTS>;
    static constexpr int GRADES = A::GRADES, PART = Tile::PART, PLANE = Tile::PLANE;
    static constexpr auto tables = A::make();
    using Sizes = Block64InnerSizes<A, Tile::NUMBERS>;
    static constexpr int ARRAY = Sizes::ARRAY, SCALES = 16, STAGE = Sizes::STAGE, STAGES = Sizes::STAGES;
    /// Columns of a warp: 8·STRIPS of the gradients.
    static constexpr int STRIPS = 4;

    struct Sources {
        const char *arrays[3];  // h, and the gradients of r and l: [tiles, Tile::TILE_BYTES] bytes.
        const float* inverses;  // Those of their scales: [tiles, 4].
        int tiles, features;
    };

    /// Dynamic shared memory: STAGES stages and a barrier for each.
    GW_DEVICE static void run(char* shared, const Sources& sources, float* partial) {
        const Block64InnerGradients pass(shared, sources);
        if (threadIdx.x == 0) {
            for (int stage = 0; stage < STAGES; ++stage) barrier_init(pass.full + stage, 1);
            barrier_init_fence();
        }
        __syncthreads();
        Block64Halves<A>::run([&](auto first, auto last) { pass.template work<decltype(first)::value, decltype(last)::value>(partial); });
    }

  private:
    char* shared;
    u64* full;  // Whether a stage has been filled.
    const Sources& sources;
    int line, pair;
    int h_column, gradient_column, gradient;  // The warp's first column of h, and of one of the gradients.
    int left, right;           // Where the lane finds its rows of fragments, in a tile.

    GW_DEVICE Block64InnerGradients(char* shared, const Sources& sources) : shared(shared), sources(sources) {
        full = reinterpret_cast<u64*>(shared + Sizes::BARRIERS);
        const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
        line = lane / 4;
        pair = lane % 4;
        h_column = warp % 4 * 16;
        gradient_column = warp / 4 % 2 * 8 * STRIPS;
        gradient = warp / 8;
        left = Tile::offset(lane % 8 + lane / 16 * 8, h_column / 8 + lane / 8 % 2);
        // With two numbers, the upper half of the lanes has low parts, otherwise the next strip.
        right = PRODUCTS == 3 ? Tile::offset(lane % 16, gradient_column / 8) + lane / 16 * PART
                              : Tile::offset(lane % 16, gradient_column / 8 + lane / 16);
    }

    /// The sums of the grades from FIRST to before LAST.
    template <int FIRST, int LAST>
    GW_DEVICE void work(float* partial) const {
        constexpr int BEGIN = tables.first[FIRST];
        const int blocks = gridDim.x, number = blockIdx.x;
        // The block's tile n is `number` + n·blocks.
        const int own = sources.tiles > number ? (sources.tiles - number + blocks - 1) / blocks : 0;
        auto start = [&](int n) {
            if (n >= own || threadIdx.x != 0) return;
            const i64 tile = number + static_cast<i64>(n) * blocks;
            char* const stage = shared + n % STAGES * STAGE;
            u64* const barrier = full + n % STAGES;
            barrier_expect(barrier, 3 * ARRAY + SCALES);
#pragma unroll
            for (int array = 0; array < 3; ++array) {
                bulk_copy(stage + array * ARRAY, sources.arrays[array] + tile * Tile::TILE_BYTES + BEGIN * PLANE, ARRAY, barrier);
            }
            bulk_copy(stage + 3 * ARRAY, sources.inverses + 4 * tile, SCALES, barrier);
        };
        for (int n = 0; n < STAGES - 1; ++n) start(n);
        float sums[LAST - FIRST][STRIPS][4] = {};
#pragma unroll 1
        for (int n = 0; n < own; ++n) {
            barrier_wait(full + n % STAGES, n / STAGES % 2);
            __syncthreads();  // All have read the tile before, whose place the next copies take.
            start(n + STAGES - 1);
            const char* const stage = shared + n % STAGES * STAGE;
            float inverses[4];
            load<4>(reinterpret_cast<const float*>(stage + 3 * ARRAY), inverses);
            const float factor = inverses[0] * (gradient == 0 ? inverses[1] : inverses[2]);
            each<LAST - FIRST>([&](auto index) {
                constexpr int grade = FIRST + decltype(index)::value, begin = tables.first[grade], end = tables.first[grade + 1];
#pragma unroll 1
                for (int blade = begin; blade < end; ++blade) {
                    add(sums[grade - FIRST], shared_address(stage) + (blade - BEGIN) * PLANE, factor);
                }
            });
        }
        partial += (static_cast<i64>(blockIdx.x) * 2 + gradient) * GRADES * sources.features * sources.features;
#pragma unroll
        for (int grade = 0; grade < LAST - FIRST; ++grade) write(sums[grade], partial + (FIRST + grade) * sources.features * sources.features);
    }

    /// Adds the products of the rows of one blade, `from` on.
    GW_DEVICE void add(float (&sums)[STRIPS][4], u32 from, float factor) const {
        const u32 at = from + left, other = from + (1 + gradient) * ARRAY + right;
        u32 a[4];
        load_matrices<true>(a, at);
        if constexpr (PRODUCTS == 3) {
            u32 a_low[4];
            load_matrices<true>(a_low, at + PART);
#pragma unroll
            for (int strip = 0; strip < STRIPS; ++strip) {
                u32 b[4];
                load_matrices<true>(b, other ^ (16 * strip));
                const u32 high[2] = {b[0], b[1]}, low[2] = {b[2], b[3]};
                float step[4] = {};
                mma_16(step, a_low, high, f16{});
                mma_16(step, a, low, f16{});
                mma_16(step, a, high, f16{});
                add_scaled(sums[strip], step, factor);
            }
        } else {
#pragma unroll
            for (int strip = 0; strip < STRIPS; strip += 2) {
                u32 b[4];
                load_matrices<true>(b, other ^ (16 * strip));
#pragma unroll
                for (int n = 0; n < 2; ++n) {
                    const u32 own[2] = {b[2 * n], b[2 * n + 1]};
                    float step[4] = {};
                    mma_16(step, a, own, f16{});
                    add_scaled(sums[strip + n], step, factor);
                }
            }
        }
    }

    GW_DEVICE static void add_scaled(float (&sums)[4], const float (&step)[4], float factor) {
#pragma unroll
        for (int i = 0; i < 4; ++i) sums[i] += step[i] * factor;
    }

    /// Writes the sums of one grade to its place.
    GW_DEVICE void write(const float (&sums)[STRIPS][4], float* place) const {
#pragma unroll
        for (int strip = 0; strip < STRIPS; ++strip) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int row = h_column + line + i / 2 * 8, feature = gradient_column + 8 * strip + 2 * pair + i % 2;
                if (row < sources.features && feature < sources.features) place[row * sources.features + feature] = sums[strip][i];
            }
        }
    }
};
