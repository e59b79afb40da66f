// Attention by the matrix instructions of warpgroups, fed by the copy engine (sm_90a): bf16 and f16, accumulated in f32. The forward
// pass; hopper_backward.cuh has the backward pass.
//
// Blocks are persistent and take tiles of 128 queries, 64 for each of two consumer warpgroups. The producer, the first thread of a
// third warpgroup, copies them and tiles of 128 keys and values into rings, and runs ahead into the next tile of queries. A
// consumer has the scores of the next tile of keys before it multiplies the values of the present one, and computes their softmax
// meanwhile: this keeps both the matrix and the arithmetic units busy, and the two warpgroups fall out of step (Shah et al. 2024,
// arXiv:2407.08608).
#pragma once

#include "attention/dropout.cuh"
#include "attention/hopper_tiles.cuh"

/// Tensor maps of [batch, head, token, feature] in boxes of 64 features by 128 tokens.
struct HopperAttention {
    TensorMap q, k, v;
    Attention p;
};

/// GENERAL: with dropout or packed sequences. Without, a launch has neither.
template <class T, int D, bool GENERAL>
struct AttentionHopper {
    static constexpr int ROWS = attention_hopper::ROWS, KEYS = attention_hopper::KEYS, STAGES = attention_hopper::STAGES;
    static constexpr int QUERIES = 2, MULTIPLYING = 128 * attention_hopper::CONSUMERS;
    /// Registers: as in mma/hopper.cuh.
    static constexpr int FEW = 40, MANY = 232;
    static_assert(128 * FEW + MULTIPLYING * MANY <= 384 * 168, "the block has no more registers");
    static_assert(ROWS == KEYS, "tiles have one size");
    using Tile = AttentionTile<T, D, ROWS>;
    static constexpr int TILE = Tile::BYTES;
    static constexpr int SHARED_BYTES = attention_hopper::shared(ROWS, KEYS, STAGES, D);
    static_assert((QUERIES + 2 * STAGES) * TILE + 1024 <= SHARED_BYTES && SHARED_BYTES <= 227 << 10, "fits a block");
    static constexpr int SCORES = KEYS / 2, OUT = D / 2;
    static constexpr float LOG2_E = 1.4426950408889634f, LN_2 = 0.6931471805599453f;

    struct Barriers {
        u64 full_q[QUERIES], empty_q[QUERIES], full_k[STAGES], empty_k[STAGES], full_v[STAGES], empty_v[STAGES];
    };

    /// A tile of queries, the first key that they see, and the number of tiles of keys from it on.
    struct Unit {
        Place at;
        Visible<T> visible;
        int first, begin, steps;

        GW_DEVICE Unit(const Attention& p, int tiles, int unit, int units)
            : at(p, tiles, p.heads, unit, units), visible(p, at.batch), first(at.tile * ROWS), begin(0) {
            if constexpr (GENERAL) {
                const Span span = Spans<T, false>(p, at.batch, visible.length).any(first, first + ROWS - 1);
                begin = span.begin;
                steps = span.end > begin ? (span.end - begin + KEYS - 1) / KEYS : 0;
            } else {
                steps = (visible.end(first + ROWS) + KEYS - 1) / KEYS;
            }
        }
        GW_DEVICE int key(int step) const { return begin + step * KEYS; }
    };

    /// Positions in the rings: tiles of queries and of keys so far.
    struct Turns {
        u32 queries = 0, keys = 0;

        GW_DEVICE int place() const { return queries % QUERIES; }
        GW_DEVICE u32 parity() const { return queries / QUERIES % 2; }
        GW_DEVICE int stage(int step) const { return (keys + step) % STAGES; }
        GW_DEVICE u32 parity(int step) const { return (keys + step) / STAGES % 2; }
        GW_DEVICE void advance(const Unit& unit) { ++queries, keys += unit.steps; }
    };

    const HopperAttention& h;
    const Attention& p;
    unsigned char *memory, *keys, *values;
    Barriers& barriers;
    int tiles, units;

    GW_DEVICE AttentionHopper(const HopperAttention& h, int tiles, int units, unsigned char* memory)
        : h(h),
          p(h.p),
          memory(memory),
          keys(memory + QUERIES * TILE),
          values(keys + STAGES * TILE),
          barriers(*reinterpret_cast<Barriers*>(values + STAGES * TILE)),
          tiles(tiles),
          units(units) {}

    GW_DEVICE void copy(unsigned char* tile, const TensorMap& map, int token, i64 head, i64 batch, u64* barrier) const {
        barrier_expect(barrier, TILE);
        Tile::copy(tile, map, token, head, batch, barrier);
    }

