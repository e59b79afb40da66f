// Sums over rows in two stages: a block sums the rows of a chunk, and partials.cu adds the chunks in order.
#pragma once

#include "gradewise/types.cuh"

/// Rows of arrays [.., rows, features], of which each thread sums every LANES-th for one feature at a time. Where features are few, threads
/// that have no feature of their own take rows instead: LANES is how many of a block's threads share a feature (`Chunks` of
/// crates/kernels/src/array/rows.rs). Neighbouring threads are at neighbouring elements. blockIdx.z is the chunk, of `size` rows for each.
struct Chunk {
    i64 rows, features, begin, end;
    i32 lanes, lane;

    GW_DEVICE Chunk(i64 rows, i64 features, i64 size) : rows(rows), features(features), lanes(1), lane(0) {
        if (features < blockDim.x) {
            lanes = static_cast<i32>(blockDim.x / static_cast<u32>(features));
            lane = static_cast<i32>(threadIdx.x / static_cast<u32>(features));
        }
        begin = blockIdx.z * size * lanes;
        end = begin + size * lanes < rows ? begin + size * lanes : rows;
    }

    /// Calls f(feature) for each of the thread's features.
    template <class F>
    GW_DEVICE void each_feature(F f) const {
        if (features < blockDim.x) {
            if (lane < lanes) f(static_cast<i64>(threadIdx.x % static_cast<u32>(features)));
            return;
        }
        for (i64 feature = thread_index(); feature < features; feature += thread_count()) f(feature);
    }

    /// Calls f(row, position) for the thread's rows in order, with the position of the feature in [rows, features].
    template <class F>
    GW_DEVICE void each_row(i64 feature, F f) const {
        for (i64 row = begin + lane; row < end; row += lanes) f(row, row * features + feature);
    }

    /// The position of a feature in partial results [chunks · lanes, features].
    GW_DEVICE i64 place(i64 feature) const { return (blockIdx.z * static_cast<i64>(lanes) + lane) * features + feature; }
};
