// The grade-wise linear map between few features and many (at most 8 on one side), and its gradients.
//
// Such maps are bound by memory: the side of many features is read or written once. Both passes consist of three functions of the
// few features f [blades, batch, few], the many m [blades, batch, many] and the matrices w of the grades, whichever side is the input:
//
//     few_to_many  m = f·w (+ bias)     forward to many features, the input's gradient of a map from many
//     many_to_few  f = m·wᵀ (+ bias)    forward to few features, the input's gradient of a map from few
//     weight_grad  Σ over rows of fᵀ·m  the gradients of the matrices, and with it that of a bias on either side
//
// Rows are those of all blades, one after the other. Blades of a grade are adjacent, so a group of rows (blockIdx.y) shares a matrix;
// blockIdx.x is one of gridDim.x stretches of each group's rows.
#pragma once

#include "clifford/linear/few_to_many_launch.cuh"
#include "clifford/pointwise/square_sum.cuh"
#include "gradewise/stream.cuh"
#include "gradewise/strided.cuh"
#include "ptx/store.cuh"

/// The side whose features have a bias.
enum class BiasSide : i32 { NONE, FEW, MANY };

/// A map and its arrays. Those that a kernel does not use may be null. Many features are of T, all the rest is of P: T, or in mixed
/// precision float.
template <class T, class P>
struct FewFeaturesMap {
    /// One side is read, the other one read or written: `few_out` and `many_out`.
    const P* few;
    const T* many;
    P* few_out;
    T* many_out;
    /// Matrices: element (grade, f, m) is at grade·grade_step + f·few_step + m·many_step.
    const P* w;
    /// Null, or added to the first `biased` rows by `few_to_many` and `many_to_few`.
    const P* bias;
    /// Of `weight_grad`: float [stretches, gradients], or P [gradients] where there is one stretch: the matrices' in the layout of w, then the
    /// bias's, summed over the first `biased` rows, if `bias_side` says so.
    void* sums;
    i64 batch, biased, grade_step, few_step, many_step;
    /// Gradients of a stretch, and where the bias's begin.
    i64 gradients, bias_at;
    i32 few_features, many_features;
    /// Packs of adjacent many features that a block of `few_to_many` and `weight_grad` has, from blockIdx.z·packs on.
    i32 packs;
    BiasSide bias_side;
    /// The first blade of each group, and one past the last.
    i32 first[few_features::MOST_GRADES + 1];
};

/// The rows of a block.
struct Stretch {
    i64 begin, end;

    template <class T, class P>
    GW_DEVICE explicit Stretch(const FewFeaturesMap<T, P>& map) {
        const i64 first = map.first[blockIdx.y] * map.batch, last = map.first[blockIdx.y + 1] * map.batch;
        const i64 length = (last - first + gridDim.x - 1) / gridDim.x;
        begin = first + blockIdx.x * length;
        end = begin + length < last ? begin + length : last;
    }
};

/// The type of sums over few features, for many of type T. In f32 they are formed in double precision where that costs no time: memory takes longer.
template <class T, bool FAST>
struct FeatureSum {
    using type = float;
};
template <>
struct FeatureSum<float, true> {
    using type = double;
};

/// The functions for up to K few features, V adjacent many features at a time: 1, or 4 where rows are a multiple of that and aligned.
template <class T, class P, int K, int V>
struct FewFeaturesFunctions {
    using Map = FewFeaturesMap<T, P>;
    /// One product is rounded once in any case.
    using Term = typename FeatureSum<T, FAST_DOUBLE && (K > 1)>::type;

    /// Loads the few features of a row; zeros beyond the last.
    GW_DEVICE static void load_few(const P* source, int count, float (&values)[K]) {
#pragma unroll
        for (int k = 0; k < K; ++k) values[k] = k < count ? widen(source[k]) : 0.0f;
    }

    /// Rounds and stores adjacent elements.
    GW_DEVICE static void store_pack(T* target, const float (&values)[V]) {
        if constexpr (V == 1) {
            *target = narrow<T>(values[0]);
        } else {
            constexpr int EACH = 4 / sizeof(T);
            u32 words[V / EACH];
#pragma unroll
            for (int i = 0; i < V / EACH; ++i) words[i] = Words<T>::narrow(values + i * EACH);
            store_words(target, words);
        }
    }

