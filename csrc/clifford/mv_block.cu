// Blocks of equivariant networks for the algebras of the plane and of space.
#include "clifford/mv_block_backward.cuh"
#include "clifford/mv_block_forward.cuh"
#include "gradewise/strided.cuh"

#define GW_MV_BLOCK(P, Q, R_, ROWS)                                                                                              \
    extern "C" __global__ void __launch_bounds__(256, 1) gw_mv_block_fwd_r##ROWS##_##P##_##Q##_##R_##_f32(                       \
        GW_PARAMETER MvBlockWeights weights, const float* x, const float* residual, float* out, float* y, float* r, float* s) {  \
        begin_kernel();                                                                                                          \
        extern __shared__ uint4 shared[];                                                                                        \
        using Pass = MvBlockForward<Algebra<P, Q, R_>, ROWS>;                                                                    \
        Pass::run(reinterpret_cast<float*>(shared), weights, x, residual, out, {y, r, s});                                       \
    }                                                                                                                            \
    extern "C" __global__ void __launch_bounds__(256, 1) gw_mv_block_bwd_r##ROWS##_##P##_##Q##_##R_##_f32(                       \
        GW_PARAMETER MvBlockWeights weights, const float* x, const float* y, const float* r, const float* s,                     \
        const float* grad, float* grad_x, float* partial) {                                                                      \
        begin_kernel();                                                                                                          \
        extern __shared__ uint4 shared[];                                                                                        \
        using Pass = MvBlockBackward<Algebra<P, Q, R_>, ROWS>;                                                                   \
        Pass::run(reinterpret_cast<float*>(shared), weights, {x, y, r, s, grad}, grad_x, partial);                               \
    }

GW_MV_BLOCK(2, 0, 0, 1)
GW_MV_BLOCK(2, 0, 0, 2)
GW_MV_BLOCK(3, 0, 0, 1)
GW_MV_BLOCK(3, 0, 0, 2)
