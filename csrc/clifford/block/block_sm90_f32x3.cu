// Blocks of equivariant networks on many rows of f32, for the algebras of the plane and of space, on compute capability 9.0, for which registers
// and shared memory were laid out. Compiled to a trap on other targets; the launcher checks the device.
#include "clifford/block/sm90_f32x3_backward.cuh"
#include "clifford/block/sm90_f32x3_forward.cuh"
#include "gradewise/strided.cuh"

// A kernel has the code of one access alone, two features at a time or one (`_unaligned`): with both in one kernel of 190 KB, the one that came second
// took 15% longer on 20,000 rows, because its instructions were fetched more slowly.
#define GW_BLOCK_F32X3_ACCESS(P, Q, R, TILES, INPUTS, KIND, PAIRED)                                                       \
    extern "C" __global__ void __launch_bounds__((BlockF32x3Sizes<Algebra<P, Q, R>, TILES>::Forward::THREADS), 1)         \
        gw_block_sm90_f32x3##KIND##_fwd_in##INPUTS##_##P##_##Q##_##R##_f32(                                               \
        GW_PARAMETER BlockOperands<float> weights, const float* x, const float* residual, float* out, float* y, float* r, \
        float* s) {                                                                                                       \
        begin_kernel();                                                                                                   \
        extern __shared__ uint4 shared[];                                                                                 \
        using Pass = BlockF32x3Forward<Algebra<P, Q, R>, TILES, PAIRED>;                                                  \
        GW_RUN_ON_SM90(Pass::run((char*)shared, weights, x, residual, out, {y, r, s}));                                   \
    }                                                                                                                     \
    extern "C" __global__ void __launch_bounds__((BlockF32x3Sizes<Algebra<P, Q, R>, TILES>::Backward::THREADS), 1)        \
        gw_block_sm90_f32x3##KIND##_bwd_in##INPUTS##_##P##_##Q##_##R##_f32(                                               \
        GW_PARAMETER BlockOperands<float> weights, const float* x, const float* y, const float* r, const float* s,        \
        const float* grad, float* grad_x, float* partial) {                                                               \
        begin_kernel();                                                                                                   \
        extern __shared__ uint4 shared[];                                                                                 \
        using Pass = BlockF32x3Backward<Algebra<P, Q, R>, TILES, PAIRED>;                                                 \
        GW_RUN_ON_SM90(Pass::run((char*)shared, weights, {x, y, r, s, grad}, grad_x, partial));                           \
    }

#define GW_BLOCK_F32X3(P, Q, R, TILES, INPUTS)            \
    GW_BLOCK_F32X3_ACCESS(P, Q, R, TILES, INPUTS, , true) \
    GW_BLOCK_F32X3_ACCESS(P, Q, R, TILES, INPUTS, _unaligned, false)

GW_BLOCK_F32X3(2, 0, 0, 1, 32)
GW_BLOCK_F32X3(2, 0, 0, 2, 64)
GW_BLOCK_F32X3(3, 0, 0, 1, 32)
GW_BLOCK_F32X3(3, 0, 0, 2, 64)
