// Tile products of f32 by TF32 instructions, with the accuracy of f32: 3×TF32.
//
// x = high + low + O(2⁻²⁴x) with high the nearest TF32 number and low the remainder. Of the four products of two such sums, low·low
// is negligible, so R·S = low·high + high·low + high·high. Consumers split R in registers; the assisting warps split S in shared
// memory. The instructions truncate each sum they form, an error that grows with the number of terms (1e-6 after 512). Therefore
// they sum one step of 32 terms at a time, and f32 additions, which round, sum the steps. An infinite operand gives NaN, from
// infinity minus infinity.
#pragma once

#include "mma/hopper.cuh"
#include "ptx/mma.cuh"

template <bool R_ACROSS, bool TRANSPOSED, int STAGES, class P = TileProblem, int BN = 128>
struct HopperExact : Hopper<float, BN, R_ACROSS, false, TRANSPOSED, 1, STAGES, 2, P> {
    using Base = Hopper<float, BN, R_ACROSS, false, TRANSPOSED, 1, STAGES, 2, P>;
    using Base::Base;
    using Base::memory;
    using Base::p;
    using Base::ring;
    static constexpr int SUMS = Base::SUMS, STAGE = Base::STAGE, S_BYTES = Base::S_BYTES, R_BYTES = Base::R_BYTES;
    using Instruction = Wgmma<BN>;

    GW_DEVICE u32 readers() const { return 8; }

    /// Splits S in place: high replaces it, low is stored behind it. Called by each assisting warp.
    GW_DEVICE void assist() const {
        const int thread = threadIdx.x - Base::MULTIPLYING - 32;
        int stage = 0;
        u32 phase = 0;
        for (i32 round = 0; round < this->rounds(); ++round) {
            const i32 own = this->number(round);
            if (own < 0) break;
            const Unit u = this->unit(own);
            for (i32 step = u.begin; step < u.end; ++step) {
                barrier_wait(&ring.full[stage], phase);
                unsigned char* const s = memory + stage * STAGE + R_BYTES;
#pragma unroll 4
                for (int at = thread * 16; at < S_BYTES; at += Base::ASSISTING * 32 * 16) {
                    float values[4], lows[4];
                    ::load<4>(reinterpret_cast<const float*>(s + at), values);
#pragma unroll
                    for (int e = 0; e < 4; ++e) {
                        const float top = nearest_tf32(values[e]);
                        lows[e] = values[e] - top;
                        values[e] = top;
                    }
                    ::store<4>(reinterpret_cast<float*>(s + at), values);
                    ::store<4>(reinterpret_cast<float*>(s + S_BYTES + at), lows);
                }
                shared_fence();
                __syncwarp();
                if (threadIdx.x % 32 == 0) barrier_arrive(&ring.split[stage], 0);
                stage = stage + 1 == STAGES ? 0 : stage + 1;
                phase ^= stage == 0;
            }
        }
    }

    /// Offsets of the four elements of R that a thread needs for the first instruction: rows g and g + 8 of its warp at k = t and
    /// at k = t + 4.
    GW_DEVICE static void places(int row, u32 (&places)[4]) {
        if constexpr (R_ACROSS) {
            Base::places_across(row, places);
        } else {
            const int lane = threadIdx.x % 32;
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const int m = row + lane / 4 + i % 2 * 8;
                places[i] = m * 128 + (i / 2 ^ m % 8) * 16 + lane % 4 * 4;
            }
        }
    }

    /// A consumer warpgroup; `half` selects its 64 rows.
    GW_DEVICE void consume(int half) const {
        consume(half, [&](const Unit& u, int block, const float(&sums)[SUMS]) {
            if (p.boxes) {
                this->template write<float, true>(u, block, sums);
            } else {
                this->template write<float, false>(u, block, sums);
            }
        });
    }

    /// The same; `put(unit, half, sums)` writes the 64 rows of a unit.
    template <class Put>
    GW_DEVICE void consume(int half, Put&& put) const {
        const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
        int stage = 0;
        u32 phase = 0;
        float sums[SUMS], part[SUMS];
        u32 at[4];
        places(half * 64 + warp * 16, at);
        // Warp-uniform; the shuffle makes that visible to the compiler.
        const u32 base = __shfl_sync(0xffffffffu, shared_address(memory), 0);
        const u64 s_high = wgmma_matrix(base + R_BYTES, 1024, Base::PIECE_BYTES);
        for (i32 round = 0; round < this->rounds(); ++round) {
            const i32 own = this->number(round);
            if (own < 0) break;
            const Unit u = this->unit(own);
#pragma unroll
            for (int i = 0; i < SUMS; ++i) sums[i] = 0;
            for (i32 step = u.begin; step < u.end; ++step) {
                barrier_wait(&ring.split[stage], phase);
                const unsigned char* r = memory + stage * STAGE;
                u32 highs[4][4], lows[4][4];
#pragma unroll
                for (int i = 0; i < 4; ++i) {
#pragma unroll
                    for (int e = 0; e < 4; ++e) {
                        const u32 place = R_ACROSS ? at[e] + i * 1024 : at[e] ^ i * 32;
                        const float value = *reinterpret_cast<const float*>(r + place), top = nearest_tf32(value);
                        highs[i][e] = __float_as_uint(top);
                        lows[i][e] = __float_as_uint(value - top);
                    }
                }
                const u64 right = s_high + stage * (STAGE / 16), right_low = right + S_BYTES / 16;
                wgmma_fence();
                // The smallest terms first.
#pragma unroll
                for (int i = 0; i < 4; ++i) Instruction::registers(part, lows[i], right + i * 2, i > 0, float{});
#pragma unroll
                for (int i = 0; i < 4; ++i) Instruction::registers(part, highs[i], right_low + i * 2, true, float{});
#pragma unroll
                for (int i = 0; i < 4; ++i) Instruction::registers(part, highs[i], right + i * 2, true, float{});
                wgmma_commit();
                wgmma_wait<0>();
                if (lane == 0) barrier_arrive(&ring.empty[stage], 0);
                stage = stage + 1 == STAGES ? 0 : stage + 1;
                phase ^= stage == 0;
#pragma unroll
                for (int i = 0; i < SUMS; ++i) sums[i] += part[i];
            }
            this->scale_and_bias(u, half, sums);
            put(u, half, sums);
        }
        store_wait<0>();
    }

    GW_DEVICE static void run(const P& problem) { Base::template run_as<HopperExact>(problem); }
};
