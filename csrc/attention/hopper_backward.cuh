// Attention's backward pass by the matrix instructions of warpgroups, fed by the copy engine (sm_90a): bf16 and f16, accumulated
// in f32.
//
// A block keeps a tile of tokens, its rows: queries for the gradient of Q, keys for those of K and V. The tokens on the other side,
// the columns, pass by in tiles of 64. Both kinds of tokens have two operands: queries Q and the output's gradient G, keys K and V.
// With A, B the operands of the rows and C, E those of the columns, each step is
//
//     weight = exp(scale·A·Cᵀ - log_sum)      slope = weight ∘ (B·Eᵀ - delta)·scale
//     first gradient (of A) += slope·C        second gradient (of B) += weight·E, for rows of keys
//
// Weights and slopes stay in registers: rounded accumulators are the left operands of the products with C and E. Each gradient has
// one writer and one order of its sums, so its bits do not depend on the schedule; the price is that both kernels compute A·Cᵀ and
// B·Eᵀ, 7 products instead of 5.
//
// Blocks are persistent. Two or three consumer warpgroups have 64 rows each. Another warpgroup produces: its first thread starts
// copies, and its second warp writes log_sum and delta of columns of queries. A consumer computes weights during B·Eᵀ, slopes
// during weight·E, and starts A·Cᵀ of the next step before the products of this one have finished; besides, the consumers fall out
// of step.
#pragma once

#include "attention/dropout.cuh"
#include "attention/hopper_tiles.cuh"

/// Tensor maps of [batch, head, token, feature]: of both operands of the rows and of the columns, in boxes of 64 features by as
/// many tokens as a tile of them has.
struct HopperAttentionBackward {
    TensorMap rows[2], columns[2];
    Attention p;
};

/// OF_KEYS: whether rows are keys, else queries. GENERAL: with dropout or packed sequences; without, a launch has neither.
template <class T, int D, bool OF_KEYS, bool GENERAL>
struct AttentionHopperBackward {
    /// Consumer warpgroups, of 64 rows each: three where their registers allow it.
    static constexpr int CONSUMERS = attention_hopper::backward_consumers(OF_KEYS, D);
    /// Whether the operands of the rows stay in registers, which leaves more of shared memory's bandwidth for those of the columns.
    static constexpr bool ROWS_IN_REGISTERS = OF_KEYS == (D == 64);
    static constexpr int ROWS = attention_hopper::backward_rows(OF_KEYS, D);
    static constexpr int COLUMNS = attention_hopper::BACKWARD_COLUMNS, STAGES = attention_hopper::BACKWARD_STAGES;
    static constexpr int MULTIPLYING = 128 * CONSUMERS, THREADS = attention_hopper::threads(CONSUMERS);
    /// Registers of a producer and of a consumer: as in mma/hopper.cuh.
    static constexpr int FEW = CONSUMERS == 3 ? 32 : 24, MANY = CONSUMERS == 3 ? 160 : 240;
    static_assert(128 * FEW + MULTIPLYING * MANY <= THREADS * (65536 / THREADS / 8 * 8), "the block has no more registers");
    using RowTile = AttentionTile<T, D, ROWS>;
    using ColumnTile = AttentionTile<T, D, COLUMNS>;
    static constexpr int SCORES = COLUMNS / 2, OUT = D / 2;
    static constexpr float LOG2_E = 1.4426950408889634f;

    struct Barriers {
        u64 full_rows, empty_rows, full[STAGES], empty[STAGES];
    };
    /// Of columns that are queries: log_sum in units of log 2, and delta times scale.
    struct Lines {
        float log_sums[OF_KEYS ? STAGES : 1][COLUMNS], deltas[OF_KEYS ? STAGES : 1][COLUMNS];
    };
    /// A tile of rows, and the columns that it sees.
    struct Unit {
        int batch, head, first;
        /// Number of keys of the batch.
        int length;
        /// The columns from `begin` to before `end`, of each head that shares these keys, and the steps of all heads.
        int begin, end, steps;