    /// The producer issues no copy that no consumer waits for.
    GW_DEVICE void produce() const {
        tensor_map_prefetch(h.q);
        tensor_map_prefetch(h.k);
        tensor_map_prefetch(h.v);
        Turns turns;
        for_each_unit(units, [&](int index, int) {
            const Unit unit(p, tiles, index, units);
            const i64 batch = unit.at.batch, shared_head = unit.at.head / p.group;
            barrier_wait(&barriers.empty_q[turns.place()], turns.parity() ^ 1);
            copy(memory + turns.place() * TILE, h.q, unit.first, unit.at.head, batch, &barriers.full_q[turns.place()]);
            for (int step = 0; step < unit.steps; ++step) {
                const int stage = turns.stage(step);
                const u32 parity = turns.parity(step) ^ 1;
                barrier_wait(&barriers.empty_k[stage], parity);
                copy(keys + stage * TILE, h.k, unit.key(step), shared_head, batch, &barriers.full_k[stage]);
                barrier_wait(&barriers.empty_v[stage], parity);
                copy(values + stage * TILE, h.v, unit.key(step), shared_head, batch, &barriers.full_v[stage]);
            }
            turns.advance(unit);
        });
    }

    /// A consumer warpgroup; `half` selects its 64 queries.
    GW_DEVICE void consume(int half) const {
        Turns turns;
        for_each_unit(units, [&](int index, int) {
            const Unit unit(p, tiles, index, units);
            consume(half, unit, turns);
            turns.advance(unit);
        });
    }

