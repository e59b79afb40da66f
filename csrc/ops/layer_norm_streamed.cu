// Layer normalisation of long rows, which stream through shared memory (gradewise/stream.cuh) and are read once, and its gradients. For
// all lengths: ops/layer_norm.cu.
//
// Dynamic shared memory: the streams, then `weight` and `bias` (room for both if there is either); for the gradient of x, `weight`
// only.
#include "gradewise/math.cuh"
#include "gradewise/stream.cuh"

namespace {

extern __shared__ uint4 slots[];

/// The type in which a thread adds its few dozen elements. Elements of 16 bits do not have the digits that double precision would
/// keep.
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

/// out = (x - mean)·inverse_std·weight + bias with the mean and the inverse standard deviation of each row. `weight` and `bias` may
/// be null. If `means` is null, rows are not centred: this is the RMS norm.
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

/// The gradient of x. Rows of x and of `grad` stream side by side.
template <class T, int K>
GW_DEVICE void backward(const T* x, const T* weight, const float* means, const float* inverse_stds, const T* grad, T* out, int count,
                        int columns, Partials<Two<Part<T>>> (&sums)[2]) {
    using C = Part<T>;
    using Stream = RowStream<T, K>;
    using Row = typename Stream::Row;
    constexpr int W = Row::WIDE;
    const int threads = static_cast<int>(blockDim.x * blockDim.y), thread = static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x);
    const int packs = columns / W;
    Stream xs(x, count, columns, slots), grads(grad, count, columns, slots + threads * K);
    uint4* const kept = slots + 2 * threads * K;
    for (int i = thread; i < packs && weight; i += threads) kept[i] = reinterpret_cast<const uint4*>(weight)[i];
    const uint4* const weights = kept + Stream::first_element() / W;
    sums[0].clear({0, 0});
    sums[1].clear({0, 0});
    __syncthreads();
    const C share = C(1) / static_cast<C>(columns);
    int room = 0, row = Stream::first_row();
    float mean = 0, inverse_std = 0;
    if (row < count) {
        if (means) mean = means[row];
        inverse_std = inverse_stds[row];
    }
    T* target = out + static_cast<i64>(row) * columns + Stream::first_element();
    for (; row < count; row += Stream::rows_at_a_time()) {
        Row values, slopes;
        xs.take(values, Words<T>::ZERO);
        grads.take(slopes, Words<T>::ZERO);
        // Loads the statistics of the next row early, to hide their latency.
        const int next = row + Stream::rows_at_a_time();
        float next_mean = 0, next_inverse_std = 0;
        if (next < count) {
            if (means) next_mean = means[next];
            next_inverse_std = inverse_stds[next];
        }
        Two<C> parts[2] = {};
#pragma unroll
        for (int k = 0; k < K; ++k) {
            if (!xs.has(k)) continue;
            Packs<T, 1> scale;
            if (weight) scale.set(0, weights[32 * k]);
#pragma unroll
            for (int i = 0; i < W; ++i) {
                const float g = slopes[k * W + i] * (weight ? scale[i] : 1.0f);
                parts[i % 2].first += g;
                parts[i % 2].second += static_cast<C>(g) * ((values[k * W + i] - mean) * inverse_std);
            }
        }
        xs.advance();
        grads.advance();
        const Two<C> sum = sums[room].across(parts[0] + parts[1], Plus());
        room ^= 1;
        const float mean_grad = means ? static_cast<float>(sum.first * share) : 0.0f;
        const float projection = static_cast<float>(sum.second * share);
#pragma unroll
        for (int k = 0; k < K; ++k) {
            values.anew(k);
            slopes.anew(k);
            if (!xs.has(k)) continue;
            Packs<T, 1> scale;
            if (weight) scale.set(0, weights[32 * k]);
            float results[W];
#pragma unroll
            for (int i = 0; i < W; ++i) {
                const float g = slopes[k * W + i] * (weight ? scale[i] : 1.0f);
                results[i] = inverse_std * (g - mean_grad - (values[k * W + i] - mean) * inverse_std * projection);
            }
            store_pack<T>(target + k * Stream::APART, results);
        }
        target += xs.step;
        mean = next_mean;
        inverse_std = next_inverse_std;
    }
}

/// Rows of 16 bits that are added in f32 before their sum is added in double precision.
template <class T>
constexpr int RUN = sizeof(T) == 4 ? 1 : 8;