        Unit() = default;
        GW_DEVICE Unit(const Attention& p, int tiles, int unit, int units) {
            const Place at(p, tiles, OF_KEYS ? p.heads / p.group : p.heads, unit, units);
            batch = static_cast<int>(at.batch);
            head = static_cast<int>(at.head);
            const Visible<T> visible(p, batch);
            length = visible.length;
            if constexpr (OF_KEYS) {
                // Under the causal mask the first keys have the most queries.
                first = (p.causal ? tiles - 1 - at.tile : at.tile) * ROWS;
                begin = visible.begin(first) / COLUMNS * COLUMNS;
                end = first < length ? static_cast<int>(p.queries) : 0;
            } else {
                first = at.tile * ROWS;
                begin = 0;
                end = visible.end(first + ROWS);
            }
            if constexpr (GENERAL) {
                const Span span = Spans<T, OF_KEYS>(p, batch, length).any(first, first + ROWS - 1);
                begin = span.begin;
                end = span.end;
            }
            const int each = end > begin ? (end - begin + COLUMNS - 1) / COLUMNS : 0;
            steps = OF_KEYS ? each * static_cast<int>(p.group) : each;
        }
    };

    struct Memory {
        unsigned char rows[2][RowTile::BYTES];
        unsigned char columns[STAGES][2][ColumnTile::BYTES];
        Lines lines;
        Barriers barriers;
        /// That of the rows. Consumers read its numbers where they need them, for lack of registers.
        Unit unit;
    };
    static_assert(sizeof(Lines) + sizeof(Barriers) + sizeof(Unit) <= 2048, "what the launcher asks for beside the tiles");
    static_assert(sizeof(Memory) <= 227 << 10, "fits a block");

    /// The tile of columns of a step.
    struct Columns {
        int head, first;

        GW_DEVICE Columns(const Attention& p, const Unit& unit)
            : head(OF_KEYS ? unit.head * static_cast<int>(p.group) : unit.head / static_cast<int>(p.group)), first(unit.begin) {}

        GW_DEVICE void advance(const Unit& unit) {
            first += COLUMNS;
            if (OF_KEYS && first >= unit.end) first = unit.begin, ++head;
        }
    };

    /// Positions of the barriers of columns: steps of all units before this one.
    struct Turns {
        u32 steps = 0;

        GW_DEVICE int stage(int step) const { return (steps + step) % STAGES; }
        GW_DEVICE u32 parity(int step) const { return (steps + step) / STAGES % 2; }
    };

    const HopperAttentionBackward& h;
    const Attention& p;
    Memory& memory;
    Barriers& barriers;
    int tiles, units;

    GW_DEVICE AttentionHopperBackward(const HopperAttentionBackward& h, int tiles, int units, unsigned char* bytes)
        : h(h), p(h.p), memory(*reinterpret_cast<Memory*>(bytes)), barriers(memory.barriers), tiles(tiles), units(units) {}

    /// Starts all copies.
    GW_DEVICE void produce() const {
        for (int i = 0; i < 2; ++i) tensor_map_prefetch(h.rows[i]), tensor_map_prefetch(h.columns[i]);
        Turns turns;
        for_each_unit(units, [&](int index, int round) {
            const Unit unit(p, tiles, index, units);
            barrier_wait(&barriers.empty_rows, round % 2 ^ 1);
            memory.unit = unit;
            barrier_expect(&barriers.full_rows, 2 * RowTile::BYTES);
            for (int i = 0; i < 2; ++i) {
                RowTile::copy(memory.rows[i], h.rows[i], unit.first, unit.head, unit.batch, &barriers.full_rows);
            }
            Columns columns(p, unit);
#pragma unroll 1
            for (int step = 0; step < unit.steps; ++step, columns.advance(unit)) {
                const int stage = turns.stage(step);
                barrier_wait(&barriers.empty[stage], turns.parity(step) ^ 1);
                barrier_expect(&barriers.full[stage], 2 * ColumnTile::BYTES);
                for (int i = 0; i < 2; ++i) {
                    ColumnTile::copy(memory.columns[stage][i], h.columns[i], columns.first, columns.head, unit.batch,
                                     &barriers.full[stage]);
                }
            }
            turns.steps += unit.steps;
        });
    }

