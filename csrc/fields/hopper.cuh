// Convolutions of fields by the tile products of mma/hopper.cuh (sm_90a): the copy engine gathers.
//
// Under one tap, a box of target positions meets a box of the source of the same shape, shifted. So a tile of the gathered operand is one
// copy of a box; what lies outside of the field arrives as zeros. The stride is 1, and the groups are one.
//
// The convolution and its adjoint: D[target channel, position] = Σ over tap and source channel of W · source. R is the kernel, S the source.
// The gradient of the kernel: D[target channel, (tap, source channel)] = Σ over positions of target · source.
// Either may be turned: the target's channels are then the columns of D, and R and S change places. Tiles have 128 or 256 rows but any
// multiple of 8 columns, so that turned tiles of 96 or 192 columns fit where the channels would leave rows empty.
// "Channel" here counts the channels of all blades.
#pragma once

#include "mma/hopper_exact.cuh"
#include "ptx/mma.cuh"

/// How fields lie, beside their tensor maps. Axes are numbered from the slowest; a field has the axes [blade, sample, three of space,
/// channel], and its tensor map the same with blade and sample as one.
struct alignas(64) FieldBoxes {
    /// A box has 2^box[axis] positions along each axis, of 2^box[3] samples.
    i32 box[4];
    /// Of the target: boxes, and positions, along each axis.
    i32 across[3], extents[3];
    i32 taps[3];
    /// The source position that target position 0 meets under tap 0, and its advance from one tap to the next.
    i32 first[3], pace[3];
    i32 samples;
    /// Channels of one blade, of the source and of the target. Unless the field has one blade, they fill whole lines of 128 bytes.
    i32 channels, out_channels;
    /// Channels of all blades of the source; in the gradient of the kernel with those that fill up pieces of lines.
    i32 terms;
};

struct FieldTiles : TileProblem {
    FieldBoxes fields;
};

/// A box of target positions: its first position and sample.
struct FieldBox {
    i32 at[3], sample;

    GW_DEVICE FieldBox(const FieldBoxes& f, i32 number) {
#pragma unroll
        for (int axis = 2; axis >= 0; --axis) {
            at[axis] = number % f.across[axis] << f.box[axis];
            number /= f.across[axis];
        }
        sample = number << f.box[3];
    }

    /// The number of position `inside` of this box among those of all samples; -1 outside of the field.
    GW_DEVICE i64 position(const FieldBoxes& f, i32 inside) const {
        i32 place[3];
#pragma unroll
        for (int axis = 2; axis >= 0; --axis) {
            place[axis] = at[axis] + (inside & ((1 << f.box[axis]) - 1));
            inside >>= f.box[axis];
        }
        const i64 in_sample = sample + inside;
        const bool exists = place[0] < f.extents[0] && place[1] < f.extents[1] && place[2] < f.extents[2] && in_sample < f.samples;
        return exists ? ((in_sample * f.extents[0] + place[0]) * f.extents[1] + place[1]) * f.extents[2] + place[2] : -1;
    }

    /// Moves on to the next box in the order of their numbers.
    GW_DEVICE void advance(const FieldBoxes& f) {
#pragma unroll
        for (int axis = 2; axis >= 0; --axis) {
            at[axis] += 1 << f.box[axis];
            if (at[axis] < f.extents[axis]) return;
            at[axis] = 0;
        }
        sample += 1 << f.box[3];
    }
};

/// The convolution and its adjoint. `Engine` is Hopper or HopperExact with both operands along k; a unit's column counts boxes of BN
/// positions, or if TURNED its row boxes of BM; its steps go through the taps and within them through the source's channels.
template <class Engine, bool TURNED = false>
struct FieldForward : Engine {
    using Engine::Engine;
    using Engine::memory;
    using Engine::p;
    using Engine::ring;
    using T = typename Engine::Element;
    static constexpr int BM = Engine::BM, BN = Engine::BN, BK = Engine::BK, SUMS = Engine::SUMS;
    static constexpr int R_BYTES = Engine::R_BYTES, STAGE = Engine::STAGE;
    /// Results on their way out lie in lines of one position.
    static constexpr int WIDE = 16 / sizeof(T);