/// The gradients of the parameters, in the first of two stages, as in ops/layer_norm.cu: blocks of 32 packs of features by 8 rows.
template <class T>
GW_DEVICE void parameters(const T* x, const float* means, const float* inverse_stds, const T* grad, double* weight, double* bias, i64 rows,
                          i64 features, i64 parts) {
    constexpr int W = 16 / sizeof(T), ROWS = 8;
    __shared__ double sums[ROWS][32 * W];
    const i64 tiles = (features + 32 * W - 1) / (32 * W), size = (rows + parts - 1) / parts;
    const int thread = static_cast<int>(threadIdx.y * 32 + threadIdx.x);
    for (i64 unit = blockIdx.x; unit < tiles * parts; unit += gridDim.x) {
        const i64 part = unit / tiles, start = (unit - part * tiles) * (32 * W), feature = start + threadIdx.x * W;
        const i64 end = (part + 1) * size < rows ? (part + 1) * size : rows;
        double totals[2][W] = {};
        for (i64 row = part * size + threadIdx.y; row < end && feature < features; row += ROWS * RUN<T>) {
            Part<T> run[2][W] = {};
#pragma unroll
            for (int i = 0; i < RUN<T>; ++i) {
                const i64 at = row + i * ROWS;
                if (at >= end) continue;
                Packs<T, 1> values, slopes;
                values.set(0, *reinterpret_cast<const uint4*>(x + at * features + feature));
                slopes.set(0, *reinterpret_cast<const uint4*>(grad + at * features + feature));
                const float mean = means ? means[at] : 0.0f, inverse_std = inverse_stds[at];
#pragma unroll
                for (int v = 0; v < W; ++v) {
                    run[0][v] += static_cast<Part<T>>(slopes[v]) * ((values[v] - mean) * inverse_std);
                    run[1][v] += slopes[v];
                }
            }
#pragma unroll
            for (int v = 0; v < W; ++v) {
                totals[0][v] += run[0][v];
                totals[1][v] += run[1][v];
            }
        }
#pragma unroll
        for (int which = 0; which < 2; ++which) {
            __syncthreads();  // The previous sums may still be read.
#pragma unroll
            for (int v = 0; v < W; ++v) sums[threadIdx.y][threadIdx.x * W + v] = totals[which][v];
            __syncthreads();
            if (thread < 32 * W && start + thread < features) {
                double total = 0;
                for (int y = 0; y < ROWS; ++y) total += sums[y][thread];
                (which == 0 ? weight : bias)[(start + thread) * parts + part] = total;
            }
        }
    }
}

}  // namespace

#define GW_STREAMED(T, NAME, K)                                                                      \
    extern "C" __global__ void __launch_bounds__((STREAM_THREADS<K>), (STREAM_BLOCKS<K>))            \
        gw_layer_norm_fwd_streamed_##K##_##NAME(const T* x, const T* weight, const T* bias, T* out,  \
                                                Compute<T>* mean, Compute<T>* inverse_std, i64 rows, \
                                                i64 features, double epsilon) {                      \
        begin_kernel();                                                                              \
        __shared__ Partials<Part<T>> sums[2];                                                        \
        forward<T, K>(x, weight, bias, out, mean, inverse_std, static_cast<int>(rows),               \
                      static_cast<int>(features), epsilon, sums);                                    \
    }
// f32 streams only long rows; shorter ones are held in registers (ops/layer_norm.cu): their double-precision sums bound the time,
// and streaming gains nothing.
GW_STREAMED(float, f32, 8)
GW_STREAMED(bf16, bf16, 4)
GW_STREAMED(bf16, bf16, 8)
GW_STREAMED(f16, f16, 4)
GW_STREAMED(f16, f16, 8)

#define GW_BACKWARD(T, NAME, K)                                                                       \
    extern "C" __global__ void __launch_bounds__((STREAM_THREADS<K>), (STREAM_BLOCKS<K>))             \
        gw_layer_norm_bwd_streamed_##K##_##NAME(const T* x, const T* weight, const Compute<T>* mean,  \
                                                const Compute<T>* inverse_std, const T* grad, T* out, \
                                                i64 rows, i64 features) {                             \
        begin_kernel();                                                                               \
        __shared__ Partials<Two<Part<T>>> sums[2];                                                    \
        backward<T, K>(x, weight, mean, inverse_std, grad, out, static_cast<int>(rows),               \
                       static_cast<int>(features), sums);                                             \
    }
#define GW_KERNELS(T, NAME)                                                                                   \
    GW_BACKWARD(T, NAME, 4)                                                                                   \
    GW_BACKWARD(T, NAME, 8)                                                                                   \
    extern "C" __global__ void __launch_bounds__(256, 2) gw_layer_norm_bwd_parameters_wide_##NAME(            \
        const T* x, const Compute<T>* mean, const Compute<T>* inverse_std, const T* grad, double* weight,     \
        double* bias, i64 rows, i64 features, i64 parts) {                                                    \
        begin_kernel();                                                                                       \
        parameters(x, mean, inverse_std, grad, weight, bias, rows, features, parts);                          \
    }
GW_KERNELS(float, f32)
GW_KERNELS(bf16, bf16)
GW_KERNELS(f16, f16)
