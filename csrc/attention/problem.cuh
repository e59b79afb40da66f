// Attention (Vaswani et al. 2017), one tile of queries or keys at a time (Rabe & Staats 2021, Dao et al. 2022): the problem of a
// launch, shared by all engines.
//
// out = softmax(scale·Q·Kᵀ)·V for each batch and head; `group` heads share a head of K and V. Only a tile of the softmax exists at
// a time. The forward pass writes log Σ e^(scale·q·k) of each row, from which the backward pass computes the softmax again. The
// backward pass has one kernel for the gradient of Q and one for those of K and V, so that every sum has one writer and one order.
#pragma once

#include "attention/attention_launch.cuh"
#include "gradewise/math.cuh"

/// Strides in elements between batches, heads and tokens; features are adjacent.
struct Steps {
    i64 batch, head, token;
};

/// Rows from `begin` to before `end` of the other side of a product.
struct alignas(8) Span {
    int begin, end;

    GW_DEVICE bool has(int at) const { return begin <= at && at < end; }
};

/// Which weights are dropped (attention/dropout.cuh).
struct AttentionDropout {
    /// The keys of the generator's rounds, computed by the host: as operands in constant memory they cost nothing.
    u32 round_keys[20];
    u64 stream;
    /// A weight is dropped if its 16 random bits are below this; 0 for no dropout.
    i64 threshold;
    /// The factor of the weights that are kept.
    double kept;
};

struct Attention {
    const void *q, *k, *v;
    void* out;
    /// [batch, heads, queries] in the computing precision: log Σ, and in the backward pass Σ out·grad.
    void* log_sums;
    void* delta;
    const void* grad;
    void *grad_q, *grad_k, *grad_v;
    /// Number of keys of each batch; null if all are present.
    const u32* lengths;
    /// [batch, keys]: a key with mask 0 is invisible; null for no mask.
    const void* mask;
    Steps q_steps, k_steps, v_steps, out_steps, grad_steps, grad_q_steps, grad_k_steps, grad_v_steps;
    /// `features` are those of queries and keys, `values` those of values and results.
    i64 heads, group, queries, keys, features, values;
    /// Whether query i sees only the keys up to i + keys - queries.
    i64 causal;
    double scale;
    /// What follows is for general kernels only. Of packed sequences: the keys that each query sees, and the queries that see each key, as
    /// far as sequences and the causal mask decide (attention_spans); null if tokens are one sequence.
    const Span *query_spans, *key_spans;
    AttentionDropout dropout;
};

/// The tile of a block: each head of each batch has `tiles`. Tiles of one head are consecutive, so that its keys stay in the cache;
/// tiles of causal attention, which differ in length, are ordered by length, the longest first.
struct Place {
    i64 batch, head;
    int tile;

    GW_DEVICE Place(const Attention& p, int tiles, i64 heads) : Place(p, tiles, heads, blockIdx.x, gridDim.x) {}

    /// The place of unit number `unit` of `units`.
    GW_DEVICE Place(const Attention& p, int tiles, i64 heads, i64 unit, i64 units) {
        // A launcher asks for fewer than 2³¹ units, and divisions of 32 bits take few instructions and registers.
        const u32 index = static_cast<u32>(unit), each = static_cast<u32>(tiles), all = static_cast<u32>(units) / each;
        const u32 of_head = p.causal ? index % all : index / each;
        tile = static_cast<int>(p.causal ? each - 1 - index / all : index % each);
        head = of_head % static_cast<u32>(heads);
        batch = of_head / static_cast<u32>(heads);
    }
};

template <class T>
GW_DEVICE T* part(T* data, const Steps& steps, i64 batch, i64 head) {
    return data + batch * steps.batch + head * steps.head;
}

/// The keys of a batch that queries see.
template <class T>
struct Visible {
    /// Number of keys, and the key that query 0 sees last under the causal mask.
    int length, offset;
    bool causal;
    const T* mask;

