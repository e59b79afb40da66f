// Layer normalisation along adjacent elements. Statistics are stored in the compute type, sums are in double precision. Blocks are
// those of gradewise/group.cuh, except in the gradients of the parameters.
#include "gradewise/group.cuh"
#include "gradewise/math.cuh"

namespace {

/// The type in which a thread adds its few dozen elements. Elements of 16 bits do not have the digits that double precision would
/// keep.
template <class T>
struct PartOf {
    using type = double;
};
template <>
struct PartOf<f16> {
    using type = float;
};
template <>
struct PartOf<bf16> {
    using type = float;
};

/// out = (x - mean)·inverse_std·weight + bias with the mean and the inverse standard deviation of each row. `weight` and `bias` may
/// be null. If `means` is null, rows are not centred: this is the RMS norm, here and below.
template <class T>
GW_DEVICE void forward(const T* x, const T* weight, const T* bias, T* out, Compute<T>* means, Compute<T>* inverse_stds,
                       i64 count, i64 features, double epsilon) {
    using C = Compute<T>;
    __shared__ double sums[32];
    each_row(count, [&](i64 row, bool there) {
        const i64 length = there ? features : 0;
        const T* source = x + row * features;
        double exact_mean = 0;
        if (means) {
            double sum = 0;
            for (i64 i = threadIdx.x; i < length; i += blockDim.x) sum += widen(source[i]);
            exact_mean = row_sum(sum, sums) / features;
        }
        double squares = 0;
        for (i64 i = threadIdx.x; i < length; i += blockDim.x) {
            const double centred = widen(source[i]) - exact_mean;
            squares += centred * centred;
        }
        const double variance = row_sum(squares, sums) / features;
        const C mean = static_cast<C>(exact_mean), inverse_std = static_cast<C>(1 / sqrt(variance + epsilon));
        if (there && threadIdx.x == 0) {
            if (means) means[row] = mean;
            inverse_stds[row] = inverse_std;
        }
        for (i64 i = threadIdx.x; i < length; i += blockDim.x) {
            C value = (widen(source[i]) - mean) * inverse_std;
            if (weight) value *= widen(weight[i]);
            if (bias) value += widen(bias[i]);
            out[row * features + i] = narrow<T>(value);
        }
    });
}

/// The same with rows held in registers, which are read once.
template <class T, int K>
GW_DEVICE void forward_held(const T* x, const T* weight, const T* bias, T* out, Compute<T>* means, Compute<T>* inverse_stds, i64 count,
                            i64 features, double epsilon) {
    using C = Compute<T>;
    using Row = RowRegisters<T, K>;
    using Part = typename PartOf<T>::type;
    constexpr int W = Row::WIDE;
    __shared__ Part sums[32];
    each_row(count, [&](i64 row, bool there) {
        const int length = there ? static_cast<int>(features) : 0;
        Row values;
        values.read(x + row * features, length, C(0));
        Part exact_mean = 0;
        if (means) {
            Part sum = 0;
#pragma unroll
            for (int i = 0; i < Row::SIZE; ++i) sum += values[i];
            exact_mean = row_sum(sum, sums) / static_cast<Part>(features);
        }
        values.anew();
        Part squares = 0;
#pragma unroll
        for (int k = 0; k < K; ++k) {
            if (Row::column(k) >= length) continue;
#pragma unroll
            for (int i = 0; i < W; ++i) {
                const Part centred = values[k * W + i] - exact_mean;
                squares += centred * centred;
            }
        }
        const Part variance = row_sum(squares, sums) / static_cast<Part>(features);
        values.anew();
        const C mean = static_cast<C>(exact_mean), inverse_std = static_cast<C>(inverse_root(variance + static_cast<Part>(epsilon)));
        if (there && threadIdx.x == 0) {
            if (means) means[row] = mean;
            inverse_stds[row] = inverse_std;
        }
#pragma unroll
        for (int k = 0; k < K; ++k) {
            const int column = Row::column(k);
            if (column >= length) continue;
            C normalized[W];
#pragma unroll
            for (int i = 0; i < W; ++i) normalized[i] = (values[k * W + i] - mean) * inverse_std;
            // Weight first, then bias: both at once take more registers than a thread has.
            C affine[W];
            if (weight) {
                load<W>(weight + column, affine);
#pragma unroll
                for (int i = 0; i < W; ++i) normalized[i] *= affine[i];
            }
            if (bias) {
                load<W>(bias + column, affine);
#pragma unroll
                for (int i = 0; i < W; ++i) normalized[i] += affine[i];
            }
            store<W>(out + row * features + column, normalized);
        }
    });
}

/// The gradient of x.
template <class T>
GW_DEVICE void backward(const T* x, const T* weight, const Compute<T>* means, const Compute<T>* inverse_stds,
                        const T* grad, T* out, i64 count, i64 features) {
    __shared__ double sums[32];
    each_row(count, [&](i64 row, bool there) {
        const i64 length = there ? features : 0;
        const double mean = means && there ? means[row] : 0, inverse_std = there ? inverse_stds[row] : 0;
        double sum = 0, dot = 0;
        for (i64 i = threadIdx.x; i < length; i += blockDim.x) {
            const double g = widen(grad[row * features + i]) * (weight ? static_cast<double>(widen(weight[i])) : 1.0);
            sum += g;
            dot += g * ((widen(x[row * features + i]) - mean) * inverse_std);
        }
        const double mean_grad = means ? row_sum(sum, sums) / features : 0, projection = row_sum(dot, sums) / features;
        for (i64 i = threadIdx.x; i < length; i += blockDim.x) {
            const double g = widen(grad[row * features + i]) * (weight ? static_cast<double>(widen(weight[i])) : 1.0);
            const double normalized = (widen(x[row * features + i]) - mean) * inverse_std;
            out[row * features + i] = narrow<T>(inverse_std * (g - mean_grad - normalized * projection));
        }
    });
}

/// The gradients of the parameters, in the first of two stages: for each feature and part of the rows, the sums of
/// grad·normalised and of grad, as [features, parts]. Blocks of 32 features by 8 rows.
template <class T>
GW_DEVICE void parameters(const T* x, const Compute<T>* means, const Compute<T>* inverse_stds, const T* grad,
                          double* weight, double* bias, i64 rows, i64 features, i64 parts) {
    __shared__ double sums[2][8][32];
    const i64 tiles = (features + 31) / 32, size = (rows + parts - 1) / parts;
    for (i64 unit = blockIdx.x; unit < tiles * parts; unit += gridDim.x) {
        const i64 part = unit / tiles, feature = (unit - part * tiles) * 32 + threadIdx.x;
        const i64 end = (part + 1) * size < rows ? (part + 1) * size : rows;
        double dot = 0, sum = 0;
        for (i64 row = part * size + threadIdx.y; row < end && feature < features; row += 8) {
            const double g = widen(grad[row * features + feature]);
            const double mean = means ? means[row] : 0;
            dot += g * ((widen(x[row * features + feature]) - mean) * inverse_stds[row]);
            sum += g;
        }
        __syncthreads();  // The previous sums may still be read.
        sums[0][threadIdx.y][threadIdx.x] = dot;
        sums[1][threadIdx.y][threadIdx.x] = sum;
        __syncthreads();
        if (threadIdx.y < 2 && feature < features) {
            double total = 0;
            for (int y = 0; y < 8; ++y) total += sums[threadIdx.y][y][threadIdx.x];
            (threadIdx.y == 0 ? weight : bias)[feature * parts + part] = total;
        }
    }
}

}  // namespace

