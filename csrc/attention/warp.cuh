// Attention by warp-wide matrix instructions (sm_80 and later): bf16 and f16, and f32 in TF32 or exactly, accumulated in f32.
//
// A block of four warps computes 64 queries (or 64 keys in the backward pass of keys and values), 16 per warp. The other operands
// arrive in tiles; the copy of one tile overlaps with work on the tile before. Softmax weights stay in registers: the accumulators
// of one product, rounded, are the left operand of the next. In TF32 the rows of a block are operands in registers, too.
#pragma once

#include "attention/dropout.cuh"
#include "attention/warp_products.cuh"

/// GENERAL: with dropout or packed sequences. Without, a launch has neither. EXACT: products of f32 have the accuracy of f32.
template <class T, int D, bool GENERAL, bool EXACT = false>
struct AttentionWarp {
    using Tiles = AttentionWarpTiles<T, D>;
    using Products = AttentionProducts<T, D, EXACT>;
    static constexpr int ROWS = attention_warp::ROWS, ROW = Tiles::ROW;
    /// Rows of the tiles that are copied: forward, where exact products of many features need registers, and backward.
    static constexpr int KEYS = EXACT && D > 64 ? 16 : attention_warp::keys(sizeof(T)), FEW = attention_warp::few(D, sizeof(T));
    /// Of queries for the gradients of keys and values; dropout needs registers, and exact products do.
    static constexpr int FEW_QUERIES = (GENERAL && D == 128) || EXACT ? 16 : FEW;
    static constexpr int FORWARD_BYTES = attention_warp::forward(D, sizeof(T)), BACKWARD_BYTES = attention_warp::backward(D, sizeof(T));
    static_assert(FORWARD_BYTES <= 99 << 10 && BACKWARD_BYTES <= 99 << 10, "fits a block of every target from sm_80 on");
    /// Whether the rows of a block are operands in registers. With 128 features there are not enough.
    static constexpr bool RESIDENT = sizeof(T) == 4 && !EXACT && D < 128;
    static constexpr float LOG2_E = 1.4426950408889634f, LN_2 = 0.6931471805599453f;

    /// The queries of a block, and the keys they see, which arrive in tiles of COUNT, two at a time, at `key_tiles`: those of K,
    /// then those of V.
    template <int COUNT>
    struct QueryBlock {
        const Attention& p;
        const Place at;
        const Visible<T> visible;
        const T *k, *v;
        T *k_tiles, *v_tiles;
        int query_count;
        /// The block's first query, and the first of the two that a lane's accumulators belong to; the second is 8 further.
        int first, row;
        /// The first key, and tiles of keys from it on.
        int begin, steps;

        GW_DEVICE QueryBlock(const Attention& p, int tiles, T* key_tiles)
            : p(p), at(p, tiles, p.heads), visible(p, at.batch), k_tiles(key_tiles), v_tiles(key_tiles + 2 * COUNT * ROW),
              query_count(static_cast<int>(p.queries)), first(at.tile * ROWS),
              row(first + threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4) {
            const i64 shared_head = at.head / p.group;
            k = part(static_cast<const T*>(p.k), p.k_steps, at.batch, shared_head);
            v = part(static_cast<const T*>(p.v), p.v_steps, at.batch, shared_head);
            if constexpr (GENERAL) {
                const Span span = Spans<T, false>(p, at.batch, visible.length).any(first, first + ROWS - 1);
                begin = span.begin;
                steps = span.end > begin ? (span.end - begin + COUNT - 1) / COUNT : 0;
            } else {
                begin = 0;
                steps = (visible.end(first + ROWS) + COUNT - 1) / COUNT;
            }
        }

        GW_DEVICE i64 head() const { return at.batch * p.heads + at.head; }
        GW_DEVICE int key(int step) const { return begin + step * COUNT; }

        /// Starts copying the block's rows of Q or of its result's gradient.
        GW_DEVICE void fetch_rows(T* tile, const void* source, const Steps& source_steps, i64 features) const {
            const T* const rows = part(static_cast<const T*>(source), source_steps, at.batch, at.head);
            Tiles::template fetch<ROWS>(tile, rows, source_steps.token, first, query_count, static_cast<int>(features));
        }

        /// Starts copying the keys and values of a step, and closes the group of copies.
        GW_DEVICE void fetch_keys(int step) const {
            Tiles::template fetch<COUNT>(k_tile(step), k, p.k_steps.token, key(step), visible.length, static_cast<int>(p.features));
            Tiles::template fetch<COUNT>(v_tile(step), v, p.v_steps.token, key(step), visible.length, static_cast<int>(p.values));
            copy_async_commit();
        }

