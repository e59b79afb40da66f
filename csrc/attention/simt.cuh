// Attention by ordinary arithmetic in the compute type: exact f32 and f64, and all cases that the matrix instructions do not serve.
//
// A block of 16×16 threads computes a tile of 16·R queries by 16·R keys; a thread has R×R products, and of R rows every sixteenth
// feature.
#pragma once

#include "attention/dropout.cuh"

/// GENERAL: with dropout or packed sequences. Without, a launch has neither.
template <class T, int D, int R, bool GENERAL>
struct AttentionSimt {
    using C = Compute<T>;
    static constexpr int TILE = 16 * R, ROW = D + 1, P_ROW = TILE + 1, OUT = D / 16;
    static_assert(TILE == attention_simt::rows(R == 1 && sizeof(C) == 4, sizeof(C)), "as launched");

    /// Loads TILE rows of a matrix from `first` on; zeros beyond `rows` and `features`. A barrier must follow.
    GW_DEVICE static void fetch(C* tile, const T* source, i64 step, int first, i64 rows, i64 features) {
        for (int e = threadIdx.x; e < TILE * D; e += attention_simt::THREADS) {
            const int row = e / D, feature = e % D;
            const bool inside = first + row < rows && feature < features;
            tile[row * ROW + feature] = inside ? widen(source[(first + row) * step + feature]) : C(0);
        }
    }

    /// Products of rows of two tiles.
    GW_DEVICE static void dots(const C* a, const C* b, C (&s)[R][R]) {
        const int x = threadIdx.x % 16, y = threadIdx.x / 16;
#pragma unroll
        for (int i = 0; i < R * R; ++i) s[i / R][i % R] = 0;
#pragma unroll 8
        for (int d = 0; d < D; ++d) {
            C left[R], right[R];
#pragma unroll
            for (int r = 0; r < R; ++r) {
                left[r] = a[(y + 16 * r) * ROW + d];
                right[r] = b[(x + 16 * r) * ROW + d];
            }
#pragma unroll
            for (int i = 0; i < R * R; ++i) s[i / R][i % R] += left[i / R] * right[i % R];
        }
    }

    /// out += weights·tile, both in shared memory.
    GW_DEVICE static void add(const C* weights, const C* tile, C (&out)[R][OUT]) {
        const int x = threadIdx.x % 16, y = threadIdx.x / 16;
        for (int row = 0; row < TILE; ++row) {
            C weight[R];
#pragma unroll
            for (int r = 0; r < R; ++r) weight[r] = weights[(y + 16 * r) * P_ROW + row];
#pragma unroll
            for (int e = 0; e < OUT; ++e) {
                const C value = tile[row * ROW + x + 16 * e];
#pragma unroll
                for (int r = 0; r < R; ++r) out[r][e] += weight[r] * value;
            }
        }
    }

    GW_DEVICE static void put(const C (&s)[R][R], C* weights) {
        const int x = threadIdx.x % 16, y = threadIdx.x / 16;
#pragma unroll
        for (int i = 0; i < R * R; ++i) weights[(y + 16 * (i / R)) * P_ROW + x + 16 * (i % R)] = s[i / R][i % R];
    }

    GW_DEVICE static void write(T* target, i64 step, int first, i64 rows, i64 features, const C (&out)[R][OUT]) {
        const int x = threadIdx.x % 16, y = threadIdx.x / 16;
#pragma unroll
        for (int i = 0; i < R * OUT; ++i) {
            const int row = first + y + 16 * (i / OUT), feature = x + 16 * (i % OUT);
            if (row < rows && feature < features) target[row * step + feature] = narrow<T>(out[i / OUT][i % OUT]);
        }
    }

    /// Which weights of a tile are dropped: for each 16×16 block of queries and keys a byte for each group of weights.
    struct Dropped {
        unsigned char (&bytes)[R * R][32];

