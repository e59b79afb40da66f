// An equivariant map of many rows, and the matrices that it takes: parameters in the order in which instructions have them.
#pragma once

#include "clifford/transformer/equi/equi_tiles.cuh"

/// The matrices of all pairs, or their transposes, in fragments: thread by thread the four elements of an instruction's left operand.
/// TF32 numbers; with EXACT what is left of each follows after those of all pairs. `added` gets what is added to each line of the first
/// pair's results; it is null if nothing is. One thread for an element.
template <bool EXACT>
GW_DEVICE void equi_fragments(const EquiSizes& size, const EquiParameters<const float>& from, const EquiCells& cells, const double* table,
                              bool transposed, float* fragments, float* added) {
    const Direction direction(size, transposed);
    const u32 first = direction.fragments(1), other = direction.fragments(2) - first, all = direction.fragments(size.pairs);
    const u32 step = static_cast<u32>(thread_count());
    if (added != nullptr) {
        for (u32 line = static_cast<u32>(thread_index()); line < direction.lines(0); line += step) {
            added[line] = bias_element<float>(size, from, line);
        }
    }
    for (u32 index = static_cast<u32>(thread_index()); index < all; index += step) {
        const u32 pair = index < first ? 0 : 1 + (index - first) / other, within = index < first ? index : (index - first) % other;
        const u32 terms = direction.terms(pair), fragment = within / FRAGMENT, along = (terms + FRAGMENT_TERMS - 1) / FRAGMENT_TERMS;
        const u32 lane = within / 4 % 32, element = within % 4;
        const u32 line = fragment / along * FRAGMENT_LINES + lane / 4 + element % 2 * 8;
        const u32 term = fragment % along * FRAGMENT_TERMS + lane % 4 + element / 2 * 4;
        float value = 0;
        if (line < direction.lines(pair) && term < terms) {
            const u32 down = transposed ? term : line, across = transposed ? line : term;
            const Part of_line(down, pair == 0 ? size.scalars_out : 0, size.channels_out);
            const Part of_term(across, pair == 0 ? size.scalars_in : 0, size.channels_in);
            const Region<float> region = whole_region_of(size, from, cells, table, pair, of_line.kind, of_term.kind);
            const u32 at = of_line.number * region.line + of_term.number * region.column;
            if (region.at != nullptr) value = region.factor * region.at[at];
            if (region.next < region.end) {
                const EquiEntries entries(table, size);
                for (u32 entry = region.next; entry < region.end; ++entry) {
                    const double* const cell = entries.of_cells + 2 * entry;
                    value += static_cast<float>(cell[1]) * from.weight[at + static_cast<u32>(cell[0])];
                }
            }
        }
        const float nearest = nearest_tf32(value);
        fragments[index] = nearest;
        if constexpr (EXACT) fragments[all + index] = value - nearest;
    }
}

/// Results of the map with what is `added` to lines of the first pair; or with `transposed` the gradient of the features from that of the
/// results. blockIdx.x is a tile of columns, blockIdx.y one of a pair's lines. Rows are a multiple of four, and all lines
/// begin at multiples of 16 bytes. THREADS threads.
///
/// A warp has 32 columns, of which a thread loads four adjacent ones of two terms in each step, one for each of four instructions; and all
/// lines of the tile. Its results are four adjacent columns, too. AHEAD steps of features are under way while as many are multiplied.
template <bool EXACT>
GW_DEVICE void equi_tiles_product(const EquiSizes& size, const EquiParameters<const float>& from, bool transposed, const float* fragments,
                                  const float* added, const EquiSide<const float>& features, const EquiSide<float>& results, u32 rows) {
    constexpr u32 LINES = equi_tiles::LINES, CHUNK = equi_tiles::CHUNK;
    constexpr int DOWN = LINES / FRAGMENT_LINES, AHEAD = equi_tiles::AHEAD;
    static_assert(equi_tiles::COLUMNS == WARPS * 32 && CHUNK % AHEAD == 0, "32 columns for a warp, whole loads of steps in a chunk");
    __shared__ alignas(16) float shared[(EXACT ? 2 : 1) * DOWN * CHUNK * FRAGMENT];
    const Direction direction(size, transposed);
    const PairTiles at(blockIdx.y, tiles_of(direction.lines(0), LINES), tiles_of(direction.lines(1), LINES));
    const u32 terms = direction.terms(at.pair), down = at.tile * LINES;
    const u32 down_end = down + LINES < direction.lines(at.pair) ? down + LINES : direction.lines(at.pair);
    // Terms of which some element is not zero: the map may have no parameters from scalars to planes, or from planes to scalars.
    u32 first_term = 0, end_term = terms;
    if (at.pair == 0) {
        const void* const planes_of_scalars = transposed ? from.to_scalars : from.to_planes;
        const void* const scalars_of_planes = transposed ? from.to_planes : from.to_scalars;
        if (planes_of_scalars == nullptr && down >= direction.scalars_out) first_term = direction.scalars_in;
        if (scalars_of_planes == nullptr && down_end <= direction.scalars_out) end_term = direction.scalars_in;
    }
    const u32 steps = (terms + FRAGMENT_TERMS - 1) / FRAGMENT_TERMS;
    const u32 first_step = first_term / FRAGMENT_TERMS, end_step = (end_term + FRAGMENT_TERMS - 1) / FRAGMENT_TERMS;
    const u32 lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const u32 begin = blockIdx.x * equi_tiles::COLUMNS + threadIdx.x / 32 * 32;
    // Instructions give a thread results of two adjacent columns of eight: of packs t and t + 4 in this order.
    const u32 own = begin + (g / 2 + g % 2 * 4) * WIDE;
    const u32 own_terms = own < rows ? terms : 0;
    const PairLines<const float> lines(features, direction.scalars_in, direction.channels_in, at.pair, rows);
    const float* const own_fragments = fragments + direction.fragments(at.pair) + down / FRAGMENT_LINES * steps * FRAGMENT;
    const auto fetch = [&](u32 step, float (&values)[AHEAD][2][WIDE]) {
#pragma unroll
        for (int s = 0; s < AHEAD; ++s) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const u32 term = (step + s) * FRAGMENT_TERMS + half * 4 + t;
                load_four(term < own_terms, lines(term) + own, values[s][half]);
            }
        }
    };
    float values[AHEAD][2][WIDE], sums[DOWN][4][4];
    fetch(first_step, values);
