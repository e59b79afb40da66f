// Matrix products by the instructions of sm_90a, see mma/hopper.cuh.
//
// Names: gw_matmul_hopper[_exact]_<layout>_<columns>_<blocks per cluster>_<dtype>. The layout says, for R and then S, whether k
// runs along rows (k) or across them (m); a final t means that C is transposed.
#include "mma/hopper_exact.cuh"

// Compiled to a trap on other targets; the launcher checks the device.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define GW_RUN(...) __VA_ARGS__::run(problem)
#else
#define GW_RUN(...) __trap()
#endif

#define GW_HOPPER(T, NAME, LAYOUT, R, S, TRANSPOSED, BN, CLUSTER, STAGES)                                 \
    extern "C" __global__ void __launch_bounds__(hopper_tile::THREADS, 1)                                \
        gw_matmul_hopper_##LAYOUT##_##BN##_##CLUSTER##_##NAME(const __grid_constant__ TileProblem problem) { \
        begin_kernel();                                                                                      \
        GW_RUN(Hopper<T, BN, R, S, TRANSPOSED, CLUSTER, STAGES>);                                        \
    }
#define GW_HOPPER_SIZES(T, NAME, LAYOUT, R, S, TRANSPOSED)       \
    GW_HOPPER(T, NAME, LAYOUT, R, S, TRANSPOSED, 256, 2, 4)      \
    GW_HOPPER(T, NAME, LAYOUT, R, S, TRANSPOSED, 256, 1, 4)      \
    GW_HOPPER(T, NAME, LAYOUT, R, S, TRANSPOSED, 128, 1, 5)
GW_HOPPER_SIZES(float, f32, kk, false, false, false)
GW_HOPPER_SIZES(float, f32, mk, true, false, false)
GW_HOPPER_SIZES(float, f32, mkt, true, false, true)
#define GW_HOPPER_LAYOUTS(T, NAME)                     \
    GW_HOPPER_SIZES(T, NAME, kk, false, false, false)  \
    GW_HOPPER_SIZES(T, NAME, km, false, true, false)   \
    GW_HOPPER_SIZES(T, NAME, mm, true, true, false)
GW_HOPPER_LAYOUTS(bf16, bf16)
GW_HOPPER_LAYOUTS(f16, f16)

#define GW_HOPPER_EXACT(LAYOUT, R, TRANSPOSED)                                                    \
    extern "C" __global__ void __launch_bounds__(hopper_tile::THREADS, 1)                         \
        gw_matmul_hopper_exact_##LAYOUT##_128_1_f32(const __grid_constant__ TileProblem problem) { \
        begin_kernel();                                                                            \
        GW_RUN(HopperExact<R, TRANSPOSED, hopper_tile::EXACT_STAGES>);                                                    \
    }
GW_HOPPER_EXACT(kk, false, false)
GW_HOPPER_EXACT(mk, true, false)
GW_HOPPER_EXACT(mkt, true, true)

// Kernels around the products; these run on every architecture.

/// How sums are cut into stretches, see TileProblem.
struct Stretches {
    i32 parts[33];
    i32 accumulate;
    /// Stride in elements from one result to the next.
    i64 stride;
};

/// Stretches whose loads are in flight at a time.
constexpr int AT_ONCE = 6;

/// c[z] = Σ over the stretches of z, in order; each c[z] and partial[stretch] of `size` elements, blockIdx.y = z.
template <class T>
GW_DEVICE void sum_stretches(const Stretches& stretches, const float* partial, T* c, i64 size) {
    const i32 z = blockIdx.y, begin = stretches.parts[z], end = stretches.parts[z + 1];
    for (i64 i = 4 * thread_index(); i < size; i += 4 * thread_count()) {
        float sums[4] = {};
#pragma unroll 1
        for (i32 first = begin; first < end; first += AT_ONCE) {
            float values[AT_ONCE][4] = {};
#pragma unroll
            for (int k = 0; k < AT_ONCE; ++k) {
                if (first + k < end) load<4>(partial + (first + k) * size + i, values[k]);
            }
#pragma unroll
            for (int k = 0; k < AT_ONCE; ++k) {
#pragma unroll
                for (int e = 0; e < 4; ++e) sums[e] += values[k][e];
            }
        }
        T* target = c + z * stretches.stride + i;
        if (stretches.accumulate) {
            float values[4];
            load<4>(target, values);
#pragma unroll
            for (int e = 0; e < 4; ++e) sums[e] += values[e];
        }
        store<4>(target, sums);
    }
}

#define GW_SUM_STRETCHES(T, NAME)                                                                                       \
    extern "C" __global__ void __launch_bounds__(256, 4)                                                                \
        gw_matmul_stretches_##NAME(const Stretches stretches, const float* partial, T* c, i64 size) {                   \
        begin_kernel();                                                                                                 \
        sum_stretches(stretches, partial, c, size);                                                                     \
    }
GW_SUM_STRETCHES(float, f32)
GW_SUM_STRETCHES(bf16, bf16)
GW_SUM_STRETCHES(f16, f16)

/// target [count, columns, rows] = the transposes of source [count, rows, columns], whose rows are `row` and whose matrices are
/// `stride` elements apart. blockIdx.z walks over matrices; a block of 32×8 threads moves tiles of 32×32.
extern "C" __global__ void __launch_bounds__(256)
    gw_matmul_transpose_f32(const float* source, float* target, i64 count, i64 rows, i64 columns, i64 row, i64 stride) {
    begin_kernel();
    __shared__ float tile[32][33];
    const int x = threadIdx.x % 32, y = threadIdx.x / 32;
    const i64 across = (columns + 31) / 32, tiles = across * ((rows + 31) / 32);
    for (i64 unit = blockIdx.x; unit < tiles * count; unit += gridDim.x) {
        const i64 matrix = unit / tiles, first_row = unit % tiles / across * 32, first_column = unit % tiles % across * 32;
        __syncthreads();
#pragma unroll
        for (int i = 0; i < 32; i += 8) {
            const i64 r = first_row + y + i, c = first_column + x;
            if (r < rows && c < columns) tile[y + i][x] = source[matrix * stride + r * row + c];
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < 32; i += 8) {
            const i64 r = first_row + x, c = first_column + y + i;
            if (r < rows && c < columns) target[(matrix * columns + c) * rows + r] = tile[x][y + i];
        }
    }
}
