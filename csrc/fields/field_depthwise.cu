// The convolution of fields with one channel in every group: lanes are channels, and threads share no operands.
#include "fields/problem.cuh"

namespace {

/// A thread for each element of the target [target blades, rows, channels]; the kernel is [target blades, source blades, taps, channels].
template <class T>
GW_DEVICE void depthwise(const FieldProblem& p) {
    using C = Compute<T>;
    const T *source = static_cast<const T*>(p.source), *w = static_cast<const T*>(p.other);
    const i32 channels = p.groups;
    const i64 plane = p.rows * channels, count = plane * p.columns;
    for (i64 at = thread_index(); at < count; at += thread_count()) {
        const i32 blade = static_cast<i32>(at / plane);
        const i64 row = (at - blade * plane) / channels;
        const i32 channel = static_cast<i32>(at % channels);
        const Row place(p, row);
        C sum = 0;
        Term term(p, 0);
        for (i64 k = 0; k < p.depth; ++k) {
            i64 offset;
            if (place.meets(p, term, offset)) {
                sum += widen(source[offset + channel]) * widen(w[(blade * p.depth + k) * channels + channel]);
            }
            term.advance(p, 1);
        }
        static_cast<T*>(p.out)[at] = narrow<T>(sum);
    }
}

/// Sums over stretches of rows, [splits, target blades, channels, terms], in double precision: covariances are built from them. A warp of a
/// block takes every eighth row of the stretch, its lanes adjacent channels; the grid is channel blocks, terms times blades, stretches.
template <class T>
GW_DEVICE void depthwise_gradient(const FieldProblem& p) {
    using C = Compute<T>;
    __shared__ double sums[8][32];
    const T *source = static_cast<const T*>(p.source), *target = static_cast<const T*>(p.other);
    const i32 channels = p.groups, channel = blockIdx.x * 32 + threadIdx.x;
    const i64 share = (p.rows + p.splits - 1) / p.splits, begin = blockIdx.z * share;
    const i64 end = begin + share < p.rows ? begin + share : p.rows;
    const i64 pairs = p.columns * p.depth;
    for (i64 pair = blockIdx.y; pair < pairs; pair += gridDim.y) {
        const i32 blade = static_cast<i32>(pair / p.depth);
        const i64 k = pair % p.depth;
        const Term term(p, k);
        double sum = 0;
        if (channel < channels) {
            for (i64 row = begin + threadIdx.y; row < end; row += 8) {
                i64 offset;
                if (Row(p, row).meets(p, term, offset)) {
                    sum += static_cast<double>(widen(source[offset + channel])) *
                           static_cast<double>(widen(target[(blade * p.rows + row) * channels + channel]));
                }
            }
        }
        sums[threadIdx.y][threadIdx.x] = sum;
        __syncthreads();
        if (threadIdx.y == 0 && channel < channels) {
            double total = 0;
#pragma unroll
            for (int warp = 0; warp < 8; ++warp) total += sums[warp][threadIdx.x];
            const i64 at = (blade * static_cast<i64>(channels) + channel) * p.depth + k;
            static_cast<C*>(p.out)[blockIdx.z * pairs * channels + at] = static_cast<C>(total);
        }
        __syncthreads();
    }
}

}  // namespace

#define GW_KERNELS(T, NAME)                                                                                                \
    extern "C" __global__ void __launch_bounds__(256) gw_field_depthwise_##NAME(const FieldProblem problem) {              \
        begin_kernel();                                                                                                    \
        depthwise<T>(problem);                                                                                             \
    }                                                                                                                      \
    extern "C" __global__ void __launch_bounds__(256) gw_field_depthwise_gradient_##NAME(const FieldProblem problem) {     \
        begin_kernel();                                                                                                    \
        depthwise_gradient<T>(problem);                                                                                    \
    }
GW_FOR_DTYPES(GW_KERNELS)