        GW_DEVICE T* k_tile(int step) const { return k_tiles + step % 2 * COUNT * ROW; }
        GW_DEVICE T* v_tile(int step) const { return v_tiles + step % 2 * COUNT * ROW; }

        /// Calls arrived() and then f(step) for each tile of keys, once it has arrived, while the next is copied. Rows whose copies were
        /// started before have arrived when the first of them is called.
        template <class Arrived, class F>
        GW_DEVICE void each_step(Arrived arrived, F f) const {
            if constexpr (RESIDENT) copy_async_commit();
            if (steps > 0) fetch_keys(0);
            if constexpr (RESIDENT) {
                if (steps > 0) {
                    copy_async_wait<1>();
                    __syncthreads();
                    arrived();
                }
            }
            for (int step = 0; step < steps; ++step) {
                copy_async_wait<0>();
                // Makes this step's tiles visible to all threads, and ends all reads of the tiles of the step before.
                __syncthreads();
                if (step + 1 < steps) fetch_keys(step + 1);
                f(step);
            }
            Tiles::finish_copies();
        }

        /// Writes the warp's rows of a result.
        GW_DEVICE void write_rows(void* target, const Steps& target_steps, i64 features, const float (&out)[D / 8][4]) const {
            T* const rows = part(static_cast<T*>(target), target_steps, at.batch, at.head);
            Tiles::write(rows, target_steps.token, first, query_count, static_cast<int>(features), out);
        }
    };

    /// Calls f(n, e) for each accumulator of a warp's rows that may not count. `first` and `row` are the block's first row and the first of
    /// the lane's, `column` is the first column.
    template <bool OF_KEYS, int N, class F>
    GW_DEVICE static void each_hidden(const Attention& p, i64 batch, int length, int first, int row, int column, F f) {
        const Spans<T, OF_KEYS> spans(p, batch, length);
        const Span all = spans.all(first, first + ROWS - 1);
        if (all.begin <= column && column + 8 * N <= all.end) return;
        const Span mine[2] = {spans.of(row), spans.of(row + 8)};
#pragma unroll
        for (int n = 0; n < N; ++n) {
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                const int at = column + n * 8 + threadIdx.x % 4 * 2 + e % 2;
                if (!mine[e / 2].has(at) || !spans.shown(row + e / 2 * 8, at)) f(n, e);
            }
        }
    }

    /// Gives weights that are dropped a negative sign; `row` is the warp's first.
    template <bool OF_KEYS, int N>
    GW_DEVICE static void drop(const Attention& p, i64 head, int row, int column, float (&s)[N][4]) {
        if (p.dropout.threshold == 0) return;
        Dropping(p.dropout, head).template each<OF_KEYS, 4 * N>(row, column, [&](int i, bool dropped) {
            if (dropped) s[i / 4][i % 4] = -s[i / 4][i % 4];
        });
    }

    GW_DEVICE static bool dropped(float weight) { return __float_as_int(weight) < 0; }

    /// The gradient of a product q·k from that of its weight, whose sign tells whether it is dropped.
    GW_DEVICE static float slope_of(const Attention& p, float weight, float grad, float delta) {
        const float kept = dropped(weight) ? 0.0f : grad * static_cast<float>(p.dropout.kept);
        return fabsf(weight) * (kept - delta) * static_cast<float>(p.scale);
    }

    GW_DEVICE static void forward(const Attention& p, int tiles) {
        extern __shared__ __align__(16) unsigned char memory[];
        T* const queries = reinterpret_cast<T*>(memory);
        const QueryBlock<KEYS> block(p, tiles, queries + ROWS * ROW);
        const Visible<T>& visible = block.visible;
        const int first = block.first, row = block.row, lane = threadIdx.x % 32;
        const float infinity = __int_as_float(0x7f800000), scale = static_cast<float>(p.scale) * LOG2_E;
        float greatest[2] = {-infinity, -infinity}, total[2] = {0, 0}, out[D / 8][4] = {};
        AttentionRows<T, D, RESIDENT> query_rows(queries);
        block.fetch_rows(queries, p.q, p.q_steps, p.features);
        block.each_step([&] { query_rows.arrive(); }, [&](int step) {
            const int key = block.key(step);
            float s[KEYS / 8][4] = {};
            Products::dots(query_rows, block.k_tile(step), s);
            if constexpr (GENERAL) {
                each_hidden<false, KEYS / 8>(p, block.at.batch, visible.length, first, row, key, [&](int n, int e) { s[n][e] = -infinity; });
            } else if (!visible.whole(first, key + KEYS - 1)) {
#pragma unroll
                for (int n = 0; n < KEYS / 8; ++n) {
#pragma unroll
                    for (int e = 0; e < 4; ++e) {
                        if (!visible.sees(row + e / 2 * 8, key + n * 8 + lane % 4 * 2 + e % 2)) s[n][e] = -infinity;
                    }
                }
            }
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                float most = greatest[half];
#pragma unroll
                for (int n = 0; n < KEYS / 8; ++n) most = fmaxf(most, fmaxf(s[n][2 * half], s[n][2 * half + 1]));
                most = Tiles::across_quad_max(most);
                const float shift = most == -infinity ? 0.0f : most * scale;
                const float keep = power_of_two(fmaf(greatest[half], scale, -shift));
                greatest[half] = most;
                float sum = 0;
#pragma unroll
                for (int n = 0; n < KEYS / 8; ++n) {
#pragma unroll
                    for (int e = 2 * half; e < 2 * half + 2; ++e) {
                        s[n][e] = power_of_two(fmaf(s[n][e], scale, -shift));
                        sum += s[n][e];
                    }
                }
                total[half] = fmaf(total[half], keep, sum);
#pragma unroll
                for (int n = 0; n < D / 8; ++n) {
                    out[n][2 * half] *= keep;
                    out[n][2 * half + 1] *= keep;
                }
            }
            if constexpr (GENERAL) {
                drop<false, KEYS / 8>(p, block.head(), row - lane / 4, key, s);
#pragma unroll
                for (int i = 0; i < KEYS / 2; ++i) s[i / 4][i % 4] = dropped(s[i / 4][i % 4]) ? 0.0f : s[i / 4][i % 4];
            }
            Products::add(s, block.v_tile(step), out);
        });
        float* const log_sums = static_cast<float*>(p.log_sums) + (block.at.batch * p.heads + block.at.head) * p.queries;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const float sum = Tiles::across_quad_sum(total[half]);
            float inverse = sum == 0.0f ? 0.0f : 1.0f / sum;
            if constexpr (GENERAL) inverse *= static_cast<float>(p.dropout.kept);
