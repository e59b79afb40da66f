// Blocks of equivariant networks on many rows of f32, for the algebras of the plane and of space, on compute capability 9.0, for which registers
// and shared memory were laid out. Compiled to a trap on other targets; the launcher checks the device.
#include "clifford/block/sm90_f32x3_backward.cuh"
#include "clifford/block/sm90_f32x3_forward.cuh"
#include "gradewise/strided.cuh"

// A kernel has the code of one access alone, two features at a time or one (`_single`): with both in one kernel of 190 KB, the one that came second
// took 15% longer on 20,000 rows, because its instructions were fetched more slowly.
#define GW_MV_SPLIT_ACCESS(P, Q, R, TILES, KIND, PAIRED)                                                                         \
    extern "C" __global__ void __launch_bounds__(256, 1) gw_mv_split##KIND##_fwd##TILES##_##P##_##Q##_##R##_f32(                 \
        GW_PARAMETER MvBlockWeights<float> weights, const float* x, const float* residual, float* out, float* y, float* r,       \
        float* s) {                                                                                                              \
        begin_kernel();                                                                                                          \
        extern __shared__ uint4 shared[];                                                                                        \
        using Pass = MvSplitForward<Algebra<P, Q, R>, TILES, PAIRED>;                                                            \
        GW_RUN_MV_TILES(Pass::run((char*)shared, weights, x, residual, out, {y, r, s}));                                         \
    }                                                                                                                            \
    extern "C" __global__ void __launch_bounds__(256, 1) gw_mv_split##KIND##_bwd##TILES##_##P##_##Q##_##R##_f32(                 \
        GW_PARAMETER MvBlockWeights<float> weights, const float* x, const float* y, const float* r, const float* s,              \
        const float* grad, float* grad_x, float* partial) {                                                                      \
        begin_kernel();                                                                                                          \
        extern __shared__ uint4 shared[];                                                                                        \
        using Pass = MvSplitBackward<Algebra<P, Q, R>, TILES, PAIRED>;                                                           \
        GW_RUN_MV_TILES(Pass::run((char*)shared, weights, {x, y, r, s, grad}, grad_x, partial));                                 \
    }

#define GW_MV_SPLIT(P, Q, R, TILES)                       \
    GW_MV_SPLIT_ACCESS(P, Q, R, TILES, , true)            \
    GW_MV_SPLIT_ACCESS(P, Q, R, TILES, _single, false)

GW_MV_SPLIT(2, 0, 0, 1)
GW_MV_SPLIT(2, 0, 0, 2)
GW_MV_SPLIT(3, 0, 0, 1)
GW_MV_SPLIT(3, 0, 0, 2)