    /// Computes `many_out` if FEW_TO_MANY, and the gradients if WEIGHT_GRAD. A thread keeps its pack of columns, with their matrix entries and
    /// sums in registers, and takes every `lanes`th row of the block's stretch.
    template <bool WEIGHT_GRAD, bool FEW_TO_MANY>
    GW_DEVICE static void by_columns(const Map& map) {
        extern __shared__ float scratch[];
        // Rows of a thread whose loads are in flight at a time, as many as there are registers for.
        constexpr int UNROLL = K > (WEIGHT_GRAD && FEW_TO_MANY ? 3 : 4) ? 2 : 4;
        const Stretch rows(map);
        const int few = map.few_features, many = map.many_features, packs = map.packs;
        const int lanes = few_features::THREADS / packs, lane = threadIdx.x / packs, pack = threadIdx.x % packs;
        const int column = (blockIdx.z * packs + pack) * V;
        const bool works = lane < lanes && column < many;

        Term w[K][V];
        float bias[V];
        if constexpr (FEW_TO_MANY) {
            const P* const entries = map.w + blockIdx.y * map.grade_step + column * map.many_step;
#pragma unroll
            for (int v = 0; v < V; ++v) {
                bias[v] = works && map.bias ? widen(map.bias[column + v]) : 0.0f;
#pragma unroll
                for (int k = 0; k < K; ++k) {
                    w[k][v] = works && k < few ? widen(entries[k * map.few_step + v * map.many_step]) : 0.0f;
                }
            }
        }
        float sums[K][V] = {}, many_bias[V] = {}, few_bias[K] = {};
        const i64 step = static_cast<i64>(lanes) * many;
        i64 at = (rows.begin + lane) * many + column;
        const P* source = map.few + (rows.begin + lane) * few;
        for (i64 row = rows.begin + lane; works && row < rows.end; row += UNROLL * lanes) {
            float f[UNROLL][K], m[UNROLL][V] = {};
#pragma unroll
            for (int u = 0; u < UNROLL; ++u) {
                const bool inside = row + u * lanes < rows.end;
                load_few(source + u * lanes * few, inside ? few : 0, f[u]);
                if constexpr (WEIGHT_GRAD) {
                    if (inside) load<V>(map.many + at + u * step, m[u]);
                }
            }
#pragma unroll
            for (int u = 0; u < UNROLL; ++u) {
                if constexpr (FEW_TO_MANY) {
                    const bool is_biased = row + u * lanes < map.biased;
                    float values[V];
#pragma unroll
                    for (int v = 0; v < V; ++v) {
                        Term sum = 0;
#pragma unroll
                        for (int k = 0; k < K; ++k) sum += Term(f[u][k]) * w[k][v];
                        // Rounded before the bias is added, as in products of matrices and on the CPU.
                        values[v] = __fadd_rn(static_cast<float>(sum), is_biased ? bias[v] : 0.0f);
                    }
                    if (row + u * lanes < rows.end) store_pack(map.many_out + at + u * step, values);
                }
                if constexpr (WEIGHT_GRAD) {
#pragma unroll
                    for (int k = 0; k < K; ++k) {
#pragma unroll
                        for (int v = 0; v < V; ++v) sums[k][v] += f[u][k] * m[u][v];
                    }
                    if (map.bias_side != BiasSide::NONE && row + u * lanes < map.biased) {
#pragma unroll
                        for (int v = 0; v < V; ++v) many_bias[v] += m[u][v];
#pragma unroll
                        for (int k = 0; k < K; ++k) few_bias[k] += f[u][k];
                    }
                }
            }
            at += UNROLL * step;
            source += UNROLL * lanes * few;
        }
        if constexpr (WEIGHT_GRAD) {
            const int columns = packs * V, products = few * columns;
            const bool of_few = map.bias_side == BiasSide::FEW && blockIdx.z == 0;
            const int results = products + (map.bias_side == BiasSide::MANY ? columns : of_few ? few : 0);
            if (lane < lanes) {
                float* const own = scratch + lane * results;
#pragma unroll
                for (int k = 0; k < K; ++k) {
#pragma unroll
                    for (int v = 0; v < V; ++v) {
                        if (k < few) own[k * columns + pack * V + v] = sums[k][v];
                    }
                    if (of_few && pack == 0 && k < few) own[products + k] = few_bias[k];
                }
#pragma unroll
                for (int v = 0; v < V; ++v) {
                    if (map.bias_side == BiasSide::MANY) own[products + pack * V + v] = many_bias[v];
                }
            }
            __syncthreads();
            add_lanes(map, lanes, results, columns);
        }
    }

    /// Adds up the lanes' sums and writes them. Adjacent threads share a result where there are more threads than results.
    GW_DEVICE static void add_lanes(const Map& map, int lanes, int results, int columns) {
        extern __shared__ float scratch[];
        int share = 1;
        // Counted with a bias on either side, so that the matrices' gradients have the same bits without one.
        const int most = map.few_features * columns + columns + map.few_features;
        while (share < 32 && 2 * share * most <= few_features::THREADS) share *= 2;
        const int part = threadIdx.x % share, products = map.few_features * columns;
        // With threads that share there is one round, in which all threads of a warp take part.
        for (int i = threadIdx.x / share; i < results || share > 1; i += few_features::THREADS / share) {
            float total = 0;
            if (i < results) {
                float other = 0;
                int lane = part;
                for (; lane + share < lanes; lane += 2 * share) {
                    total += scratch[lane * results + i];
                    other += scratch[(lane + share) * results + i];
                }
                if (lane < lanes) total += scratch[lane * results + i];
                total += other;
            }
            for (int offset = share / 2; offset > 0; offset /= 2) total += __shfl_xor_sync(0xffffffffu, total, offset);
            const int k = i / columns, column = blockIdx.z * columns + i % columns;
            i64 place = map.bias_at + (map.bias_side == BiasSide::MANY ? column : i - products);
            bool writes = i < results && part == 0 && blockIdx.y == 0;
            if (i < products) {
                place = blockIdx.y * map.grade_step + k * map.few_step + column * map.many_step;
                writes = i < results && part == 0;
            }
            if (writes && (column < map.many_features || (i >= products && map.bias_side == BiasSide::FEW))) {
                if (gridDim.x == 1) {
                    static_cast<P*>(map.sums)[place] = narrow<P>(total);
                } else {
                    static_cast<float*>(map.sums)[blockIdx.x * map.gradients + place] = total;
                }
            }
            if (share > 1) break;
        }
    }

