// Blocks of equivariant networks for the algebras of the plane and of space.
#include "clifford/block/simt_backward.cuh"
#include "clifford/block/simt_forward.cuh"
#include "gradewise/strided.cuh"

#define GW_BLOCK_SIMT(P, Q, R_, ROWS, T, NAME)                                                                           \
    extern "C" __global__ void __launch_bounds__(256, 1) gw_block_simt_fwd_r##ROWS##_##P##_##Q##_##R_##_##NAME(          \
        GW_PARAMETER BlockOperands<T> weights, const T* x, const T* residual, T* out, T* y, T* r, T* s) {                \
        begin_kernel();                                                                                                  \
        extern __shared__ uint4 shared[];                                                                                \
        using Pass = BlockSimtForward<Algebra<P, Q, R_>, ROWS, T>;                                                       \
        Pass::run(reinterpret_cast<float*>(shared), weights, x, residual, out, {y, r, s});                               \
    }                                                                                                                    \
    extern "C" __global__ void __launch_bounds__(256, 1) gw_block_simt_bwd_r##ROWS##_##P##_##Q##_##R_##_##NAME(          \
        GW_PARAMETER BlockOperands<T> weights, const T* x, const T* y, const T* r, const T* s, const T* grad, T* grad_x, \
        float* partial) {                                                                                                \
        begin_kernel();                                                                                                  \
        extern __shared__ uint4 shared[];                                                                                \
        using Pass = BlockSimtBackward<Algebra<P, Q, R_>, ROWS, T>;                                                      \
        Pass::run(reinterpret_cast<float*>(shared), weights, {x, y, r, s, grad}, grad_x, partial);                       \
    }

#define GW_BLOCK_SIMT_DTYPES(P, Q, R_, ROWS)  \
    GW_BLOCK_SIMT(P, Q, R_, ROWS, float, f32) \
    GW_BLOCK_SIMT(P, Q, R_, ROWS, bf16, bf16) \
    GW_BLOCK_SIMT(P, Q, R_, ROWS, f16, f16)

GW_BLOCK_SIMT_DTYPES(2, 0, 0, 1)
GW_BLOCK_SIMT_DTYPES(2, 0, 0, 2)
GW_BLOCK_SIMT_DTYPES(3, 0, 0, 1)
GW_BLOCK_SIMT_DTYPES(3, 0, 0, 2)
