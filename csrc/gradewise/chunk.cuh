// Sums over rows in two stages: a block sums the rows of a chunk, and partials.cu adds the chunks in order.
#pragma once

#include "gradewise/types.cuh"

/// The chunk of `size` rows numbered blockIdx.z, of arrays [.., rows, features]. A thread takes one feature at a time.
struct Chunk {
    i64 rows, features, begin, end;

    GW_DEVICE Chunk(i64 rows, i64 features, i64 size) : rows(rows), features(features), begin(blockIdx.z * size) {
        end = begin + size < rows ? begin + size : rows;
    }

    /// Calls f(feature) for each of the thread's features.
    template <class F>
    GW_DEVICE void each_feature(F f) const {
        for (i64 feature = thread_index(); feature < features; feature += thread_count()) f(feature);
    }

    /// Calls f(row, position) for the chunk's rows in order, with the position of the feature in [rows, features].
    template <class F>
    GW_DEVICE void each_row(i64 feature, F f) const {
        for (i64 row = begin; row < end; ++row) f(row, row * features + feature);
    }

    /// The position of a feature in partial results [chunks, features].
    GW_DEVICE i64 place(i64 feature) const { return blockIdx.z * features + feature; }
};