    GW_DEVICE FieldBox box_of(const Unit& u) const { return FieldBox(p.fields, TURNED ? u.row / BM : u.column / BN); }

    GW_DEVICE void produce() const {
        tensor_map_prefetch(p.r);
        tensor_map_prefetch(p.s);
        const FieldBoxes& f = p.fields;
        int stage = 0;
        u32 phase = 0;
        for (i32 round = 0; round < this->rounds(); ++round) {
            const i32 own = this->number(round);
            if (own < 0) break;
            const Unit u = this->unit(own);
            const FieldBox box = box_of(u);
            // Places of tap 0, then of the taps that follow.
            i32 x = box.at[2] + f.first[2], y = box.at[1] + f.first[1], z = box.at[0] + f.first[0];
            i32 tap = 0, left_x = f.taps[2], left_y = f.taps[1];
            i32 channel = 0, term = 0, plane = box.sample;
            for (i32 step = u.begin; step < u.end; ++step) {
                barrier_wait(&ring.empty[stage], phase ^ 1);
                u64* full = &ring.full[stage];
                barrier_expect(full, R_BYTES + BN * 128);
                unsigned char* r = memory + stage * STAGE;
                if constexpr (TURNED) {
                    copy_box(r, p.r, channel, x, y, z, plane, full);
                    copy_box(r + R_BYTES, p.s, term, u.column, tap, full);
                } else {
                    copy_box(r, p.r, term, u.row, tap, full);
                    copy_box(r + R_BYTES, p.s, channel, x, y, z, plane, full);
                }
                stage = stage + 1 == Engine::STAGE_COUNT ? 0 : stage + 1;
                phase ^= stage == 0;
                channel += BK;
                term += BK;
                if (channel < f.channels) continue;
                channel = 0;
                plane += f.samples;
                if (term < f.terms) continue;
                term = 0;
                plane = box.sample;
                ++tap;
                x += f.pace[2];
                if (--left_x > 0) continue;
                left_x = f.taps[2];
                x = box.at[2] + f.first[2];
                y += f.pace[1];
                if (--left_y > 0) continue;
                left_y = f.taps[1];
                y = box.at[1] + f.first[1];
                z += f.pace[0];
            }
        }
    }

    GW_DEVICE void consume(int half) const {
        Engine::consume(half, [&](const Unit& u, int block, const float(&sums)[SUMS]) {
            if constexpr (TURNED) {
                put_positions(u, block, sums);
            } else {
                put_channels(u, block, sums);
            }
        });
    }

    /// Where channel `channel` of all blades lies in the target at its first position.
    GW_DEVICE T* target(i32 channel) const {
        const FieldBoxes& f = p.fields;
        const i32 blade = channel / f.out_channels;
        const i64 positions = static_cast<i64>(f.samples) * f.extents[0] * f.extents[1] * f.extents[2];
        return static_cast<T*>(p.c) + blade * positions * f.out_channels + (channel - blade * f.out_channels);
    }

    /// Writes a block of 64 positions of the unit's box, and the unit's BN channels, by way of shared memory, where whole packs are brought
    /// together. All threads of the warpgroup call it.
    GW_DEVICE void put_positions(const Unit& u, int block, const float (&sums)[SUMS]) const {
        constexpr int COLUMNS = 128 / sizeof(T), PACKS = 8, AT_ONCE = 128 / PACKS;
        static_assert(BN % COLUMNS == 0, "tiles are whole lines");
        const FieldBoxes& f = p.fields;
        const int half = block / Engine::BLOCKS;
        const int thread = threadIdx.x % 128, warp = thread / 32, lane = thread % 32, g = lane / 4, t = lane % 4;
        const FieldBox box = box_of(u);
        unsigned char* const lines = memory + Engine::RING_BYTES + half * Engine::OUT_BYTES;
        const int pack = thread % PACKS;
#pragma unroll
        for (int first = 0; first < BN; first += COLUMNS) {
            // All have read what was there before.
            named_barrier(1 + half, 128);
#pragma unroll
            for (int e = 0; e < COLUMNS / 2; e += 2) {
                // Two adjacent channels of a position.
                const int column = e / 4 * 8 + 2 * t, line = warp * 16 + g + e / 2 % 2 * 8;
                const float values[2] = {sums[first / 2 + e], sums[first / 2 + e + 1]};
                ::store<2>(reinterpret_cast<T*>(lines + line * 128 + (column / WIDE ^ line % 8) * 16) + column % WIDE, values);
            }
            named_barrier(1 + half, 128);
            i32 channel = u.column + first + pack * WIDE;
            // Places of channels are computed again for each block: kept from the one before, they would not fit beside its sums.
            asm volatile("" : "+r"(channel));
            if (channel >= p.columns) continue;
            T* const start = target(channel);
            // Unrolled, its addresses would not fit beside the sums.
#pragma unroll 1
            for (int line = thread / PACKS; line < 64; line += AT_ONCE) {
                const i64 position = box.position(f, block * 64 + line);
                const Pack<u32, 4> values = *reinterpret_cast<const Pack<u32, 4>*>(lines + line * 128 + (pack ^ line % 8) * 16);
                if (position >= 0) *reinterpret_cast<Pack<u32, 4>*>(start + position * f.out_channels) = values;
            }
        }
    }

