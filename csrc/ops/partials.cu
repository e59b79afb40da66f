// The second stage of sums over rows: partial sums are added in a fixed order, in double precision.
#include "gradewise/types.cuh"
#include "ops/partials_launch.cuh"

using partials::LANES, partials::RESULTS;
/// Chunks whose loads are in flight at a time: two rounds of these suffice for one chunk from each of 132 multiprocessors.
constexpr int AT_ONCE = 9;

/// out[i] = scale·Σ_chunks partial[chunk, i]. Blocks of RESULTS results by LANES.
template <class T>
GW_DEVICE void sum_partials(const Compute<T>* partial, T* out, i64 chunks, i64 count, double scale) {
    __shared__ double sums[LANES][RESULTS];
    for (i64 base = static_cast<i64>(blockIdx.x) * RESULTS; base < count; base += static_cast<i64>(gridDim.x) * RESULTS) {
        const i64 i = base + threadIdx.x;
        double sum = 0;
        for (i64 first = threadIdx.y; i < count && first < chunks; first += LANES * AT_ONCE) {
            Compute<T> values[AT_ONCE];
#pragma unroll
            for (int k = 0; k < AT_ONCE; ++k) {
                const i64 chunk = first + k * LANES;
                values[k] = chunk < chunks ? partial[chunk * count + i] : Compute<T>(0);
            }
#pragma unroll
            for (int k = 0; k < AT_ONCE; ++k) sum += values[k];
        }
        sums[threadIdx.y][threadIdx.x] = sum;
        __syncthreads();
        if (threadIdx.y == 0 && i < count) {
            for (int lane = 1; lane < LANES; ++lane) sum += sums[lane][threadIdx.x];
            out[i] = narrow<T>(sum * scale);
        }
        __syncthreads();
    }
}

#define GW_KERNELS(T, NAME)                                                                               \
    extern "C" __global__ void __launch_bounds__(RESULTS * LANES, 4)                                      \
        gw_sum_partials_##NAME(const Compute<T>* partial, T* out, i64 chunks, i64 count, double scale) {  \
        begin_kernel();                                                                                   \
        sum_partials<T>(partial, out, chunks, count, scale);                                              \
    }
GW_FOR_DTYPES(GW_KERNELS)
