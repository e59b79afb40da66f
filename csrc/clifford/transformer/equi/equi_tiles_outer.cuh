// Gradients of the matrices of an equivariant map of many rows: a tile of a pair's matrix, summed over a stretch of the rows.
#pragma once

#include "clifford/transformer/equi/equi_tiles.cuh"

/// The gradients of both matrices, and with `bias` the sums over rows of the first pair's gradients, of a stretch of `share` steps of
/// rows: blockIdx.y. blockIdx.x is a tile of a pair's matrix. Parts of the matrices follow each other in `parts` [stretches, all
/// elements]; elements that map scalars to planes or back are not written where there are no such parameters. Rows are a multiple of four,
/// and all lines begin at multiples of 16 bytes. THREADS threads.
///
/// Both operands go from memory to registers: a warp has sixteen rows at a time, of which a thread loads four adjacent ones of its lines.
/// The warps' sums are added in order at the end.
template <bool EXACT>
GW_DEVICE void equi_tiles_outer(const Places& places, const EquiParameters<const float>& from, const EquiSide<const float>& features,
                                const EquiSide<const float>& grad, float* parts, float* bias, u32 rows, u32 share) {
    constexpr u32 LINES = equi_tiles::LINES, ACROSS = equi_tiles::ACROSS, PITCH = ACROSS + 8;
    constexpr int DOWN = LINES / FRAGMENT_LINES, COLUMNS = ACROSS / 8, STEP = equi_tiles::STEP, OWN = STEP / WARPS;
    static_assert(OWN == 4 * WIDE, "four threads share the rows of a step");
    __shared__ alignas(8) float shared[WARPS][LINES * PITCH];
    __shared__ float totals[WARPS][LINES];
    const EquiSizes& size = places.size;
    const u32 first_across = tiles_of(places.top_in(), ACROSS), first_tiles = tiles_of(places.top_out(), LINES) * first_across;
    const u32 other_across = tiles_of(2 * size.channels_in, ACROSS);
    const PairTiles at(blockIdx.x, first_tiles, tiles_of(2 * size.channels_out, LINES) * other_across);
    const bool is_first = at.pair == 0;
    const u32 height = is_first ? places.top_out() : 2 * size.channels_out, width = is_first ? places.top_in() : 2 * size.channels_in;
    const u32 in_line = is_first ? first_across : other_across;
    const u32 down = at.tile / in_line * LINES, across = at.tile % in_line * ACROSS;
    const u32 down_end = down + LINES < height ? down + LINES : height, across_end = across + ACROSS < width ? across + ACROSS : width;
    const bool adds = bias != nullptr && is_first && across == 0;
    const bool is_needed = !is_zero(from.to_planes, from.to_scalars, down, down_end, is_first ? size.scalars_out : 0, across, across_end,
                                    is_first ? size.scalars_in : 0);
    if (!is_needed && !adds) return;
    const u32 steps = (rows + STEP - 1) / STEP;
    const u32 begin = blockIdx.y * share, end = begin + share < steps ? begin + share : steps;
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
    // The gradient's scalars and planes are one array.
    const float* const own_grad = PairLines<const float>(grad, size.scalars_out, size.channels_out, at.pair, rows)(down + g);
    const PairLines<const float> own_features(features, size.scalars_in, size.channels_in, at.pair, rows);
    const float* right_lines[COLUMNS];
#pragma unroll
    for (int n = 0; n < COLUMNS; ++n) {
        const u32 line = across + n * 8 + g;
        right_lines[n] = line < across_end ? own_features(line) : nullptr;
    }
    float sums[DOWN][COLUMNS][4] = {}, total[2 * DOWN] = {};
    float of_grad[2 * DOWN][WIDE], of_features[COLUMNS][WIDE];
    const auto fetch = [&](u32 step, float (&of_grad)[2 * DOWN][WIDE], float (&of_features)[COLUMNS][WIDE]) {
        const u32 row = step * STEP + warp * OWN + t * WIDE;
        const bool there = step < end && row < rows;
#pragma unroll
        for (int m = 0; m < 2 * DOWN; ++m) {
            load_four(there && down + m * 8 + g < down_end, own_grad + (static_cast<u64>(m * 8) * rows + row), of_grad[m]);
        }
#pragma unroll
        for (int n = 0; n < COLUMNS; ++n) load_four(there && right_lines[n] != nullptr, right_lines[n] + row, of_features[n]);
    };
    fetch(begin, of_grad, of_features);
#pragma unroll 1
    for (u32 step = begin; step < end; ++step) {
        float next_grad[2 * DOWN][WIDE], next_features[COLUMNS][WIDE];
        fetch(step + 1, next_grad, next_features);
        if (adds) {
#pragma unroll
            for (int m = 0; m < 2 * DOWN; ++m) total[m] += (of_grad[m][0] + of_grad[m][1]) + (of_grad[m][2] + of_grad[m][3]);
        }
        float part[EXACT ? DOWN : 1][COLUMNS][4] = {};
        // Which of the rows an instruction's term is, is free as long as both operands agree.
#pragma unroll
        for (int k = 0; k < WIDE; k += 2) {
            Split<EXACT, 2> right[COLUMNS];
#pragma unroll
            for (int n = 0; n < COLUMNS; ++n) {
                right[n].set(0, of_features[n][k]);
                right[n].set(1, of_features[n][k + 1]);
            }
#pragma unroll
            for (int m = 0; m < DOWN; ++m) {
                if (down + m * FRAGMENT_LINES >= down_end) continue;
                Split<EXACT, 4> left;
#pragma unroll
                for (int i = 0; i < 4; ++i) left.set(i, of_grad[2 * m + i % 2][k + i / 2]);
                float(&into)[COLUMNS][4] = EXACT ? part[m] : sums[m];
#pragma unroll
                for (int n = 0; n < COLUMNS; ++n) add_product<EXACT>(into[n], left, right[n]);
            }
        }
        if constexpr (EXACT) add_parts(sums, part);
#pragma unroll
        for (int e = 0; e < WIDE; ++e) {
#pragma unroll
            for (int m = 0; m < 2 * DOWN; ++m) of_grad[m][e] = next_grad[m][e];
#pragma unroll
            for (int n = 0; n < COLUMNS; ++n) of_features[n][e] = next_features[n][e];
        }
    }
#pragma unroll
    for (int m = 0; m < DOWN; ++m) {
#pragma unroll
        for (int n = 0; n < COLUMNS; ++n) {
#pragma unroll
            for (int e = 0; e < 4; e += 2) {
                float* const target = &shared[warp][(m * FRAGMENT_LINES + g + e / 2 * 8) * PITCH + n * 8 + 2 * t];
                *reinterpret_cast<float2*>(target) = make_float2(sums[m][n][e], sums[m][n][e + 1]);
            }
        }
    }
    if (adds) {
#pragma unroll
        for (int m = 0; m < 2 * DOWN; ++m) {
            total[m] += __shfl_xor_sync(0xffffffffu, total[m], 1);
            total[m] += __shfl_xor_sync(0xffffffffu, total[m], 2);
            if (t == 0) totals[warp][m * 8 + g] = total[m];
        }
    }
    __syncthreads();
    if (adds && threadIdx.x < LINES && down + threadIdx.x < down_end) {
        float sum = totals[0][threadIdx.x];
#pragma unroll
        for (int w = 1; w < WARPS; ++w) sum += totals[w][threadIdx.x];
        bias[blockIdx.y * static_cast<i64>(places.top_out()) + down + threadIdx.x] = sum;
    }
    if (!is_needed) return;
    float* const target = parts + blockIdx.y * static_cast<i64>(places.all()) +
                          (is_first ? 0 : places.first() + (at.pair - 1) * height * width);
#pragma unroll 4
    for (u32 element = threadIdx.x; element < LINES * ACROSS; element += THREADS) {
        const u32 line = down + element / ACROSS, column = across + element % ACROSS;
        const u32 place = element / ACROSS * PITCH + element % ACROSS;
        float sum = shared[0][place];
#pragma unroll
        for (int w = 1; w < WARPS; ++w) sum += shared[w][place];
        if (line < down_end && column < across_end) target[line * width + column] = sum;
    }
}