    /// Writes a warpgroup's 64 channels at the positions of the unit's box, by way of shared memory, where the channels of a position are
    /// brought together. All threads of the warpgroup call it.
    GW_DEVICE void put_channels(const Unit& u, int half, const float (&sums)[SUMS]) const {
        constexpr int LINE = 64 * sizeof(T), LINES = Engine::BOX_BYTES / LINE;
        constexpr int PACKS = LINE / 16, AT_ONCE = 128 / PACKS;
        const FieldBoxes& f = p.fields;
        const int thread = threadIdx.x % 128, warp = thread / 32, lane = thread % 32, g = lane / 4, t = lane % 4;
        const FieldBox box = box_of(u);
        // Every thread writes the same channels of all its positions.
        const int pack = thread % PACKS;
        const i32 channel = u.row + half * 64 + pack * WIDE;
        T* const start = target(channel);
#pragma unroll
        for (int first = 0; first < BN; first += LINES) {
            // Two buffers in turn: nobody reads this one any more, because all threads were at the barrier after that.
            unsigned char* const lines = memory + Engine::RING_BYTES + half * Engine::OUT_BYTES + first / LINES % 2 * Engine::BOX_BYTES;
            const auto place = [&](int line, int piece) { return lines + line * LINE + (piece ^ line % 8) * 16; };
            if constexpr (sizeof(T) == 2) {
#pragma unroll
                for (int j = 0; j < LINES; j += 16) {
                    u32 words[4];
#pragma unroll
                    for (int i = 0; i < 4; ++i) words[i] = word(sums[(first + j) / 2 + 2 * i], sums[(first + j) / 2 + 2 * i + 1]);
                    store_transposed(place(j + lane / 16 * 8 + lane % 8, warp * 2 + lane / 8 % 2), words);
                }
            } else {
#pragma unroll
                for (int e = 0; e < LINES / 2; ++e) {
                    const int line = e / 4 * 8 + 2 * t + e % 2, i = warp * 16 + g + e / 2 % 2 * 8;
                    *(reinterpret_cast<float*>(place(line, i / 4)) + i % 4) = sums[first / 2 + e];
                }
            }
            named_barrier(1 + half, 128);
            // Unrolled, its addresses would not fit beside the sums.
#pragma unroll 1
            for (int i = 0; i < LINES / AT_ONCE; ++i) {
                const int line = thread / PACKS + i * AT_ONCE;
                const i64 position = box.position(f, first + line);
                const Pack<u32, 4> values = *reinterpret_cast<const Pack<u32, 4>*>(place(line, pack));
                if (position >= 0 && channel < p.rows) *reinterpret_cast<Pack<u32, 4>*>(start + position * f.out_channels) = values;
            }
        }
    }

    /// Two elements side by side, the first in the low half.
    GW_DEVICE static u32 word(float low, float high) {
        return narrow<T>(low).bits | static_cast<u32>(narrow<T>(high).bits) << 16;
    }

    GW_DEVICE static void run(const FieldTiles& problem) { Engine::template run_as<FieldForward>(problem); }
};