    /// log_sum and delta of a query, in the units of `Lines`. A query that does not exist or sees nothing has weight 0 everywhere:
    /// its log_sum is ∞.
    GW_DEVICE void line(i64 head_and_batch, int query, float& log_sum, float& delta) const {
        log_sum = __int_as_float(0x7f800000);
        delta = 0;
        if (query >= p.queries) return;
        const i64 at = head_and_batch * p.queries + query;
        // Both reads start before either is needed.
        const float found = static_cast<const float*>(p.log_sums)[at], slopes = static_cast<const float*>(p.delta)[at];
        if (found != -log_sum) log_sum = found * LOG2_E;
        delta = slopes * static_cast<float>(p.scale);
    }

    /// Writes log_sum and delta of columns of queries: one warp.
    GW_DEVICE void produce_lines() const {
        Turns turns;
        for_each_unit(units, [&](int, int round) {
            barrier_wait(&barriers.full_rows, round % 2);
            const Unit& unit = memory.unit;
            const int steps = unit.steps;
            Columns columns(p, unit);
#pragma unroll 1
            for (int step = 0; step < steps; ++step, columns.advance(unit)) {
                const int stage = turns.stage(step);
                const int lane = threadIdx.x % 32;
                const i64 head = unit.batch * p.heads + columns.head;
                // Reads before it waits: reads take about as long as the products of a step.
                float log_sums[COLUMNS / 32], deltas[COLUMNS / 32];
#pragma unroll
                for (int i = 0; i < COLUMNS / 32; ++i) line(head, columns.first + lane + 32 * i, log_sums[i], deltas[i]);
                barrier_wait(&barriers.empty[stage], turns.parity(step) ^ 1);
#pragma unroll
                for (int i = 0; i < COLUMNS / 32; ++i) {
                    memory.lines.log_sums[stage][lane + 32 * i] = log_sums[i];
                    memory.lines.deltas[stage][lane + 32 * i] = deltas[i];
                }
                barrier_arrive(&barriers.full[stage]);
            }
            // It reads the unit no more.
            barrier_arrive(&barriers.empty_rows);
            turns.steps += steps;
        });
    }

    /// A consumer warpgroup; `group` selects its 64 rows.
    GW_DEVICE void consume(int group) const {
        Turns turns;
        for_each_unit(units, [&](int, int round) {
            barrier_wait(&barriers.full_rows, round % 2);
            const int steps = memory.unit.steps;
            consume(group, steps, turns);
            turns.steps += steps;
        });
    }

