// Dropout of attention weights (Srivastava et al. 2014): which ones, the same for every engine, tile and pass.
//
// One counter of the generator serves 2×4 weights with 16 bits each: those of the queries q and q + 8 and of the keys k, k + 1, k + 8 and
// k + 9, where q is one of the first 8 queries of a block of 16, and k even and one of the first 8 keys of such a block. That is what a
// lane holds of a 16×16 tile of accumulators whose rows are queries. With rows of keys a lane needs parts of eight counters; it computes
// one, and the transposing instruction distributes them.
//
//     counter     q/16·8 + q%8 and k/16·4 + k%8/2, then the two words of the head's stream
//     stream      the first two words of the counter (batch·heads + head, stream)
//     word, half  q/8%2 + 2·(k/8%2), k%2
//
// crates/kernels/src/ops/attention/dropout.rs has the same for the host.
#pragma once

#include "attention/problem.cuh"
#include "gradewise/philox.cuh"

/// The weights that one head drops.
struct Dropping {
    const AttentionDropout& d;
    /// The words of the head's stream, and the threshold of the upper half of a word.
    u32 stream[2], threshold;

    /// `head` counts over all batches.
    GW_DEVICE Dropping(const AttentionDropout& d, i64 head) : d(d), threshold(static_cast<u32>(d.threshold) << 16) { select(head); }

    GW_DEVICE bool on() const { return threshold != 0; }

    /// Goes over to another head.
    GW_DEVICE void select(i64 head) {
        u32 words[4] = {static_cast<u32>(head), static_cast<u32>(head >> 32), static_cast<u32>(d.stream), static_cast<u32>(d.stream >> 32)};
        permute(words);
        stream[0] = words[0];
        stream[1] = words[1];
    }

    GW_DEVICE void permute(u32 (&words)[4]) const {
        philox_rounds(words, [&](int round, int half) { return d.round_keys[2 * round + half]; });
    }

    /// The words of a group of weights, by the 16×16 block and by the place in it.
    GW_DEVICE void draw(int query_block, int key_block, int lane, u32 (&words)[4]) const {
        words[0] = static_cast<u32>(query_block * 8 + lane / 4);
        words[1] = static_cast<u32>(key_block * 4 + lane % 4);
        words[2] = stream[0];
        words[3] = stream[1];
        permute(words);
    }

    /// Whether the weight with these bits is dropped.
    GW_DEVICE bool drops(const u32 (&words)[4], int word, int half) const {
        return (half == 0 ? words[word] << 16 : words[word]) < threshold;
    }

    /// A bit for each weight of a group: half + 2·word.
    GW_DEVICE u32 bits(int query_block, int key_block, int lane) const {
        u32 words[4], result = 0;
        draw(query_block, key_block, lane, words);
#pragma unroll
        for (int i = 0; i < 8; ++i) result |= static_cast<u32>(drops(words, i / 2, i % 2)) << i;
        return result;
    }

    /// Calls f(i, dropped) for each accumulator of a warp's 16 rows from `row` and N/2 columns from `column` on, multiples of 16; rows are
    /// keys or queries. All lanes must call it.
    template <bool OF_KEYS, int N, class F>
    GW_DEVICE void each(int row, int column, F f) const {
        const int lane = threadIdx.x % 32;
#pragma unroll
        for (int block = 0; block < N / 8; ++block) {
            const int rows = row / 16, columns = column / 16 + block;
            u32 words[4];
            draw(OF_KEYS ? columns : rows, OF_KEYS ? rows : columns, lane, words);
            if constexpr (OF_KEYS) {
#pragma unroll
                for (int i = 0; i < 4; ++i) words[i] = transposed(words[i]);
            }
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                const int side = i / 2 % 2, column_half = i / 4;
                f(8 * block + i, drops(words, OF_KEYS ? column_half + 2 * side : side + 2 * column_half, i % 2));
            }
        }
    }

    /// The transpose of an 8×8 matrix of 16-bit elements that a warp holds, two in each lane (sm_80 and later).
    GW_DEVICE static u32 transposed(u32 pair) {
        u32 result;
        asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(result) : "r"(pair));
        return result;
    }
};