    GW_DEVICE void consume(int half, const Unit& unit, const Turns& turns) const {
        const Visible<T>& visible = unit.visible;
        const int first = unit.first, steps = unit.steps;
        const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
        const int row = first + half * 64 + warp * 16 + lane / 4;
        const float infinity = __int_as_float(0x7f800000), scale = static_cast<float>(p.scale) * LOG2_E;
        float greatest[2] = {-infinity, -infinity}, total[2] = {0, 0}, keep[2];
        float s[SCORES], out[OUT] = {};
        u32 weights[KEYS / 16][4];
        // Warp-uniform; the shuffle makes that visible to the compiler.
        const u32 base = __shfl_sync(0xffffffffu, shared_address(memory), 0);
        const u64 q_matrix = Tile::matrix(base + turns.place() * TILE + half * 64 * 128);
        const u64 k_matrix = Tile::matrix(base + QUERIES * TILE);
        const u64 v_matrix = Tile::matrix(base + (QUERIES + STAGES) * TILE);
        const auto multiply_keys = [&](int stage) {
            wgmma_fence();
#pragma unroll
            for (int i = 0; i < D / 16; ++i) {
                const u64 place = Tile::features(i);
                Wgmma<KEYS>::template shared<false, false>(s, q_matrix + place, k_matrix + stage * (TILE / 16) + place, i > 0, T{});
            }
            wgmma_commit();
        };
        const auto multiply_values = [&](int stage) {
            wgmma_fence();
#pragma unroll
            for (int i = 0; i < KEYS / 16; ++i) {
                Wgmma<D>::registers(out, weights[i], v_matrix + stage * (TILE / 16) + Tile::tokens(i), 1, T{});
            }
            wgmma_commit();
        };
        const auto head = [&] { return unit.at.batch * p.heads + unit.at.head; };
        const auto hide = [&](int key) {
            if constexpr (GENERAL) {
                const Spans<T, false> spans(p, unit.at.batch, visible.length);
                const Span all = spans.all(first + half * 64, first + half * 64 + 63);
                if (all.begin <= key && key + KEYS <= all.end) return;
                const Span mine[2] = {spans.of(row), spans.of(row + 8)};
#pragma unroll
                for (int e = 0; e < SCORES; ++e) {
                    const int column = key + e / 4 * 8 + lane % 4 * 2 + e % 2;
                    if (!mine[e / 2 % 2].has(column) || !spans.shown(row, column)) s[e] = -infinity;
                }
            } else if (!visible.whole(first + half * 64, key + KEYS - 1)) {
#pragma unroll
                for (int e = 0; e < SCORES; ++e) {
                    if (!visible.sees(row + e / 2 % 2 * 8, key + e / 4 * 8 + lane % 4 * 2 + e % 2)) s[e] = -infinity;
                }
            }
        };
        const auto softmax = [&](int key) {
            hide(key);
#pragma unroll
            for (int side = 0; side < 2; ++side) {
                float most = greatest[side];
#pragma unroll
                for (int e = 2 * side; e < SCORES; e += 4) most = fmaxf(most, fmaxf(s[e], s[e + 1]));
                most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
                most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
                const float shift = most == -infinity ? 0.0f : most * scale;
                keep[side] = power_of_two(fmaf(greatest[side], scale, -shift));
                greatest[side] = most;
                float sum = 0;
#pragma unroll
                for (int e = 2 * side; e < SCORES; e += 4) {
                    s[e] = power_of_two(fmaf(s[e], scale, -shift));
                    s[e + 1] = power_of_two(fmaf(s[e + 1], scale, -shift));
                    sum += s[e] + s[e + 1];
                }
                total[side] = fmaf(total[side], keep[side], sum);
            }
            if constexpr (GENERAL) {
                if (p.dropout.threshold == 0) return;
                const Dropping dropping(p.dropout, head());
                dropping.template each<false, SCORES>(first + half * 64 + warp * 16, key, [&](int e, bool dropped) {
                    if (dropped) s[e] = 0;
                });
            }
        };
        barrier_wait(&barriers.full_q[turns.place()], turns.parity());
        if (steps > 0) {
            const int begin = turns.stage(0);
            barrier_wait(&barriers.full_k[begin], turns.parity(0));
            multiply_keys(begin);
            wgmma_wait<0>();
            pin(s);
            arrive_as_warp(&barriers.empty_k[begin]);
            softmax(unit.key(0));
            round_operands<T>(s, weights);
            for (int step = 1; step < steps; ++step) {
                const int stage = turns.stage(step), before = turns.stage(step - 1);
                barrier_wait(&barriers.full_k[stage], turns.parity(step));
                multiply_keys(stage);
                barrier_wait(&barriers.full_v[before], turns.parity(step - 1));
                multiply_values(before);
                wgmma_wait<1>();
                pin(s);
                arrive_as_warp(&barriers.empty_k[stage]);
                softmax(unit.key(step));
                wgmma_wait<0>();
                pin(out);
                arrive_as_warp(&barriers.empty_v[before]);
#pragma unroll
                for (int e = 0; e < OUT; ++e) out[e] *= keep[e / 2 % 2];
                round_operands<T>(s, weights);
            }
            const int last = turns.stage(steps - 1);
            barrier_wait(&barriers.full_v[last], turns.parity(steps - 1));
            multiply_values(last);
            wgmma_wait<0>();
            pin(out);
            arrive_as_warp(&barriers.empty_v[last]);
        }
        float* const log_sums = static_cast<float*>(p.log_sums) + head() * p.queries;
#pragma unroll
        for (int side = 0; side < 2; ++side) {
            float sum = total[side];
            sum += __shfl_xor_sync(0xffffffffu, sum, 1);
            sum += __shfl_xor_sync(0xffffffffu, sum, 2);
            float inverse = sum == 0.0f ? 0.0f : 1.0f / sum;
            if constexpr (GENERAL) inverse *= static_cast<float>(p.dropout.kept);
#pragma unroll
            for (int e = 2 * side; e < OUT; e += 4) {
                out[e] *= inverse;
                out[e + 1] *= inverse;
            }
            const int query = row + side * 8;
            if (lane % 4 == 0 && query < p.queries) log_sums[query] = log_sum(greatest[side] * scale * LN_2, sum);
        }
        // After this barrier, no thread of the warpgroup reads the queries any more.
        named_barrier(1 + half, 128);
        const int start = half * 64 + warp * 16;
        T* const target = part(static_cast<T*>(p.out), p.out_steps, unit.at.batch, unit.at.head);
        Tile::write(memory + turns.place() * TILE, start, out, target, p.out_steps.token, first + start, p.queries, p.features);
        // The fence precedes the arrival: the copy engine must see these writes before it overwrites them.
        shared_fence();
        __syncwarp();
        arrive_as_warp(&barriers.empty_q[turns.place()]);
    }

    GW_DEVICE static void run(const HopperAttention& problem, int tiles, int units) {
        // The swizzle needs this alignment, which holds because there is no other shared memory.
        extern __shared__ __align__(1024) unsigned char dynamic[];
        const AttentionHopper block(problem, tiles, units, dynamic);
        if (threadIdx.x == 0) {
            for (int place = 0; place < QUERIES; ++place) {
                barrier_init(&block.barriers.full_q[place], 1);
                barrier_init(&block.barriers.empty_q[place], 8);
            }
            for (int stage = 0; stage < STAGES; ++stage) {
                barrier_init(&block.barriers.full_k[stage], 1);
                barrier_init(&block.barriers.full_v[stage], 1);
                // One arrival per consumer warp.
                barrier_init(&block.barriers.empty_k[stage], 8);
                barrier_init(&block.barriers.empty_v[stage], 8);
            }
            barrier_init_fence();
        }
        __syncthreads();
        if (threadIdx.x >= MULTIPLYING) {
            registers_at_most<FEW>();
            if (threadIdx.x == MULTIPLYING) block.produce();
        } else {
            registers_at_least<MANY>();
            block.consume(threadIdx.x / 128);
        }
    }
};
