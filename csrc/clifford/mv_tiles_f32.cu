// Blocks of equivariant networks on many rows of f32, for the algebras of the plane and of space, on compute capability 9.0, for which registers
// and shared memory were laid out. Compiled to a trap on other targets; the launcher checks the device.
#include "clifford/mv_tiles_f32_backward.cuh"
#include "clifford/mv_tiles_f32_forward.cuh"
#include "gradewise/strided.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ == 900
#define GW_RUN(...) __VA_ARGS__
#else
#define GW_RUN(...) __trap()
#endif

#define GW_MV_TILES_FORWARD(P, Q, R)                                                                                             \
    extern "C" __global__ void __launch_bounds__(384, 1) gw_mv_tiles_fwd_##P##_##Q##_##R##_f32(                                  \
        GW_PARAMETER MvBlockWeights<float> weights, const float* x, const float* residual, float* out, float* y, float* r,       \
        float* s) {                                                                                                              \
        begin_kernel();                                                                                                          \
        extern __shared__ uint4 shared[];                                                                                        \
        using Pass = MvTilesF32Forward<Algebra<P, Q, R>>;                                                                        \
        GW_RUN(Pass::run(reinterpret_cast<float*>(shared), weights, x, residual, out, {y, r, s}));                               \
    }

#define GW_MV_TILES_BACKWARD(P, Q, R, TILES)                                                                                     \
    extern "C" __global__ void __launch_bounds__(256, 1) gw_mv_tiles_bwd##TILES##_##P##_##Q##_##R##_f32(                         \
        GW_PARAMETER MvBlockWeights<float> weights, const float* x, const float* y, const float* r, const float* s,              \
        const float* grad, float* grad_x, float* partial) {                                                                      \
        begin_kernel();                                                                                                          \
        extern __shared__ uint4 shared[];                                                                                        \
        using Pass = MvTilesF32Backward<Algebra<P, Q, R>, TILES>;                                                                \
        GW_RUN(Pass::run(reinterpret_cast<float*>(shared), weights, {x, y, r, s, grad}, grad_x, partial));                       \
    }

#define GW_MV_TILES(P, Q, R)          \
    GW_MV_TILES_FORWARD(P, Q, R)      \
    GW_MV_TILES_BACKWARD(P, Q, R, 1)  \
    GW_MV_TILES_BACKWARD(P, Q, R, 2)

GW_MV_TILES(2, 0, 0)
GW_MV_TILES(3, 0, 0)
