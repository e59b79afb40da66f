// Blocks of equivariant networks on many rows, for the algebras of the plane and of space, on compute capability 9.0, for which registers
// and shared memory were laid out. Compiled to a trap on other targets; the launcher checks the device.
#include "clifford/block/sm90_16bit_backward.cuh"
#include "clifford/block/sm90_16bit_forward.cuh"
#include "gradewise/strided.cuh"

#define GW_BLOCK_16BIT_FORWARD(P, Q, R, T, NAME, TILES, INPUTS)                                                   \
    extern "C" __global__ void __launch_bounds__((Block16BitSizes<Algebra<P, Q, R>, TILES>::Forward::THREADS), 1) \
        gw_block_sm90_16bit_fwd_in##INPUTS##_##P##_##Q##_##R##_##NAME(                                            \
        GW_PARAMETER BlockOperands<T> weights, const T* x, const T* residual, T* out, T* y, T* r, T* s) {         \
        begin_kernel();                                                                                           \
        extern __shared__ uint4 shared[];                                                                         \
        using Pass = Block16BitForward<Algebra<P, Q, R>, T, TILES>;                                               \
        GW_RUN_ON_SM90(Pass::run(reinterpret_cast<char*>(shared), weights, x, residual, out, {y, r, s}));         \
    }

#define GW_BLOCK_16BIT_BACKWARD(P, Q, R, T, NAME, TILES, INPUTS)                                                         \
    extern "C" __global__ void __launch_bounds__((Block16BitSizes<Algebra<P, Q, R>, TILES>::Backward::THREADS), 1)       \
        gw_block_sm90_16bit_bwd_in##INPUTS##_##P##_##Q##_##R##_##NAME(                                                   \
        GW_PARAMETER BlockOperands<T> weights, const T* x, const T* y, const T* r, const T* s, const T* grad, T* grad_x, \
        float* partial) {                                                                                                \
        begin_kernel();                                                                                                  \
        extern __shared__ uint4 shared[];                                                                                \
        using Pass = Block16BitBackward<Algebra<P, Q, R>, T, TILES>;                                                     \
        GW_RUN_ON_SM90(Pass::run(reinterpret_cast<char*>(shared), weights, {x, y, r, s, grad}, grad_x, partial));        \
    }

#define GW_BLOCK_16BIT(P, Q, R, T, NAME, TILES, INPUTS)     \
    GW_BLOCK_16BIT_FORWARD(P, Q, R, T, NAME, TILES, INPUTS) \
    GW_BLOCK_16BIT_BACKWARD(P, Q, R, T, NAME, TILES, INPUTS)

#define GW_BLOCK_16BIT_DTYPES(P, Q, R, TILES, INPUTS)  \
    GW_BLOCK_16BIT(P, Q, R, bf16, bf16, TILES, INPUTS) \
    GW_BLOCK_16BIT(P, Q, R, f16, f16, TILES, INPUTS)

GW_BLOCK_16BIT_DTYPES(2, 0, 0, 1, 32)
GW_BLOCK_16BIT_DTYPES(2, 0, 0, 2, 64)
GW_BLOCK_16BIT_DTYPES(3, 0, 0, 1, 32)
GW_BLOCK_16BIT_DTYPES(3, 0, 0, 2, 64)
