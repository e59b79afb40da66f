// Kernels of clifford/block/simt.cuh and clifford/block/simt_steerable.cuh for one algebra: GW_BLOCK_SIMT_8 for up to 8 blades, GW_BLOCK_SIMT_16 and GW_BLOCK_SIMT_32.
#pragma once

#include "clifford/block/simt_backward.cuh"
#include "clifford/block/simt_forward.cuh"
#include "clifford/block/simt_steerable.cuh"
#include "gradewise/strided.cuh"

#define GW_BLOCK_SIMT_FORWARD(P, Q, R_, LANES, ROWS, T, NAME)                                                                 \
    extern "C" __global__ void __launch_bounds__(block_simt::THREADS, 1) gw_block_simt_fwd_l##LANES##_r##ROWS##_##P##_##Q##_##R_##_##NAME(    \
        GW_PARAMETER BlockOperands<T> weights, const T* x, const T* residual, T* out, T* y, T* r, T* s) {                     \
        begin_kernel();                                                                                                       \
        extern __shared__ uint4 shared[];                                                                                     \
        using Pass = BlockSimtForward<Algebra<P, Q, R_>, ROWS, T, LANES>;                                                     \
        Pass::run(reinterpret_cast<float*>(shared), weights, x, residual, out, {y, r, s});                                    \
    }

#define GW_BLOCK_SIMT_BACKWARD(P, Q, R_, LANES, ROWS, T, NAME)                                                                \
    extern "C" __global__ void __launch_bounds__(block_simt::THREADS, 1) gw_block_simt_bwd_l##LANES##_r##ROWS##_##P##_##Q##_##R_##_##NAME(    \
        GW_PARAMETER BlockOperands<T> weights, const T* x, const T* y, const T* r, const T* s, const T* grad, T* grad_x,      \
        float* partial) {                                                                                                     \
        begin_kernel();                                                                                                       \
        extern __shared__ uint4 shared[];                                                                                     \
        using Pass = BlockSimtBackward<Algebra<P, Q, R_>, ROWS, T, LANES>;                                                    \
        Pass::run(reinterpret_cast<float*>(shared), weights, {x, y, r, s, grad}, grad_x, partial);                            \
    }

#define GW_STEERABLE_SIMT(P, Q, R_, LANES, T, NAME)                                                                        \
    extern "C" __global__ void __launch_bounds__(block_simt::THREADS, 1) gw_steerable_simt_fwd_l##LANES##_##P##_##Q##_##R_##_##NAME(       \
        GW_PARAMETER BlockOperands<T> weights, const T* x, T* out) {                                                       \
        begin_kernel();                                                                                                    \
        extern __shared__ uint4 shared[];                                                                                  \
        using Pass = SteerableSimtForward<Algebra<P, Q, R_>, T, LANES>;                                                    \
        Pass::run(reinterpret_cast<float*>(shared), weights, x, out);                                                      \
    }                                                                                                                      \
    extern "C" __global__ void __launch_bounds__(block_simt::THREADS, 1) gw_steerable_simt_bwd_l##LANES##_##P##_##Q##_##R_##_##NAME(       \
        GW_PARAMETER BlockOperands<T> weights, const T* x, const T* grad, T* grad_x, float* partial) {                     \
        begin_kernel();                                                                                                    \
        extern __shared__ uint4 shared[];                                                                                  \
        using Pass = SteerableSimtBackward<Algebra<P, Q, R_>, T, LANES>;                                                   \
        Pass::run(reinterpret_cast<float*>(shared), weights, x, grad, grad_x, partial);                                    \
    }

#define GW_BLOCK_SIMT_BOTH(P, Q, R_, LANES, ROWS, T, NAME)  \
    GW_BLOCK_SIMT_FORWARD(P, Q, R_, LANES, ROWS, T, NAME)   \
    GW_BLOCK_SIMT_BACKWARD(P, Q, R_, LANES, ROWS, T, NAME)

#define GW_BLOCK_SIMT_DTYPES(P, Q, R_, ROWS)              \
    GW_BLOCK_SIMT_BOTH(P, Q, R_, 32, ROWS, float, f32)    \
    GW_BLOCK_SIMT_BOTH(P, Q, R_, 32, ROWS, bf16, bf16)    \
    GW_BLOCK_SIMT_BOTH(P, Q, R_, 32, ROWS, f16, f16)

#define GW_BLOCK_SIMT_8(P, Q, R_)     \
    GW_BLOCK_SIMT_DTYPES(P, Q, R_, 1) \
    GW_BLOCK_SIMT_DTYPES(P, Q, R_, 2) \
    GW_STEERABLE_SIMT(P, Q, R_, 32, float, f32)

// Half a warp for few features. A thread has registers for two rows of 16 blades forward, and for one backward.
#define GW_BLOCK_SIMT_16(P, Q, R_)                       \
    GW_BLOCK_SIMT_BOTH(P, Q, R_, 16, 1, float, f32)      \
    GW_BLOCK_SIMT_FORWARD(P, Q, R_, 16, 2, float, f32)   \
    GW_BLOCK_SIMT_BOTH(P, Q, R_, 32, 1, float, f32)      \
    GW_BLOCK_SIMT_FORWARD(P, Q, R_, 32, 2, float, f32)   \
    GW_STEERABLE_SIMT(P, Q, R_, 16, float, f32)          \
    GW_STEERABLE_SIMT(P, Q, R_, 32, float, f32)

#define GW_BLOCK_SIMT_32(P, Q, R_)                  \
    GW_BLOCK_SIMT_BOTH(P, Q, R_, 16, 1, float, f32) \
    GW_BLOCK_SIMT_BOTH(P, Q, R_, 32, 1, float, f32) \
    GW_STEERABLE_SIMT(P, Q, R_, 16, float, f32)     \
    GW_STEERABLE_SIMT(P, Q, R_, 32, float, f32)
