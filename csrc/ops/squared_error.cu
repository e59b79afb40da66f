// The mean of the squared differences of two arrays, and its gradient. Sums are in double precision; the order of each block's sum
// depends on sizes only.
#include "gradewise/types.cuh"

namespace {

/// With one block of 256 threads, out = `scale`·Σ(a − b)²; with more, each block writes its own sum without the scale.
template <class T>
GW_DEVICE void forward(const T* a, const T* b, i64 elements, double scale, T* out, double* partial) {
    __shared__ double warps[8];
    double sum = 0;
#pragma unroll 4
    for (i64 i = thread_index(); i < elements; i += thread_count()) {
        const Compute<T> difference = widen(a[i]) - widen(b[i]), square = difference * difference;
        sum += square;
    }
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x != 0) return;
    for (int warp = 1; warp < 8; ++warp) sum += warps[warp];
    if (partial == nullptr) {
        *out = narrow<T>(sum * scale);
    } else {
        partial[blockIdx.x] = sum;
    }
}

/// 2(a − b)·scale·grad, where `grad` is a scalar.
template <class T>
GW_DEVICE void backward(const T* a, const T* b, const T* grad, T* out, i64 elements, double scale) {
    const Compute<T> factor = widen(*grad) * static_cast<Compute<T>>(scale);
    for (i64 i = thread_index(); i < elements; i += thread_count()) {
        out[i] = narrow<T>(factor * (2 * (widen(a[i]) - widen(b[i]))));
    }
}

}  // namespace

#define GW_KERNELS(T, NAME)                                                                                     \
    extern "C" __global__ void __launch_bounds__(256) gw_mean_squared_error_fwd_##NAME(                         \
        const T* a, const T* b, i64 elements, double scale, T* out, double* partial) {                          \
        begin_kernel();                                                                                         \
        forward(a, b, elements, scale, out, partial);                                                           \
    }                                                                                                           \
    extern "C" __global__ void __launch_bounds__(256) gw_mean_squared_error_bwd_##NAME(                         \
        const T* a, const T* b, const T* grad, T* out, i64 elements, double scale) {                            \
        begin_kernel();                                                                                         \
        backward(a, b, grad, out, elements, scale);                                                             \
    }
GW_FOR_DTYPES(GW_KERNELS)
