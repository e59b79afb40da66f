// The weights of a product: loading those of a thread's features, and writing the sums of their gradients.
#pragma once

#include "gradewise/types.cuh"

/// Threads have V adjacent features each, with PATHS weights of type T; arithmetic is on C.
template <class C, class T, int PATHS, int V>
struct RowWeights {
    /// Weights per vector access; aligned for all threads.
    static constexpr int AT_ONCE = V * PATHS % 4 == 0 ? 4 : V * PATHS % 2 == 0 ? 2 : 1;

    /// Calls `set(path, v, value)` for all weights of a thread's features; `w` points to the first.
    template <class W>
    GW_DEVICE static void read(const T* w, W set) {
#pragma unroll
        for (int i = 0; i < V * PATHS; i += AT_ONCE) {
            C values[AT_ONCE];
            ::load<AT_ONCE>(w + i, values);
#pragma unroll
            for (int e = 0; e < AT_ONCE; ++e) set((i + e) % PATHS, (i + e) / PATHS, values[e]);
        }
    }

    /// The position of a thread: its first feature of `across`, its row `y` of the `rows_at_once` rows worked on at a time, and whether
    /// it has features at all.
    struct Place {
        i32 feature, across, y, rows_at_once;
        bool active;
    };

    /// Adds the sums of the rows that the block works on at a time, in order, through `shared`, and writes them to `to_weights`
    /// [across, PATHS] and `to_biases` [across]. `threads` threads call it; `barrier` must be a barrier among them.
    template <class S, class B>
    GW_DEVICE static void write(const S& sums, const C (&bias)[V], const Place& place, C* shared, C* to_weights, C* to_biases,
                                i32 thread, i32 threads, B barrier) {
        C* const weights = shared + place.feature * PATHS;
        C* const biases = shared + place.across * PATHS + place.feature;
        barrier();
#pragma unroll 1
        for (i32 y = 0; y < place.rows_at_once; ++y) {
            if (place.y == y && place.active) {
#pragma unroll
                for (int i = 0; i < V * PATHS; i += AT_ONCE) {
                    C values[AT_ONCE] = {};
                    if (y > 0) ::load<AT_ONCE>(weights + i, values);
#pragma unroll
                    for (int e = 0; e < AT_ONCE; ++e) values[e] += sums((i + e) % PATHS, (i + e) / PATHS);
                    ::store<AT_ONCE>(weights + i, values);
                }
#pragma unroll
                for (int v = 0; v < V; ++v) biases[v] = y == 0 ? bias[v] : biases[v] + bias[v];
            }
            barrier();
        }
        for (i32 i = thread; i < place.across * PATHS; i += threads) to_weights[i] = shared[i];
        for (i32 i = thread; i < place.across; i += threads) to_biases[i] = shared[place.across * PATHS + i];
    }
};
