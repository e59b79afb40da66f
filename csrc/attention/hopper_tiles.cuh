// Tiles of attention in shared memory (sm_90a): how the copy engine writes them, matrix instructions read them, and results leave.
//
// A tile has some tokens of D features. It consists of pieces, 64 features of all tokens in swizzled lines of 128 bytes.
#pragma once

#include "attention/problem.cuh"
#include "attention/rounding.cuh"
#include "ptx/mma.cuh"
#include "ptx/tensor_map.cuh"
#include "ptx/wgmma.cuh"

template <class T, int D, int TOKENS>
struct AttentionTile {
    static constexpr int PIECES = D / 64, PIECE = TOKENS * 128, BYTES = PIECES * PIECE;

    /// Starts copying the tile from `token` on; elements outside the tensor become zeros. `barrier` counts BYTES, which somebody
    /// must have announced.
    GW_DEVICE static void copy(unsigned char* tile, const TensorMap& map, int token, i64 head, i64 batch, u64* barrier) {
#pragma unroll
        for (int i = 0; i < PIECES; ++i) {
            copy_box(tile + i * PIECE, map, i * 64, token, static_cast<i32>(head), static_cast<i32>(batch), barrier);
        }
    }

    GW_DEVICE static u64 matrix(u32 address) { return wgmma_matrix(address, 1024, PIECE); }

    /// What to add to a matrix for the 16 features from 16·i on.
    GW_DEVICE static constexpr u64 features(int i) { return i / 4 * (PIECE / 16) + i % 4 * 2; }

    /// What to add to a matrix for the 16 tokens from 16·i on.
    GW_DEVICE static constexpr u64 tokens(int i) { return i * (16 * 128 / 16); }

    /// Reads a warp's 16 tokens from `start` on: left operands of matrix instructions, features are k.
    GW_DEVICE static void read(const unsigned char* tile, int start, u32 (&operands)[D / 16][4]) {
        const int line = start + threadIdx.x % 16, half = threadIdx.x % 32 / 16;
#pragma unroll
        for (int i = 0; i < D / 16; ++i) {
            const int chunk = 2 * i + half;
            load_matrices<false>(operands[i], tile + chunk / 8 * PIECE + line * 128 + (chunk % 8 ^ line % 8) * 16);
        }
    }

    /// Writes a warp's 16 rows of a result to the tokens from `token` on, by way of lines `start` to `start + 15` of the tile, which
    /// nobody reads any more. `target` is the result's head.
    GW_DEVICE static void write(unsigned char* tile, int start, const float (&out)[D / 2], T* target, i64 token_step, int token,
                                i64 token_count, i64 features) {
        const int lane = threadIdx.x % 32;
        const auto place = [&](int line, int chunk) {
            return tile + chunk / 8 * PIECE + (start + line) * 128 + (chunk % 8 ^ line % 8) * 16;
        };
#pragma unroll
        for (int i = 0; i < D / 4; ++i) {
            const int line = lane / 4 + i % 2 * 8;
            *reinterpret_cast<u32*>(place(line, i / 2) + lane % 4 * 4) = pair(out[2 * i], out[2 * i + 1], T{});
        }
        __syncwarp();
#pragma unroll
        for (int i = 0; i < 16 * D / 8 / 32; ++i) {
            const int e = lane + 32 * i, line = e / (D / 8), chunk = e % (D / 8);
            const Pack<u32, 4> values = *reinterpret_cast<const Pack<u32, 4>*>(place(line, chunk));
            if (token + line < token_count && chunk * 8 < features) {
                *reinterpret_cast<Pack<u32, 4>*>(target + (token + line) * token_step + chunk * 8) = values;
            }
        }
    }
};

/// Keeps the compiler from reading registers that matrix instructions write before they have finished.
template <int N>
GW_DEVICE void pin(float (&values)[N]) {
#pragma unroll
    for (int i = 0; i < N; ++i) asm volatile("" : "+f"(values[i])::"memory");
}

/// Keeps the compiler from computing what depends on this matrix ahead of the loop, and holding it in registers.
GW_DEVICE void keep_here(u64& matrix) { asm volatile("" : "+l"(matrix)); }

/// Rounds accumulators to left operands of matrix instructions: columns become k.
template <class T, int N>
GW_DEVICE void round_operands(const float (&values)[N], u32 (&operands)[N / 8][4]) {
#pragma unroll
    for (int i = 0; i < N / 2; ++i) operands[i / 4][i % 4] = pair(values[2 * i], values[2 * i + 1], T{});
}

/// A warp's arrival at a barrier that counts warps.
GW_DEVICE void arrive_as_warp(u64* barrier) {
    if (threadIdx.x % 32 == 0) barrier_arrive(barrier);
}

/// Calls `f` with each unit of this persistent block, and the number of units before it. Units are in order of length, the longest
/// first; rounds alternate in direction, so that no block gets the longest of each.
template <class F>
GW_DEVICE void for_each_unit(int units, F f) {
#pragma unroll 1
    for (int round = 0;; ++round) {
        const int unit = round * gridDim.x + (round % 2 == 0 ? blockIdx.x : gridDim.x - 1 - blockIdx.x);
        // No later round has a unit either: only the last round is not full.
        if (unit >= units) break;
        f(unit, round);
    }
}