    GW_DEVICE void consume(int group, int steps, const Turns& turns) const {
        const Unit& unit = memory.unit;
        const int lane = threadIdx.x % 32, start = group * 64 + threadIdx.x / 32 % 4 * 16;
        const float scale = static_cast<float>(p.scale);
        float s[SCORES], slope[SCORES], first_gradient[OUT] = {}, second_gradient[OUT] = {};
        u32 weights[COLUMNS / 16][4], slopes[COLUMNS / 16][4];
        float log_sums[2] = {}, deltas[2] = {};
        if constexpr (!OF_KEYS) {
            const i64 head = unit.batch * p.heads + unit.head;
            for (int side = 0; side < 2; ++side) {
                line(head, unit.first + start + lane / 4 + side * 8, log_sums[side], deltas[side]);
            }
        }
        // Warp-uniform; the shuffle makes that visible to the compiler.
        const u32 base = __shfl_sync(0xffffffffu, shared_address(&memory), 0);
        const u64 a = RowTile::matrix(base + group * 64 * 128), b = a + RowTile::BYTES / 16;
        const u64 c = ColumnTile::matrix(base + 2 * RowTile::BYTES), e = c + ColumnTile::BYTES / 16;
        constexpr u64 STAGE = 2 * ColumnTile::BYTES / 16;

        using Products = Wgmma<COLUMNS>;
        u32 held[2][D / 16][4];
        if constexpr (ROWS_IN_REGISTERS) {
            for (int i = 0; i < 2; ++i) RowTile::read(memory.rows[i], start, held[i]);
        }
        // Of the first or second operands of rows and columns.
        const auto multiply_rows = [&](float (&out)[SCORES], u64 rows, u64 columns, const u32 (&held)[D / 16][4]) {
            keep_here(rows);
            keep_here(columns);
            wgmma_fence();
#pragma unroll
            for (int i = 0; i < D / 16; ++i) {
                const u64 column = columns + ColumnTile::features(i);
                if constexpr (ROWS_IN_REGISTERS) {
                    Products::registers_along(out, held[i], column, i > 0, T{});
                } else {
                    Products::template shared<false, false>(out, rows + RowTile::features(i), column, i > 0, T{});
                }
            }
            wgmma_commit();
        };
        int column = unit.begin, column_head = OF_KEYS ? unit.head * static_cast<int>(p.group) : unit.head;
        // Weights that are dropped get a negative sign.
        const auto drop = [&](float (&s)[SCORES]) {
            const Dropping dropping(p.dropout, unit.batch * p.heads + column_head);
            dropping.template each<OF_KEYS, SCORES>(unit.first + start, column, [&](int i, bool dropped) {
                if (dropped) s[i] = -s[i];
            });
        };
        const auto hide = [&](float (&s)[SCORES]) {
            const Spans<T, OF_KEYS> spans(p, unit.batch, unit.length);
            const Span all = spans.all(unit.first + group * 64, unit.first + group * 64 + 63);
            if (all.begin <= column && column + COLUMNS <= all.end) return;
            const int row = unit.first + start + lane / 4;
            const Span mine[2] = {spans.of(row), spans.of(row + 8)};
#pragma unroll
            for (int i = 0; i < SCORES; ++i) {
                const int side = i / 2 % 2, there = column + i / 4 * 8 + lane % 4 * 2 + i % 2;
                if (!mine[side].has(there) || !spans.shown(row + side * 8, there)) s[i] = 0;
            }
        };
        const auto weigh = [&](int stage) {
#pragma unroll
            for (int i = 0; i < SCORES; ++i) {
                const int place = i / 4 * 8 + lane % 4 * 2 + i % 2;
                const float log_sum = OF_KEYS ? memory.lines.log_sums[stage][place] : log_sums[i / 2 % 2];
                s[i] = power_of_two(fmaf(s[i], scale * LOG2_E, -log_sum));
            }
            const Visible<T> visible(p, unit.batch, unit.length);
            const int first = unit.first + group * 64;
            if constexpr (GENERAL) {
                hide(s);
                if (p.dropout.threshold != 0) drop(s);
            } else if (!(OF_KEYS ? visible.whole(column, first + 63) : visible.whole(first, column + COLUMNS - 1))) {
                const int row = unit.first + start + lane / 4;
#pragma unroll
                for (int i = 0; i < SCORES; ++i) {
                    const int here = row + i / 2 % 2 * 8, there = column + i / 4 * 8 + lane % 4 * 2 + i % 2;
                    if (!visible.sees(OF_KEYS ? there : here, OF_KEYS ? here : there)) s[i] = 0;
                }
            }
            column += COLUMNS;
            if (OF_KEYS && column >= unit.end) {
                column = unit.begin;
                if constexpr (GENERAL) ++column_head;
            }
        };
        const auto derive = [&](int stage) {
#pragma unroll
            for (int i = 0; i < SCORES; ++i) {
                const int place = i / 4 * 8 + lane % 4 * 2 + i % 2;
                const float delta = OF_KEYS ? memory.lines.deltas[stage][place] : deltas[i / 2 % 2];
                if constexpr (GENERAL) {
                    const float kept = __float_as_int(s[i]) < 0 ? 0.0f : slope[i];
                    slope[i] = fabsf(s[i]) * fmaf(kept, scale * static_cast<float>(p.dropout.kept), -delta);
                } else {
                    slope[i] = s[i] * fmaf(slope[i], scale, -delta);
                }
            }
        };
        const auto multiply_columns = [&](float (&out)[OUT], const u32 (&operands)[COLUMNS / 16][4], u64 columns) {
            keep_here(columns);
            wgmma_fence();
#pragma unroll
            for (int i = 0; i < COLUMNS / 16; ++i) {
                Wgmma<D>::registers(out, operands[i], columns + ColumnTile::tokens(i), 1, T{});
            }
            wgmma_commit();
        };
        // From A·Cᵀ in registers, and nothing under way, to the products with the columns under way.
        const auto start_step = [&](int stage) {
            multiply_rows(slope, b, e + stage * STAGE, held[1]);
            weigh(stage);
            if constexpr (OF_KEYS) {
                if constexpr (GENERAL) {
                    float kept[SCORES];
#pragma unroll
                    for (int i = 0; i < SCORES; ++i) kept[i] = __float_as_int(s[i]) < 0 ? 0.0f : s[i];
                    round_operands<T>(kept, weights);
                } else {
                    round_operands<T>(s, weights);
                }
                multiply_columns(second_gradient, weights, e + stage * STAGE);
            }
            wgmma_wait<OF_KEYS ? 1 : 0>();
            pin(slope);
            derive(stage);
            round_operands<T>(slope, slopes);
            multiply_columns(first_gradient, slopes, c + stage * STAGE);
        };
        const auto end_step = [&](int stage) {
            pin(first_gradient);
            if constexpr (OF_KEYS) pin(second_gradient);
            barrier_arrive(&barriers.empty[stage]);
        };

        if (steps > 0) {
            int stage = turns.stage(0);
            barrier_wait(&barriers.full[stage], turns.parity(0));
            multiply_rows(s, a, c + stage * STAGE, held[0]);
            wgmma_wait<0>();
            pin(s);
            for (int step = 1; step < steps; ++step) {
                const int next = turns.stage(step);
                start_step(stage);
                barrier_wait(&barriers.full[next], turns.parity(step));
                multiply_rows(s, a, c + next * STAGE, held[0]);
                wgmma_wait<1>();
                end_step(stage);
                wgmma_wait<0>();
                pin(s);
                stage = next;
            }
            start_step(stage);
            wgmma_wait<0>();
            end_step(stage);
        }
        // After this barrier, no thread of the warpgroup reads its rows any more.
        named_barrier(1 + group, 128);
        const i64 count = OF_KEYS ? p.keys : p.queries;
        const int token = unit.first + start;
        const Steps& first_steps = OF_KEYS ? p.grad_k_steps : p.grad_q_steps;
        T* const first_target = part(static_cast<T*>(OF_KEYS ? p.grad_k : p.grad_q), first_steps, unit.batch, unit.head);
        RowTile::write(memory.rows[0], start, first_gradient, first_target, first_steps.token, token, count, p.features);
        if constexpr (OF_KEYS) {
            if constexpr (GENERAL) {
#pragma unroll
                for (int i = 0; i < OUT; ++i) second_gradient[i] *= static_cast<float>(p.dropout.kept);
            }
            T* const target = part(static_cast<T*>(p.grad_v), p.grad_v_steps, unit.batch, unit.head);
            RowTile::write(memory.rows[1], start, second_gradient, target, p.grad_v_steps.token, token, count, p.features);
        }
        // The fence precedes the arrival: the copy engine must see these writes before it overwrites them.
        shared_fence();
        barrier_arrive(&barriers.empty_rows);
    }