        /// Threads draw together, from the tile's first query and key on. A barrier must follow, and precede the next drawing.
        GW_DEVICE void draw(const Attention& p, i64 head, int query, int key) const {
            const int block = threadIdx.x / 32, lane = threadIdx.x % 32;
            if (p.dropout.threshold == 0 || block >= R * R) return;
            const u32 bits = Dropping(p.dropout, head).bits(query / 16 + block / R, key / 16 + block % R, lane);
            bytes[block][lane] = static_cast<unsigned char>(bits);
        }

        /// Of a query and key of the tile.
        GW_DEVICE bool at(const Attention& p, int query, int key) const {
            if (p.dropout.threshold == 0) return false;
            const int bit = key % 2 + query / 8 % 2 * 2 + key / 8 % 2 * 4;
            return (bytes[query / 16 * R + key / 16][query % 8 * 4 + key % 8 / 2] >> bit & 1) != 0;
        }
    };

    /// The queries of a block, and the keys they see.
    struct QueryBlock {
        const Attention& p;
        const Place at;
        const Visible<T> visible;
        const T *k, *v;
        /// The block's first query, the first key, and one past the last key.
        int first, begin, end;

        GW_DEVICE QueryBlock(const Attention& p, int tiles) : p(p), at(p, tiles, p.heads), visible(p, at.batch), first(at.tile * TILE) {
            const i64 shared_head = at.head / p.group;
            k = part(static_cast<const T*>(p.k), p.k_steps, at.batch, shared_head);
            v = part(static_cast<const T*>(p.v), p.v_steps, at.batch, shared_head);
            if constexpr (GENERAL) {
                const Span span = Spans<T, false>(p, at.batch, visible.length).any(first, first + TILE - 1);
                begin = span.begin;
                end = span.end;
            } else {
                begin = 0;
                end = visible.end(first + TILE);
            }
        }

        GW_DEVICE i64 head() const { return at.batch * p.heads + at.head; }

        GW_DEVICE bool sees(int query, int key) const {
            if constexpr (GENERAL) {
                const Spans<T, false> spans(p, at.batch, visible.length);
                return spans.of(query).has(key) && spans.shown(query, key);
            } else {
                return visible.sees(query, key);
            }
        }

        /// Loads the block's rows of Q or of its result's gradient; a barrier must follow.
        GW_DEVICE void fetch_rows(C* tile, const void* source, const Steps& steps, i64 features) const {
            fetch(tile, part(static_cast<const T*>(source), steps, at.batch, at.head), steps.token, first, p.queries, features);
        }
        /// Loads a tile of keys or of values; a barrier must follow.
        GW_DEVICE void fetch_keys(C* tile, int key) const { fetch(tile, k, p.k_steps.token, key, p.keys, p.features); }
        GW_DEVICE void fetch_values(C* tile, int key) const { fetch(tile, v, p.v_steps.token, key, p.keys, p.values); }

        GW_DEVICE void write_rows(void* target, const Steps& steps, i64 features, const C (&out)[R][OUT]) const {
            write(part(static_cast<T*>(target), steps, at.batch, at.head), steps.token, first, p.queries, features, out);
        }
    };

