// Softmax and its logarithm of long rows, which stream through shared memory (gradewise/stream.cuh) and are read once. For all lengths:
// ops/softmax.cu.
#include "gradewise/math.cuh"
#include "gradewise/stream.cuh"

namespace {

extern __shared__ uint4 slots[];

/// e^(x - max) / Σ e^(x - max), or the logarithm. Rows of -∞ alone give zeros, or -∞; NaN spreads over its row.
template <class T, int K, bool LOGARITHM>
GW_DEVICE void softmax(const T* x, T* out, int count, int columns, Partials<float>& greatest, Partials<double>& sums) {
    using Stream = RowStream<T, K>;
    using Row = typename Stream::Row;
    constexpr int W = Row::WIDE;
    const float infinity = __int_as_float(0x7f800000);
    greatest.clear(-infinity);
    sums.clear(0);
    Stream stream(x, count, columns, slots);
    __syncthreads();
    T* target = out + static_cast<i64>(Stream::first_row()) * columns + Stream::first_element();
    for (int row = Stream::first_row(); row < count; row += Stream::rows_at_a_time()) {
        Row values;
        stream.take(values, Words<T>::LEAST);
        float most[4] = {-infinity, -infinity, -infinity, -infinity};
#pragma unroll
        for (int i = 0; i < Row::SIZE; ++i) most[i % 4] = fmaxf(most[i % 4], values[i]);
        // A NaN may lose here; it reaches the whole row through the sum.
        const float max = greatest.across(folded(most, Greater()), Greater());
        stream.advance();
        values.anew();
        const float shift = max == -infinity ? 0.0f : max;
        const Exponential<float> power(shift);
        float powers[LOGARITHM ? 1 : Row::SIZE];
        float parts[4] = {0, 0, 0, 0};
#pragma unroll
        for (int i = 0; i < Row::SIZE; ++i) {
            const float value = power(values[i]);
            parts[i % 4] += value;
            if constexpr (!LOGARITHM) powers[i] = value;
        }
        const double total = sums.across(static_cast<double>(folded(parts, Plus())), Plus());
        float scale = 0, offset = infinity;
        if (total != 0) {
            if constexpr (LOGARITHM) offset = static_cast<float>(log(total));
            else scale = 1.0f / static_cast<float>(total);
        }
        if constexpr (LOGARITHM) values.anew();
#pragma unroll
        for (int k = 0; k < K; ++k) {
            float results[W];
#pragma unroll
            for (int i = 0; i < W; ++i) {
                if constexpr (LOGARITHM) results[i] = values[k * W + i] - shift - offset;
                else results[i] = powers[k * W + i] * scale;
            }
            if (stream.has(k)) store_pack<T>(target + k * Stream::APART, results);
        }
        target += stream.step;
    }
}

}  // namespace

#define GW_STREAMED(T, NAME, K)                                                                      \
    extern "C" __global__ void __launch_bounds__((STREAM_THREADS<K>), (STREAM_BLOCKS<K>))            \
        gw_softmax_streamed_##K##_##NAME(const T* x, T* out, i64 rows, i64 columns, i32 logarithm) { \
        begin_kernel();                                                                              \
        __shared__ Partials<float> greatest;                                                         \
        __shared__ Partials<double> sums;                                                            \
        const int count = static_cast<int>(rows), length = static_cast<int>(columns);                \
        if (logarithm) {                                                                             \
            softmax<T, K, true>(x, out, count, length, greatest, sums);                              \
        } else {                                                                                     \
            softmax<T, K, false>(x, out, count, length, greatest, sums);                             \
        }                                                                                            \
    }
#define GW_KERNELS(T, NAME)  \
    GW_STREAMED(T, NAME, 4)  \
    GW_STREAMED(T, NAME, 8)
GW_KERNELS(float, f32)
GW_KERNELS(bf16, bf16)
GW_KERNELS(f16, f16)
