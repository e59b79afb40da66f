// Layer normalisation of long rows, which stream through shared memory (gradewise/stream.cuh) and are read once. For all lengths, and
// for the gradients: ops/layer_norm.cu.
//
// Dynamic shared memory has, after the rows, `weight` and `bias`, if there is either: room for both.
#include "gradewise/math.cuh"
#include "gradewise/stream.cuh"

namespace {

extern __shared__ uint4 slots[];

/// What a thread adds its few dozen elements in: those of 16 bits have not the digits that double precision would keep.
template <class T>
struct PartOf {
    using type = float;
};
template <>
struct PartOf<float> {
    using type = double;
};
template <class T>
using Part = typename PartOf<T>::type;

/// out = (x - mean)·inverse_std·weight + bias with the mean and the inverse standard deviation of each row; `weight` and `bias` may be
/// null. So may `means`: then rows are not centred, which makes it the RMS norm.
template <class T, int K>
GW_DEVICE void forward(const T* x, const T* weight, const T* bias, T* out, float* means, float* inverse_stds, int count, int columns,
                       double epsilon, Partials<Part<T>> (&sums)[2]) {
    using C = Part<T>;
    using Stream = RowStream<T, K>;
    using Row = typename Stream::Row;
    constexpr int W = Row::WIDE;
    const int threads = static_cast<int>(blockDim.x * blockDim.y), thread = static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x);
    const int packs = columns / W;
    Stream stream(x, count, columns, slots);
    uint4* const kept = slots + threads * K;
    for (int i = thread; i < packs; i += threads) {
        if (weight) kept[i] = reinterpret_cast<const uint4*>(weight)[i];
        if (bias) kept[packs + i] = reinterpret_cast<const uint4*>(bias)[i];
    }
    const uint4* const weights = kept + Stream::first_element() / W;
    const uint4* const biases = weights + packs;
    sums[0].clear(0);
    sums[1].clear(0);
    __syncthreads();
    const C share = C(1) / static_cast<C>(columns);
    int room = 0;
    T* target = out + static_cast<i64>(Stream::first_row()) * columns + Stream::first_element();
    for (int row = Stream::first_row(); row < count; row += Stream::rows_at_a_time()) {
        Row values;
        stream.take(values, Words<T>::ZERO);
        C exact_mean = 0;
        if (means) {
            C parts[4] = {0, 0, 0, 0};
#pragma unroll
            for (int i = 0; i < Row::SIZE; ++i) parts[i % 4] += values[i];
            exact_mean = sums[room].across(folded(parts, Plus()), Plus()) * share;
            room ^= 1;
            stream.advance();
        }
        C parts[4] = {0, 0, 0, 0};
#pragma unroll
        for (int k = 0; k < K; ++k) {
            values.anew(k);
            if (!stream.has(k)) continue;
#pragma unroll
            for (int i = 0; i < W; ++i) {
                const C centred = values[k * W + i] - exact_mean;
                parts[i % 4] += centred * centred;
            }
        }
        if (!means) stream.advance();
        const C variance = sums[room].across(folded(parts, Plus()), Plus()) * share;
        room ^= 1;
        const float mean = static_cast<float>(exact_mean);
        const float inverse_std = static_cast<float>(inverse_root(variance + static_cast<C>(epsilon)));
        if (threadIdx.x == 0) {
            if (means) means[row] = mean;
            inverse_stds[row] = inverse_std;
        }
#pragma unroll
        for (int k = 0; k < K; ++k) {
            values.anew(k);
            if (!stream.has(k)) continue;
            float results[W];
#pragma unroll
            for (int i = 0; i < W; ++i) results[i] = (values[k * W + i] - mean) * inverse_std;
            Packs<T, 1> scale, shift;
            if (weight) scale.set(0, weights[32 * k]);
            if (bias) shift.set(0, biases[32 * k]);
            if (weight && bias) {
#pragma unroll
                for (int i = 0; i < W; ++i) results[i] = results[i] * scale[i] + shift[i];
            } else if (weight) {
#pragma unroll
                for (int i = 0; i < W; ++i) results[i] *= scale[i];
            } else if (bias) {
#pragma unroll
                for (int i = 0; i < W; ++i) results[i] += shift[i];
            }
            store_pack<T>(target + k * Stream::APART, results);
        }
        target += stream.step;
    }
}

}  // namespace

#define GW_STREAMED(T, NAME, K)                                                                               \
    extern "C" __global__ void __launch_bounds__((kStreamThreads<K>), (kStreamBlocks<K>))                      \
        gw_layer_norm_fwd_streamed_##K##_##NAME(const T* x, const T* weight, const T* bias, T* out,           \
                                                Compute<T>* mean, Compute<T>* inverse_std, i64 rows,          \
                                                i64 features, double epsilon) {                               \
        __shared__ Partials<Part<T>> sums[2];                                                                 \
        forward<T, K>(x, weight, bias, out, mean, inverse_std, static_cast<int>(rows),                        \
                      static_cast<int>(features), epsilon, sums);                                             \
    }
// Shorter rows of f32 are held in registers (ops/layer_norm.cu): sums in double precision leave nothing to wait for.
GW_STREAMED(float, f32, 8)
GW_STREAMED(bf16, bf16, 4)
GW_STREAMED(bf16, bf16, 8)
GW_STREAMED(f16, f16, 4)
GW_STREAMED(f16, f16, 8)
