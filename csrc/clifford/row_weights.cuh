// The weights of a product's features: how a thread reads its own, and how a block leaves the sums of their gradients.
#pragma once

#include "gradewise/types.cuh"

/// Of threads that have V adjacent features each, with PATHS weights of type T, in arithmetic on C.
template <class C, class T, int PATHS, int V>
struct RowWeights {
    /// How many of a thread's weights are adjacent and aligned, for all threads.
    static constexpr int AT_ONCE = V * PATHS % 4 == 0 ? 4 : V * PATHS % 2 == 0 ? 2 : 1;

    /// `set(path, v, value)` for all weights of a thread's features, the first of which is at `w`.
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

    /// What a thread works on: its first feature of `across`, the number `y` of its row among `together` that are worked on at a time, and
    /// whether it has any.
    struct Place {
        i32 feature, across, y, together;
        bool active;
    };

    /// Writes the sums of a block's rows by way of shared memory, where those of rows that were worked on at a time are added, in order: to
    /// `to_weights` [across, PATHS] and `to_biases` [across]. `threads` threads take part, and `meet` there.
    template <class S, class M>
    GW_DEVICE static void leave(const S& sums, const C (&bias)[V], const Place& place, C* shared, C* to_weights, C* to_biases,
                                i32 thread, i32 threads, M meet) {
        C* const weights = shared + place.feature * PATHS;
        C* const biases = shared + place.across * PATHS + place.feature;
        meet();
#pragma unroll 1
        for (i32 y = 0; y < place.together; ++y) {
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
            meet();
        }
        for (i32 i = thread; i < place.across * PATHS; i += threads) to_weights[i] = shared[i];
        for (i32 i = thread; i < place.across; i += threads) to_biases[i] = shared[place.across * PATHS + i];
    }
};