#pragma unroll
    for (int m = 0; m < 2 * DOWN; ++m) {
        const u32 line = down + m * 8 + g;
        const float value = added != nullptr && at.pair == 0 && line < down_end ? added[line] : 0.0f;
#pragma unroll
        for (int n = 0; n < 4; ++n) sums[m / 2][n][m % 2 * 2] = sums[m / 2][n][m % 2 * 2 + 1] = value;
    }
#pragma unroll 1
    for (u32 chunk = first_step; chunk < end_step; chunk += CHUNK) {
        const u32 chunk_end = chunk + CHUNK < end_step ? chunk + CHUNK : end_step, packs = (chunk_end - chunk) * (FRAGMENT / WIDE);
        if (chunk > first_step) __syncthreads();
        // Lines after the last have no fragments, and their results are not stored.
#pragma unroll
        for (u32 m = 0; m < DOWN; ++m) {
            if (down + m * FRAGMENT_LINES >= down_end) continue;
            const float* const source = own_fragments + (m * steps + chunk) * FRAGMENT;
            float* const target = shared + m * CHUNK * FRAGMENT;
            for (u32 pack = threadIdx.x; pack < packs; pack += THREADS) {
                copy_async_16(target + pack * WIDE, source + pack * WIDE, 16);
                if constexpr (EXACT) {
                    const float* const rest = source + direction.fragments(size.pairs);
                    copy_async_16(target + DOWN * CHUNK * FRAGMENT + pack * WIDE, rest + pack * WIDE, 16);
                }
            }
        }
        copy_async_commit();
        copy_async_wait<0>();
        __syncthreads();
#pragma unroll 1
        for (u32 step = chunk; step < chunk_end; step += AHEAD) {
            float next[AHEAD][2][WIDE];
            fetch(step + AHEAD, next);
            float part[EXACT ? DOWN : 1][4][4] = {};
#pragma unroll
            for (int s = 0; s < AHEAD; ++s) {
                if (s > 0 && step + s >= chunk_end) continue;
                Split<EXACT, 2> right[4];
#pragma unroll
                for (int n = 0; n < 4; ++n) {
                    right[n].set(0, values[s][0][n]);
                    right[n].set(1, values[s][1][n]);
                }
                const float* const own_fragment = shared + (step - chunk + s) * FRAGMENT + lane * WIDE;
#pragma unroll
                for (int m = 0; m < DOWN; ++m) {
                    Split<EXACT, 4> left;
                    float four[WIDE];
                    load<4>(own_fragment + m * CHUNK * FRAGMENT, four);
#pragma unroll
                    for (int i = 0; i < 4; ++i) left.high[i] = __float_as_uint(four[i]);
                    if constexpr (EXACT) {
                        load<4>(own_fragment + (DOWN + m) * CHUNK * FRAGMENT, four);
#pragma unroll
                        for (int i = 0; i < 4; ++i) left.low[i] = __float_as_uint(four[i]);
                    }
                    float(&into)[4][4] = EXACT ? part[m] : sums[m];
#pragma unroll
                    for (int n = 0; n < 4; ++n) add_product<EXACT>(into[n], left, right[n]);
                }
            }
            if constexpr (EXACT) add_parts(sums, part);
#pragma unroll
            for (int s = 0; s < AHEAD; ++s) {
#pragma unroll
                for (int e = 0; e < 2 * WIDE; ++e) values[s][e / WIDE][e % WIDE] = next[s][e / WIDE][e % WIDE];
            }
        }
    }
    const PairLines<float> targets(results, direction.scalars_out, direction.channels_out, at.pair, rows);
#pragma unroll
    for (int m = 0; m < 2 * DOWN; ++m) {
        const u32 line = down + m * 8 + g;
        if (line >= down_end) continue;
        float* const target = targets(line);
#pragma unroll
        for (int pack = 0; pack < 2; ++pack) {
            const u32 column = begin + (t + pack * 4) * WIDE;
            const float(&own_sums)[4][4] = sums[m / 2];
            const int e = m % 2 * 2 + pack;
            if (column < rows) store_four(target + column, own_sums[0][e], own_sums[1][e], own_sums[2][e], own_sums[3][e]);
        }
    }
}