/// The gradient of the kernel. Steps count boxes of BK positions. `Engine` is, in 16 bits, Hopper with both operands across k; D may be
/// turned. Instructions in f32 take S along k alone; then D is turned, R is the source and S the transposed target, [channel, sample, three
/// of space]: the copy engine takes shifted boxes only along axes other than the innermost, and it is the source that is shifted.
template <class Engine, bool TURNED = false>
struct FieldGradient : Engine {
    using Engine::Engine;
    using Engine::memory;
    using Engine::p;
    using Engine::ring;
    using T = typename Engine::Element;
    static constexpr int BM = Engine::BM, BN = Engine::BN;
    static constexpr int R_BYTES = Engine::R_BYTES, STAGE = Engine::STAGE;
    static constexpr bool S_ALONG = sizeof(T) == 4;
    static_assert(TURNED || !S_ALONG, "the operand along k is the target");
    /// Tiles across k come in pieces of as many channels. Each piece has a thread of the producing warp that keeps where it lies; the
    /// first thread makes all copies.
    static constexpr int PIECE = Engine::PIECE, PIECE_BYTES = Engine::PIECE_BYTES;
    static constexpr int R_PIECES = BM / PIECE, PIECES = R_PIECES + (S_ALONG ? 0 : BN / PIECE), PRODUCERS = 32;
    static_assert(PIECES <= PRODUCERS, "one warp produces");

    GW_DEVICE void produce() const {
        const FieldBoxes& f = p.fields;
        const int thread = threadIdx.x - Engine::MULTIPLYING;
        const bool left = thread < R_PIECES, shifted = left == TURNED;
        if (thread == 0) {
            tensor_map_prefetch(p.r);
            tensor_map_prefetch(p.s);
        }
        int stage = 0;
        u32 phase = 0;
        for (i32 round = 0; round < this->rounds(); ++round) {
            const i32 own = this->number(round);
            if (own < 0) break;
            const Unit u = this->unit(own);
            FieldBox box(f, u.begin);
            i32 term = left ? u.row + thread * PIECE : u.column + (thread - R_PIECES) * PIECE, shift[3] = {};
            if (shifted) {
                i32 tap = term / f.terms;
                term -= tap * f.terms;
#pragma unroll
                for (int axis = 2; axis >= 0; --axis) {
                    // Past the last tap lie results that nobody reads.
                    shift[axis] = f.first[axis] + tap % f.taps[axis] * f.pace[axis];
                    tap /= f.taps[axis];
                }
            }
            const i32 per_blade = shifted ? f.channels : f.out_channels, blade = term / per_blade;
            const i32 channel = term - blade * per_blade, plane = blade * f.samples;
            for (i32 step = u.begin; step < u.end; ++step) {
                barrier_wait(&ring.empty[stage], phase ^ 1);
                u64* full = &ring.full[stage];
                if (thread == 0) barrier_expect(full, R_BYTES + BN * 128);
                unsigned char* const tiles = memory + stage * STAGE;
#pragma unroll
                for (int piece = 0; piece < PIECES; ++piece) {
                    const auto of_piece = [&](i32 value) { return __shfl_sync(0xffffffffu, value, piece); };
                    const bool in_r = piece < R_PIECES;
                    const i32 c = of_piece(channel), sample = of_piece(plane) + box.sample;
                    i32 x = box.at[2], y = box.at[1], z = box.at[0];
                    if (in_r == TURNED) {
                        x += of_piece(shift[2]);
                        y += of_piece(shift[1]);
                        z += of_piece(shift[0]);
                    }
                    if (thread == 0) copy_box(tiles + piece * PIECE_BYTES, in_r ? p.r : p.s, c, x, y, z, sample, full);
                }
                if (S_ALONG && thread == 0) copy_box(tiles + R_BYTES, p.s, box.at[2], box.at[1], box.at[0], box.sample, u.column, full);
                box.advance(f);
                stage = stage + 1 == Engine::STAGE_COUNT ? 0 : stage + 1;
                phase ^= stage == 0;
            }
        }
    }

    GW_DEVICE static void run(const FieldTiles& problem) { Engine::template run_as<FieldGradient>(problem); }
};
