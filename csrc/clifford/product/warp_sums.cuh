// Several sums over a warp at a time, with fewer shuffles than one butterfly each.
#pragma once

#include "gradewise/types.cuh"

/// K sums over LANES adjacent lanes of a warp each; P is K rounded up to a power of two.
template <int K, int LANES = 32>
struct WarpSums {
    static constexpr int power_of_two(int n) { return n <= 1 ? 1 : 2 * power_of_two((n + 1) / 2); }
    static constexpr int P = power_of_two(K);
    /// Lanes per sum in the result: lane l of its LANES holds value l/EACH.
    static constexpr int EACH = LANES / P;

    /// First half: each step exchanges one half of the values, until a lane holds one partial sum. All lanes must call it.
    template <class C>
    GW_DEVICE static C parts(const C (&values)[K]) {
        C part[P];
#pragma unroll
        for (int i = 0; i < P; ++i) part[i] = i < K ? values[i] : C(0);
#pragma unroll
        for (int half = P / 2, distance = LANES / 2; half > 0; half /= 2, distance /= 2) {
            const bool upper = threadIdx.x & distance;
#pragma unroll
            for (int i = 0; i < P / 2; ++i) {
                if (i >= half) continue;
                const C sent = upper ? part[i] : part[i + half];
                const C kept = upper ? part[i + half] : part[i];
                part[i] = kept + __shfl_xor_sync(0xffffffffu, sent, distance);
            }
        }
        return part[0];
    }

    /// Second half: adds the partial sums of a value's EACH lanes. All lanes must call it.
    template <class C>
    GW_DEVICE static C whole(C part) {
#pragma unroll
        for (int distance = EACH / 2; distance > 0; distance /= 2) part += __shfl_xor_sync(0xffffffffu, part, distance);
        return part;
    }
};
