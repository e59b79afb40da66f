// The second stage of sums over rows: partial sums are added in a fixed order, in double precision.
#include "gradewise/types.cuh"
#include "ops/partials_launch.cuh"

using partials::LANES, partials::RESULTS;
/// Chunks whose loads are in flight at a time: two rounds of these suffice for one chunk from each of 132 multiprocessors.
constexpr int AT_ONCE = 9;

/// out[i] = scale·Σ_chunks partial[chunk, i] for the RESULTS results from `base` on. All threads of a block of RESULTS by LANES call it.
template <class T>
GW_DEVICE void sum_results(const Compute<T>* partial, T* out, i64 chunks, i64 count, double scale, i64 base) {
    __shared__ double sums[LANES][RESULTS];
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

template <class T>
GW_DEVICE void sum_partials(const Compute<T>* partial, T* out, i64 chunks, i64 count, double scale) {
    for (i64 base = static_cast<i64>(blockIdx.x) * RESULTS; base < count; base += static_cast<i64>(gridDim.x) * RESULTS) {
        sum_results(partial, out, chunks, count, scale, base);
    }
}

/// One of several sums: addresses and sizes, and the first block that works on it.
struct PartialSum {
    u64 partial, out;
    i64 chunks, count;
    double scale;
    u32 first_block, pad;
};

struct PartialSums {
    PartialSum sum[partials::MOST];
    i32 count, pad;
};

static_assert(sizeof(PartialSum) == 48 && sizeof(PartialSums) <= 4000, "as the launcher lays them out, within the parameter space");

/// Several sums, each with a block for RESULTS of its results.
template <class T>
GW_DEVICE void sum_partials_many(const PartialSums& all) {
    int low = 0, high = all.count - 1;
    while (low < high) {
        const int middle = (low + high + 1) / 2;
        if (all.sum[middle].first_block <= blockIdx.x) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    const PartialSum& own = all.sum[low];
    const i64 base = static_cast<i64>(blockIdx.x - own.first_block) * RESULTS;
    sum_results(reinterpret_cast<const Compute<T>*>(own.partial), reinterpret_cast<T*>(own.out), own.chunks, own.count, own.scale, base);
}

#define GW_KERNELS(T, NAME)                                                                               \
    extern "C" __global__ void __launch_bounds__(RESULTS * LANES, 4)                                      \
        gw_sum_partials_##NAME(const Compute<T>* partial, T* out, i64 chunks, i64 count, double scale) {  \
        begin_kernel();                                                                                   \
        sum_partials<T>(partial, out, chunks, count, scale);                                              \
    }                                                                                                     \
    extern "C" __global__ void __launch_bounds__(RESULTS * LANES, 4)                                      \
        gw_sum_partials_many_##NAME(const __grid_constant__ PartialSums all) {                            \
        begin_kernel();                                                                                   \
        sum_partials_many<T>(all);                                                                        \
    }
GW_FOR_DTYPES(GW_KERNELS)
