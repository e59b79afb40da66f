// Blocks of equivariant networks on many rows, for the algebras of the plane and of space, on compute capability 9.0, for which registers
// and shared memory were laid out. Compiled to a trap on other targets; the launcher checks the device.
#include "clifford/block/sm90_16bit_backward.cuh"
#include "clifford/block/sm90_16bit_forward.cuh"
#include "gradewise/strided.cuh"

#define GW_MV_TILES_FORWARD(P, Q, R, T, NAME, TILES)                                                                             \
    extern "C" __global__ void __launch_bounds__(384, 1) gw_mv_tiles_fwd##TILES##_##P##_##Q##_##R##_##NAME(                      \
        GW_PARAMETER MvBlockWeights<T> weights, const T* x, const T* residual, T* out, T* y, T* r, T* s) {                       \
        begin_kernel();                                                                                                          \
        extern __shared__ uint4 shared[];                                                                                        \
        using Pass = MvTilesForward<Algebra<P, Q, R>, T, TILES>;                                                                 \
        GW_RUN_MV_TILES(Pass::run(reinterpret_cast<char*>(shared), weights, x, residual, out, {y, r, s}));                       \
    }

#define GW_MV_TILES_BACKWARD(P, Q, R, T, NAME, TILES)                                                                            \
    extern "C" __global__ void __launch_bounds__(256, 1) gw_mv_tiles_bwd##TILES##_##P##_##Q##_##R##_##NAME(                      \
        GW_PARAMETER MvBlockWeights<T> weights, const T* x, const T* y, const T* r, const T* s, const T* grad, T* grad_x,        \
        float* partial) {                                                                                                        \
        begin_kernel();                                                                                                          \
        extern __shared__ uint4 shared[];                                                                                        \
        using Pass = MvTilesBackward<Algebra<P, Q, R>, T, TILES>;                                                                \
        GW_RUN_MV_TILES(Pass::run(reinterpret_cast<char*>(shared), weights, {x, y, r, s, grad}, grad_x, partial));               \
    }

#define GW_MV_TILES(P, Q, R, T, NAME, TILES)      \
    GW_MV_TILES_FORWARD(P, Q, R, T, NAME, TILES)  \
    GW_MV_TILES_BACKWARD(P, Q, R, T, NAME, TILES)

#define GW_MV_TILES_DTYPES(P, Q, R, TILES)    \
    GW_MV_TILES(P, Q, R, bf16, bf16, TILES)   \
    GW_MV_TILES(P, Q, R, f16, f16, TILES)

GW_MV_TILES_DTYPES(2, 0, 0, 1)
GW_MV_TILES_DTYPES(2, 0, 0, 2)
GW_MV_TILES_DTYPES(3, 0, 0, 1)
GW_MV_TILES_DTYPES(3, 0, 0, 2)