    GW_DEVICE Visible(const Attention& p, i64 batch) : Visible(p, batch, static_cast<int>(p.keys)) {
        if (p.lengths != nullptr && p.lengths[batch] < static_cast<u32>(length)) length = static_cast<int>(p.lengths[batch]);
    }

    /// Given the number of keys of this batch.
    GW_DEVICE Visible(const Attention& p, i64 batch, int length)
        : length(length),
          offset(static_cast<int>(p.keys - p.queries)),
          causal(p.causal != 0),
          mask(p.mask == nullptr ? nullptr : static_cast<const T*>(p.mask) + batch * p.keys) {}

    /// One past the last key that any of the queries below `query` sees.
    GW_DEVICE int end(int query) const {
        const int last = causal && query + offset < length ? query + offset : length;
        return last < 0 ? 0 : last;
    }

    /// The first query that sees `key`.
    GW_DEVICE int begin(int key) const { return causal && key > offset ? key - offset : 0; }

    /// Whether every query from `query` on sees all keys from `first` to `last`. There must be at least one.
    GW_DEVICE bool whole(int query, int last) const {
        return last < length && mask == nullptr && (!causal || last <= query + offset);
    }

    GW_DEVICE bool sees(int query, int key) const {
        if (key >= length || (causal && key > query + offset)) return false;
        return mask == nullptr || widen(mask[key]) != Compute<T>(0);
    }
};

/// What is visible in a general kernel, of packed sequences or not. A row is a query or a key, and its span is what it sees of the other
/// side. Begins and ends of spans never decrease from one row to the next, so those of the first and last row bound a tile.
template <class T, bool OF_KEYS>
struct Spans {
    const Attention& p;
    Visible<T> visible;

    GW_DEVICE Spans(const Attention& p, i64 batch) : p(p), visible(p, batch) {}
    GW_DEVICE Spans(const Attention& p, i64 batch, int length) : p(p), visible(p, batch, length) {}

    /// The span of a row, of the last row for those beyond it. There must be a row.
    GW_DEVICE Span of(int row) const {
        const int count = static_cast<int>(OF_KEYS ? p.keys : p.queries);
        if (row >= count) row = count - 1;
        if constexpr (OF_KEYS) {
            const int queries = static_cast<int>(p.queries);
            if (row >= visible.length) return {queries, queries};
            if (p.key_spans != nullptr) return p.key_spans[row];
            return {visible.begin(row), queries};
        } else {
            if (p.query_spans == nullptr) return {0, visible.end(row + 1)};
            Span span = p.query_spans[row];
            if (span.end > visible.length) span.end = visible.length;
            if (span.begin > span.end) span.begin = span.end;
            return span;
        }
    }

    /// A span that has those of all rows from `first` to `last`. It begins at a multiple of 16, as dropout requires of tiles.
    GW_DEVICE Span any(int first, int last) const { return {of(first).begin / 16 * 16, of(last).end}; }

    /// What all rows from `first` to `last` see; nothing where a mask has a say.
    GW_DEVICE Span all(int first, int last) const {
        if (visible.mask != nullptr) return {0, 0};
        return {of(last).begin, of(first).end};
    }

    /// Whether the mask shows the key of a row and a column of its span.
    GW_DEVICE bool shown(int row, int column) const {
        if (visible.mask == nullptr) return true;
        const int key = OF_KEYS ? row : column, last = static_cast<int>(p.keys) - 1;
        return widen(visible.mask[key < last ? key : last]) != Compute<T>(0);
    }
};

/// log Σ e^x from the greatest x and Σ e^(x - greatest); -∞ if there is nothing.
template <class C>
GW_DEVICE C log_sum(C greatest, C sum) {
    const C infinity = static_cast<C>(__int_as_float(0x7f800000));
    return sum == C(0) ? -infinity : greatest + static_cast<C>(log(static_cast<double>(sum)));
}
