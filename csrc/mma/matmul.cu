// Matrix products: batched, grouped and summed over segments, see mma/problem.cuh.
//
// Names: gw_matmul_<engine>_<transposes>_<size>_<dtype> with engine simt or warp, transposes nn, nt or tn (of A, of B), size s for
// problems of few rows and columns and l for large ones; gw_matmul_short_<transposes>_f32 for sums of few terms. In f32, simt is
// exact and warp is TF32.
#include "mma/simt.cuh"
#include "mma/warp.cuh"

#define GW_SIMT(T, NAME, LAYOUT, TA, TB)                                                                                   \
    extern "C" __global__ void __launch_bounds__(simt_tile::THREADS, sizeof(T) == 8 ? 2 : 3) gw_matmul_simt_##LAYOUT##_l_##NAME(const Problem problem) {       \
        begin_kernel();                                                                                                                         \
        Simt<T, simt_tile::LARGE, simt_tile::LARGE, 8, 8, 4, TA, TB>::run(problem);                                                                   \
    }                                                                                                                      \
    extern "C" __global__ void __launch_bounds__(simt_tile::THREADS, sizeof(T) == 8 ? 3 : 4) gw_matmul_simt_##LAYOUT##_s_##NAME(const Problem problem) {       \
        begin_kernel();                                                                                                                         \
        Simt<T, simt_tile::SMALL, simt_tile::SMALL, 16, 2, 4, TA, TB>::run(problem);                                                                   \
    }
#define GW_SIMT_LAYOUTS(T, NAME)       \
    GW_SIMT(T, NAME, nn, false, false) \
    GW_SIMT(T, NAME, nt, false, true)  \
    GW_SIMT(T, NAME, tn, true, false)
GW_FOR_DTYPES(GW_SIMT_LAYOUTS)

// Sums of a few f32 terms in double precision: memory bounds these products, so the precision is free, and the result is rounded
// once.
#define GW_SHORT(LAYOUT, TA, TB)                                                                                          \
    extern "C" __global__ void __launch_bounds__(simt_tile::THREADS, 3) gw_matmul_short_##LAYOUT##_f32(const Problem problem) {          \
        begin_kernel();                                                                                                   \
        Simt<float, simt_tile::SMALL, simt_tile::SMALL, 16, 2, 4, TA, TB, double>::run(problem);                                                      \
    }
GW_SHORT(nn, false, false)
GW_SHORT(nt, false, true)
GW_SHORT(tn, true, false)

#define GW_WARP(T, NAME, LAYOUT, TA, TB)                                                                                  \
    using Large_##LAYOUT##_##NAME = Warp<T, warp_tile::LARGE_ROWS, warp_tile::LARGE_COLUMNS, 2, 2, warp_tile::STAGES, TA, TB>;                                                   \
    using Small_##LAYOUT##_##NAME = Warp<T, warp_tile::SMALL_ROWS, warp_tile::SMALL_COLUMNS, 2, 2, warp_tile::STAGES, TA, TB>;                                                     \
    static_assert(Large_##LAYOUT##_##NAME::SHARED_BYTES <= 99 << 10, "fits a block of every target from sm_80 on");        \
    extern "C" __global__ void __launch_bounds__(warp_tile::THREADS, TA && sizeof(T) == 2 ? 2 : 3) gw_matmul_warp_##LAYOUT##_l_##NAME(const Problem problem) {      \
        begin_kernel();                                                                                                                              \
        GW_RUN_WARP(Large_##LAYOUT##_##NAME);                                                                                  \
    }                                                                                                                     \
    extern "C" __global__ void __launch_bounds__(warp_tile::THREADS, 2) gw_matmul_warp_##LAYOUT##_s_##NAME(const Problem problem) {      \
        begin_kernel();                                                                                                   \
        GW_RUN_WARP(Small_##LAYOUT##_##NAME);                                                                                  \
    }
#define GW_WARP_LAYOUTS(T, NAME)       \
    GW_WARP(T, NAME, nn, false, false) \
    GW_WARP(T, NAME, nt, false, true)  \
    GW_WARP(T, NAME, tn, true, false)
GW_WARP_LAYOUTS(float, f32)
GW_WARP_LAYOUTS(bf16, bf16)
GW_WARP_LAYOUTS(f16, f16)