    GW_DEVICE static void run(const HopperAttentionBackward& problem, int tiles, int units) {
        // The swizzle needs this alignment, which holds because there is no other shared memory.
        extern __shared__ __align__(1024) unsigned char dynamic[];
        const AttentionHopperBackward block(problem, tiles, units, dynamic);
        if (threadIdx.x == 0) {
            Barriers& barriers = block.barriers;
            // All threads arrive that read or wrote by ordinary accesses: by the memory model a warp could send one, but only so is
            // racecheck silent.
            barrier_init(&barriers.full_rows, 1);
            barrier_init(&barriers.empty_rows, MULTIPLYING + (OF_KEYS ? 32 : 0));
            for (int stage = 0; stage < STAGES; ++stage) {
                barrier_init(&barriers.full[stage], OF_KEYS ? 33 : 1);
                barrier_init(&barriers.empty[stage], MULTIPLYING);
            }
            barrier_init_fence();
        }
        __syncthreads();
        if (threadIdx.x >= MULTIPLYING) {
            registers_at_most<FEW>();
            if (threadIdx.x == MULTIPLYING) block.produce();
            if (OF_KEYS && threadIdx.x / 32 == MULTIPLYING / 32 + 1) block.produce_lines();
        } else {
            registers_at_least<MANY>();
            block.consume(threadIdx.x / 128);
        }
    }
};