#pragma unroll
            for (int n = 0; n < D / 8; ++n) {
                out[n][2 * half] *= inverse;
                out[n][2 * half + 1] *= inverse;
            }
            const int query = row + half * 8;
            if (lane % 4 == 0 && query < block.query_count) log_sums[query] = log_sum(greatest[half] * scale * LN_2, sum);
        }
        block.write_rows(p.out, p.out_steps, p.values, out);
    }

    GW_DEVICE static void backward_q(const Attention& p, int tiles) {
        extern __shared__ __align__(16) unsigned char memory[];
        T* const queries = reinterpret_cast<T*>(memory);
        T* const grads = queries + ROWS * ROW;
        const QueryBlock<FEW> block(p, tiles, grads + ROWS * ROW);
        const Visible<T>& visible = block.visible;
        const int first = block.first, row = block.row, query_count = block.query_count, lane = threadIdx.x % 32;
        const float scale = static_cast<float>(p.scale);
        const i64 rows = (block.at.batch * p.heads + block.at.head) * p.queries;
        float log_sums[2] = {}, deltas[2] = {}, out[D / 8][4] = {};
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            if (row + half * 8 >= query_count) continue;
            log_sums[half] = static_cast<const float*>(p.log_sums)[rows + row + half * 8] * LOG2_E;
            deltas[half] = static_cast<const float*>(p.delta)[rows + row + half * 8];
        }
        AttentionRows<T, D, RESIDENT> query_rows(queries), grad_rows(grads);
        const auto arrived = [&] {
            query_rows.arrive();
            grad_rows.arrive();
        };
        block.fetch_rows(queries, p.q, p.q_steps, p.features);
        block.fetch_rows(grads, p.grad, p.grad_steps, p.values);
        block.each_step(arrived, [&](int step) {
            const int key = block.key(step);
            const T* const k_tile = block.k_tile(step);
            float s[FEW / 8][4] = {}, slope[FEW / 8][4] = {};
            Products::dots(query_rows, k_tile, s);
            Products::dots(grad_rows, block.v_tile(step), slope);
            if constexpr (GENERAL) {
#pragma unroll
                for (int i = 0; i < FEW / 2; ++i) {
                    s[i / 4][i % 4] = power_of_two(fmaf(s[i / 4][i % 4], scale * LOG2_E, -log_sums[i / 2 % 2]));
                }
                each_hidden<false, FEW / 8>(p, block.at.batch, visible.length, first, row, key, [&](int n, int e) { s[n][e] = 0; });
                drop<false, FEW / 8>(p, block.head(), row - lane / 4, key, s);
#pragma unroll
                for (int i = 0; i < FEW / 2; ++i) {
                    slope[i / 4][i % 4] = slope_of(p, s[i / 4][i % 4], slope[i / 4][i % 4], deltas[i / 2 % 2]);
                }
                Products::add(slope, k_tile, out);
                return;
            }
            const bool whole = visible.whole(first, key + FEW - 1) && first + ROWS <= query_count;
#pragma unroll
            for (int n = 0; n < FEW / 8; ++n) {
#pragma unroll
                for (int e = 0; e < 4; ++e) {
                    const int query = row + e / 2 * 8;
                    const float weight = power_of_two(fmaf(s[n][e], scale * LOG2_E, -log_sums[e / 2]));
                    const bool seen =
                        whole || (query < query_count && visible.sees(query, key + n * 8 + lane % 4 * 2 + e % 2));
                    slope[n][e] = seen ? weight * (slope[n][e] - deltas[e / 2]) * scale : 0.0f;
                }
            }
            Products::add(slope, k_tile, out);
        });
        block.write_rows(p.grad_q, p.grad_q_steps, p.features, out);
    }

    /// Gradients of the keys and values, which a group of heads shares; rows are keys, columns queries.
    GW_DEVICE static void backward_kv(const Attention& p, int tiles) {
        extern __shared__ __align__(16) unsigned char memory[];
        T* const keys = reinterpret_cast<T*>(memory);
        T* const values = keys + ROWS * ROW;
        T* const q_tiles = values + ROWS * ROW;
        T* const grad_tiles = q_tiles + 2 * FEW_QUERIES * ROW;
        const Place at(p, tiles, p.heads / p.group);
        const Visible<T> visible(p, at.batch);
        const int first = at.tile * ROWS;
        // Parameters are read from constant memory at each use: two registers less.
        const auto features = [&] { return static_cast<int>(p.features); };
        const auto value_features = [&] { return static_cast<int>(p.values); };
        const int query_count = static_cast<int>(p.queries), key_count = static_cast<int>(p.keys);
        const int lane = threadIdx.x % 32, row = first + threadIdx.x / 32 * 16 + lane / 4;
        const float scale = static_cast<float>(p.scale);
        float grad_k[D / 8][4] = {}, grad_v[D / 8][4] = {};
        // Steps per head of the group, from the first query that sees a key of this tile.
        int begin = first < visible.length ? visible.begin(first) / FEW_QUERIES : (query_count + FEW_QUERIES - 1) / FEW_QUERIES;
        int each = (query_count + FEW_QUERIES - 1) / FEW_QUERIES - begin;
        if constexpr (GENERAL) {
            const Span span = Spans<T, true>(p, at.batch, visible.length).any(first, first + ROWS - 1);
            begin = span.begin / FEW_QUERIES;
            each = (span.end + FEW_QUERIES - 1) / FEW_QUERIES - begin;
        }
        const int steps = each > 0 ? each * static_cast<int>(p.group) : 0;
        const auto fetch_queries = [&](int step) {
            const i64 head = at.head * p.group + step / each;
            const int query = (begin + step % each) * FEW_QUERIES;
            const T* const q = part(static_cast<const T*>(p.q), p.q_steps, at.batch, head);
            const T* const grad = part(static_cast<const T*>(p.grad), p.grad_steps, at.batch, head);
            Tiles::template fetch<FEW_QUERIES>(q_tiles + step % 2 * FEW_QUERIES * ROW, q, p.q_steps.token, query, query_count, features());
            Tiles::template fetch<FEW_QUERIES>(grad_tiles + step % 2 * FEW_QUERIES * ROW, grad, p.grad_steps.token, query, query_count,
                                                value_features());
            copy_async_commit();
        };
        Tiles::template fetch<ROWS>(keys, part(static_cast<const T*>(p.k), p.k_steps, at.batch, at.head), p.k_steps.token, first, key_count, features());
        Tiles::template fetch<ROWS>(values, part(static_cast<const T*>(p.v), p.v_steps, at.batch, at.head), p.v_steps.token, first, key_count,
                    value_features());
        AttentionRows<T, D, RESIDENT> key_rows(keys), value_rows(values);
        if constexpr (RESIDENT) copy_async_commit();
        if (steps > 0) fetch_queries(0);
        if constexpr (RESIDENT) {
            if (steps > 0) {
                copy_async_wait<1>();
                __syncthreads();
                key_rows.arrive();
                value_rows.arrive();
            }
        }
        for (int step = 0; step < steps; ++step) {
            copy_async_wait<0>();
            __syncthreads();
            if (step + 1 < steps) fetch_queries(step + 1);
            const int query = (begin + step % each) * FEW_QUERIES;
            const i64 rows = (at.batch * p.heads + at.head * p.group + step / each) * p.queries;
            const float* const log_sums = static_cast<const float*>(p.log_sums) + rows;
            const float* const deltas = static_cast<const float*>(p.delta) + rows;
            const T* const q_tile = q_tiles + step % 2 * FEW_QUERIES * ROW;
            const T* const grad_tile = grad_tiles + step % 2 * FEW_QUERIES * ROW;
            float s[FEW_QUERIES / 8][4] = {}, slope[FEW_QUERIES / 8][4] = {};
            Products::dots(key_rows, q_tile, s);
            Products::dots(value_rows, grad_tile, slope);
            if constexpr (GENERAL) {
#pragma unroll
                for (int i = 0; i < FEW_QUERIES / 2; ++i) {
                    const int column = query + i / 4 * 8 + lane % 4 * 2 + i % 2, place = column < query_count ? column : 0;
                    s[i / 4][i % 4] = power_of_two(fmaf(s[i / 4][i % 4], scale * LOG2_E, -(log_sums[place] * LOG2_E)));
                }
                each_hidden<true, FEW_QUERIES / 8>(p, at.batch, visible.length, first, row, query, [&](int n, int e) { s[n][e] = 0; });
                drop<true, FEW_QUERIES / 8>(p, at.batch * p.heads + at.head * p.group + step / each, row - lane / 4, query, s);
#pragma unroll
                for (int i = 0; i < FEW_QUERIES / 2; ++i) {
                    const int column = query + i / 4 * 8 + lane % 4 * 2 + i % 2, place = column < query_count ? column : 0;
                    float& weight = s[i / 4][i % 4];
                    slope[i / 4][i % 4] = slope_of(p, weight, slope[i / 4][i % 4], deltas[place]);
                    if (dropped(weight)) weight = 0;
                }
                Products::add(s, grad_tile, grad_v);
                Products::add(slope, q_tile, grad_k);
                continue;
            }
            const bool whole = visible.whole(query, first + ROWS - 1) && query + FEW_QUERIES <= query_count;
#pragma unroll
            for (int n = 0; n < FEW_QUERIES / 8; ++n) {
#pragma unroll
                for (int side = 0; side < 2; ++side) {
                    const int column = query + n * 8 + lane % 4 * 2 + side, place = column < query_count ? column : 0;
                    const float log_sum = log_sums[place] * LOG2_E, delta = deltas[place];
#pragma unroll
                    for (int e = side; e < 4; e += 2) {
                        const bool seen = whole || (column < query_count && visible.sees(column, row + e / 2 * 8));
                        s[n][e] = seen ? power_of_two(fmaf(s[n][e], scale * LOG2_E, -log_sum)) : 0.0f;
                        slope[n][e] = s[n][e] * (slope[n][e] - delta) * scale;
                    }
                }
            }
            Products::add(s, grad_tile, grad_v);
            Products::add(slope, q_tile, grad_k);
        }
        Tiles::finish_copies();
        if constexpr (GENERAL) {
#pragma unroll
            for (int i = 0; i < D / 2; ++i) grad_v[i / 4][i % 4] *= static_cast<float>(p.dropout.kept);
        }
        T* const target_k = part(static_cast<T*>(p.grad_k), p.grad_k_steps, at.batch, at.head);
        T* const target_v = part(static_cast<T*>(p.grad_v), p.grad_v_steps, at.batch, at.head);
        Tiles::write(target_k, p.grad_k_steps.token, first, key_count, features(), grad_k);
        Tiles::write(target_v, p.grad_v_steps.token, first, key_count, value_features(), grad_v);
    }
};