    GW_DEVICE static void few_to_many(const Map& map) { by_columns<false, true>(map); }
    GW_DEVICE static void weight_grad(const Map& map) { by_columns<true, false>(map); }
    GW_DEVICE static void grads(const Map& map) { by_columns<true, true>(map); }

    /// Adds the lower half of N values of one lane to that of the lane that differs in a bit, and the upper half where the bit is set:
    /// N/2 sums over both lanes remain.
    template <int BIT, int N, int SIZE>
    GW_DEVICE static void add_halves(float (&values)[SIZE]) {
        const bool upper = threadIdx.x & BIT;
#pragma unroll
        for (int i = 0; i < N / 2; ++i) {
            const float kept = upper ? values[N / 2 + i] : values[i], sent = upper ? values[i] : values[N / 2 + i];
            values[i] = kept + __shfl_xor_sync(0xffffffffu, sent, BIT);
        }
    }

    /// Computes `few_out`. LANES adjacent threads share a row; the matrix is in shared memory, [few][many], with zeros up to K.
    GW_DEVICE static void many_to_few(const Map& map) {
        extern __shared__ __align__(16) float w[];
        constexpr int LANES = few_features::LANES, ROWS_AT_ONCE = few_features::THREADS / LANES;
        // Sums of a lane: a power of two and at least as many as lanes, so that one exchange per bit adds them up.
        constexpr int SUMS = K == 1 ? LANES : 2 * LANES, ROWS_PER_LANE = SUMS / K;
        static_assert(ROWS_PER_LANE * K == SUMS, "K is a power of two");
        const Stretch rows(map);
        const int few = map.few_features, many = map.many_features;
        for (int i = threadIdx.x; i < K * many; i += few_features::THREADS) {
            const int k = i / many, column = i % many;
            w[i] = k < few ? widen(map.w[blockIdx.y * map.grade_step + k * map.few_step + column * map.many_step]) : 0.0f;
        }
        const int lane = threadIdx.x % LANES;
        // What this lane has in the end.
        const int place = ((lane & 1) * 4 + (lane & 2) + (lane >> 2 & 1)) * (SUMS / LANES);
        float bias[SUMS / LANES];
#pragma unroll
        for (int i = 0; i < SUMS / LANES; ++i) {
            const int k = (place + i) % K;
            bias[i] = map.bias && k < few ? widen(map.bias[k]) : 0.0f;
        }
        __syncthreads();
        // All threads of a warp make the same number of turns, for the exchanges at the end of each.
        for (i64 base = rows.begin; base < rows.end; base += ROWS_PER_LANE * ROWS_AT_ONCE) {
            const i64 row = base + threadIdx.x / LANES;
            float sums[SUMS] = {};
            for (int column = lane * V; column < many; column += LANES * V) {
                float m[ROWS_PER_LANE][V] = {};
#pragma unroll
                for (int u = 0; u < ROWS_PER_LANE; ++u) {
                    if (row + u * ROWS_AT_ONCE < rows.end) load<V>(map.many + (row + u * ROWS_AT_ONCE) * many + column, m[u]);
                }
#pragma unroll
                for (int k = 0; k < K; ++k) {
                    float entries[V];
                    load<V>(w + k * many + column, entries);
#pragma unroll
                    for (int v = 0; v < V; ++v) {
#pragma unroll
                        for (int u = 0; u < ROWS_PER_LANE; ++u) sums[u * K + k] += m[u][v] * entries[v];
                    }
                }
            }
            add_halves<1, SUMS>(sums);
            add_halves<2, SUMS / 2>(sums);
            add_halves<4, SUMS / 4>(sums);
#pragma unroll
            for (int i = 0; i < SUMS / LANES; ++i) {
                const int k = (place + i) % K;
                const i64 target = row + (place + i) / K * ROWS_AT_ONCE;
                if (k < few && target < rows.end) {
                    map.few_out[target * few + k] = narrow<P>(target < map.biased ? sums[i] + bias[i] : sums[i]);
                }
            }
        }
    }
};