#define GW_KERNELS(T, NAME)                                                                                   \
    extern "C" __global__ void __launch_bounds__(256) gw_layer_norm_fwd_##NAME(                               \
        const T* x, const T* weight, const T* bias, T* out, Compute<T>* mean, Compute<T>* inverse_std,        \
        i64 rows, i64 features, double epsilon) {                                                             \
        begin_kernel();                                                                                       \
        forward(x, weight, bias, out, mean, inverse_std, rows, features, epsilon);                            \
    }                                                                                                         \
    extern "C" __global__ void __launch_bounds__(256) gw_layer_norm_bwd_##NAME(                               \
        const T* x, const T* weight, const Compute<T>* mean, const Compute<T>* inverse_std, const T* grad,    \
        T* out, i64 rows, i64 features) {                                                                     \
        begin_kernel();                                                                                       \
        backward(x, weight, mean, inverse_std, grad, out, rows, features);                                    \
    }                                                                                                         \
    extern "C" __global__ void __launch_bounds__(256) gw_layer_norm_bwd_parameters_##NAME(                    \
        const T* x, const Compute<T>* mean, const Compute<T>* inverse_std, const T* grad, double* weight,     \
        double* bias, i64 rows, i64 features, i64 parts) {                                                    \
        begin_kernel();                                                                                       \
        parameters(x, mean, inverse_std, grad, weight, bias, rows, features, parts);                          \
    }
GW_FOR_DTYPES(GW_KERNELS)

#define GW_HELD(T, NAME, K)                                                                      \
    extern "C" __global__ void __launch_bounds__((HELD_THREADS<T, K>), (HELD_BLOCKS<T, K>))      \
        gw_layer_norm_fwd_held_##K##_##NAME(const T* x, const T* weight, const T* bias, T* out,  \
                                            Compute<T>* mean, Compute<T>* inverse_std, i64 rows, \
                                            i64 features, double epsilon) {                      \
        begin_kernel();                                                                          \
        forward_held<T, K>(x, weight, bias, out, mean, inverse_std, rows, features, epsilon);    \
    }
#define GW_HELD_1(T, NAME) GW_HELD(T, NAME, 1)
#define GW_HELD_2(T, NAME) GW_HELD(T, NAME, 2)
#define GW_HELD_4(T, NAME) GW_HELD(T, NAME, 4)
#define GW_HELD_8(T, NAME) GW_HELD(T, NAME, 8)
GW_FOR_PACKS(GW_HELD)