    GW_DEVICE static void forward(const Attention& p, int tiles) {
        extern __shared__ __align__(16) unsigned char memory[];
        C* const queries = reinterpret_cast<C*>(memory);
        C* const tile = queries + TILE * ROW;
        C* const weights = tile + TILE * ROW;
        const QueryBlock block(p, tiles);
        const int first = block.first, x = threadIdx.x % 16, y = threadIdx.x / 16;
        block.fetch_rows(queries, p.q, p.q_steps, p.features);
        const C infinity = static_cast<C>(__int_as_float(0x7f800000)), scale = static_cast<C>(p.scale);
        __shared__ unsigned char bytes[R * R][32];
        const Dropped dropped{bytes};
        C greatest[R], total[R], out[R][OUT] = {};
#pragma unroll
        for (int r = 0; r < R; ++r) {
            greatest[r] = -infinity;
            total[r] = 0;
        }
        for (int key = block.begin; key < block.end; key += TILE) {
            block.fetch_keys(tile, key);
            if constexpr (GENERAL) dropped.draw(p, block.head(), first, key);
            __syncthreads();
            C s[R][R];
            dots(queries, tile, s);
#pragma unroll
            for (int r = 0; r < R; ++r) {
                C most = greatest[r];
#pragma unroll
                for (int c = 0; c < R; ++c) {
                    s[r][c] = block.sees(first + y + 16 * r, key + x + 16 * c) ? s[r][c] * scale : -infinity;
                    // NaN stays.
                    most = s[r][c] > most || s[r][c] != s[r][c] ? s[r][c] : most;
                }
#pragma unroll
                for (int offset = 8; offset > 0; offset /= 2) {
                    const C other = __shfl_xor_sync(0xffffffffu, most, offset);
                    most = other > most || other != other ? other : most;
                }
                const C shift = most == -infinity ? C(0) : most;
                const C keep = exponential(greatest[r] - shift);
                greatest[r] = most;
                C sum = 0;
#pragma unroll
                for (int c = 0; c < R; ++c) {
                    s[r][c] = exponential(s[r][c] - shift);
                    sum += s[r][c];
                }
#pragma unroll
                for (int offset = 8; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
                total[r] = total[r] * keep + sum;
                if constexpr (GENERAL) {
#pragma unroll
                    for (int c = 0; c < R; ++c) {
                        if (dropped.at(p, y + 16 * r, x + 16 * c)) s[r][c] = 0;
                    }
                }
#pragma unroll
                for (int e = 0; e < OUT; ++e) out[r][e] *= keep;
            }
            put(s, weights);
            __syncthreads();
            block.fetch_values(tile, key);
            __syncthreads();
            add(weights, tile, out);
            __syncthreads();
        }
        C* const log_sums = static_cast<C*>(p.log_sums) + (block.at.batch * p.heads + block.at.head) * p.queries;
#pragma unroll
        for (int r = 0; r < R; ++r) {
            C inverse = total[r] == C(0) ? C(0) : C(1) / total[r];
            if constexpr (GENERAL) inverse *= static_cast<C>(p.dropout.kept);
#pragma unroll
            for (int e = 0; e < OUT; ++e) out[r][e] *= inverse;
            const int row = first + y + 16 * r;
            if (x == 0 && row < p.queries) log_sums[row] = log_sum(greatest[r], total[r]);
        }
        block.write_rows(p.out, p.out_steps, p.values, out);
    }

    /// The contribution of one query and key to the gradients: the softmax weight, and the gradient of the product q·k. With dropout the
    /// weight is the one that multiplies the value.
    struct Slope {
        C weight, product;
        GW_DEVICE Slope(const Visible<T>& visible, int query, int key, i64 queries, C dot, C grad_dot, C log_sum, C delta, C scale) {
            const bool seen = query < queries && visible.sees(query, key);
            weight = seen ? exponential(dot * scale - log_sum) : C(0);
            product = weight * (grad_dot - delta) * scale;
        }
        GW_DEVICE Slope(bool seen, C dot, C grad_dot, C log_sum, C delta, C scale, bool dropped, C kept) {
            weight = seen ? exponential(dot * scale - log_sum) : C(0);
            product = weight * ((dropped ? C(0) : grad_dot * kept) - delta) * scale;
            weight = dropped ? C(0) : weight * kept;
        }
    };

    GW_DEVICE static void backward_q(const Attention& p, int tiles) {
        extern __shared__ __align__(16) unsigned char memory[];
        C* const queries = reinterpret_cast<C*>(memory);
        C* const grads = queries + TILE * ROW;
        C* const tile = grads + TILE * ROW;
        C* const weights = tile + TILE * ROW;
        const QueryBlock block(p, tiles);
        const int first = block.first, x = threadIdx.x % 16, y = threadIdx.x / 16;
        block.fetch_rows(queries, p.q, p.q_steps, p.features);
        block.fetch_rows(grads, p.grad, p.grad_steps, p.values);
        const C scale = static_cast<C>(p.scale);
        const i64 rows = (block.at.batch * p.heads + block.at.head) * p.queries;
        const C* const log_sums = static_cast<const C*>(p.log_sums) + rows;
        const C* const deltas = static_cast<const C*>(p.delta) + rows;
        __shared__ unsigned char bytes[R * R][32];
        const Dropped dropped{bytes};
        C out[R][OUT] = {};
        for (int key = block.begin; key < block.end; key += TILE) {
            block.fetch_values(tile, key);
            if constexpr (GENERAL) dropped.draw(p, block.head(), first, key);
            __syncthreads();
            C s[R][R], slope[R][R];
            dots(grads, tile, slope);
            __syncthreads();
            block.fetch_keys(tile, key);
            __syncthreads();
            dots(queries, tile, s);
#pragma unroll
            for (int i = 0; i < R * R; ++i) {
                const int row = first + y + 16 * (i / R), place = row < p.queries ? row : 0;
                C& value = slope[i / R][i % R];
                if constexpr (GENERAL) {
                    const bool seen = row < p.queries && block.sees(row, key + x + 16 * (i % R));
                    value = Slope(seen, s[i / R][i % R], value, log_sums[place], deltas[place], scale,
                                  dropped.at(p, y + 16 * (i / R), x + 16 * (i % R)), static_cast<C>(p.dropout.kept)).product;
                } else {
                    value = Slope(block.visible, row, key + x + 16 * (i % R), p.queries, s[i / R][i % R], value, log_sums[place],
                                  deltas[place], scale).product;
                }
            }
            put(slope, weights);
            __syncthreads();
            add(weights, tile, out);
            __syncthreads();
        }
        block.write_rows(p.grad_q, p.grad_q_steps, p.features, out);
    }

    /// Gradients of the keys and values, which a group of heads shares. Rows are keys, columns queries.
    GW_DEVICE static void backward_kv(const Attention& p, int tiles) {
        extern __shared__ __align__(16) unsigned char memory[];
        C* const keys = reinterpret_cast<C*>(memory);
        C* const values = keys + TILE * ROW;
        C* const tile = values + TILE * ROW;
        C* const weights = tile + TILE * ROW;
        const i64 shared_heads = p.heads / p.group;
        const Place at(p, tiles, shared_heads);
        const Visible<T> visible(p, at.batch);
        const int first = at.tile * TILE, x = threadIdx.x % 16, y = threadIdx.x / 16;
        fetch(keys, part(static_cast<const T*>(p.k), p.k_steps, at.batch, at.head), p.k_steps.token, first, p.keys, p.features);
        fetch(values, part(static_cast<const T*>(p.v), p.v_steps, at.batch, at.head), p.v_steps.token, first, p.keys, p.values);
        const C scale = static_cast<C>(p.scale);
        C grad_k[R][OUT] = {}, grad_v[R][OUT] = {};
        int begin = first < visible.length ? visible.begin(first) / TILE * TILE : static_cast<int>(p.queries);
        i64 end = p.queries;
        const Spans<T, true> spans(p, at.batch, visible.length);
        if constexpr (GENERAL) {
            const Span span = spans.any(first, first + TILE - 1);
            begin = span.begin;
            end = span.end;
        }
        __shared__ unsigned char bytes[R * R][32];
        const Dropped dropped{bytes};
        for (i64 head = at.head * p.group; head < (at.head + 1) * p.group; ++head) {
            const T* const q = part(static_cast<const T*>(p.q), p.q_steps, at.batch, head);
            const T* const grad = part(static_cast<const T*>(p.grad), p.grad_steps, at.batch, head);
            const i64 rows = (at.batch * p.heads + head) * p.queries;
            const C* const log_sums = static_cast<const C*>(p.log_sums) + rows;
            const C* const deltas = static_cast<const C*>(p.delta) + rows;
            for (int query = begin; query < end; query += TILE) {
                C s[R][R], slope[R][R];
                if constexpr (GENERAL) dropped.draw(p, at.batch * p.heads + head, query, first);
                fetch(tile, q, p.q_steps.token, query, p.queries, p.features);
                __syncthreads();
                dots(keys, tile, s);
                __syncthreads();
                fetch(tile, grad, p.grad_steps.token, query, p.queries, p.values);
                __syncthreads();
                dots(values, tile, slope);
#pragma unroll
                for (int i = 0; i < R * R; ++i) {
                    const int column = query + x + 16 * (i % R), place = column < p.queries ? column : 0;
                    C &weight = s[i / R][i % R], &product = slope[i / R][i % R];
                    const int key = first + y + 16 * (i / R);
                    if constexpr (GENERAL) {
                        const bool seen = spans.of(key).has(column) && spans.shown(key, column);
                        const Slope of(seen, weight, product, log_sums[place], deltas[place], scale,
                                       dropped.at(p, x + 16 * (i % R), y + 16 * (i / R)), static_cast<C>(p.dropout.kept));
                        weight = of.weight;
                        product = of.product;
                    } else {
                        const Slope of(visible, column, key, p.queries, weight, product, log_sums[place], deltas[place], scale);
                        weight = of.weight;
                        product = of.product;
                    }
                }
                put(s, weights);
                __syncthreads();
                add(weights, tile, grad_v);
                __syncthreads();
                put(slope, weights);
                fetch(tile, q, p.q_steps.token, query, p.queries, p.features);
                __syncthreads();
                add(weights, tile, grad_k);
                __syncthreads();
            }
        }
        T* const target_k = part(static_cast<T*>(p.grad_k), p.grad_k_steps, at.batch, at.head);
        T* const target_v = part(static_cast<T*>(p.grad_v), p.grad_v_steps, at.batch, at.head);
        write(target_k, p.grad_k_steps.token, first, p.keys, p.features, grad_k);
        write(target_v, p.grad_v_steps.token, first, p.keys, p.values, grad_v);
    }
};

/// delta = Σ out·grad of each row, by a group of DELTA_GROUP threads.
template <class T>
GW_DEVICE void attention_delta(const Attention& p, i64 rows) {
    using C = Compute<T>;
    constexpr int GROUP = attention_simt::DELTA_GROUP;
    const int lane = threadIdx.x % GROUP;
    const u32 threads = ((1u << GROUP) - 1) << (threadIdx.x % 32 / GROUP * GROUP);
    // Quotients of 64 bits take longer than the rest of a row.
    const bool is_small = rows <= 0xffffffffll;
    for (i64 row = thread_index() / GROUP; row < rows; row += thread_count() / GROUP) {
        const i64 above = is_small ? static_cast<u32>(row) / static_cast<u32>(p.queries) : row / p.queries;
        const i64 batch = is_small ? static_cast<u32>(above) / static_cast<u32>(p.heads) : above / p.heads;
        const i64 query = row - above * p.queries, head = above - batch * p.heads;
        const T* const out = part(static_cast<const T*>(p.out), p.out_steps, batch, head) + query * p.out_steps.token;
        const T* const grad = part(static_cast<const T*>(p.grad), p.grad_steps, batch, head) + query * p.grad_steps.token;
        double sum = 0;
#pragma unroll 4
        for (i64 i = lane; i < p.values; i += GROUP) sum += static_cast<double>(widen(out[i])) * widen(grad[i]);
#pragma unroll
        for (int offset = GROUP / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(threads, sum, offset);
        if (lane == 0) static_cast<C*>(p.delta)[row] = static_cast<C>(sum);
    }
}
