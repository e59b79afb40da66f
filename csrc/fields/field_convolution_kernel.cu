// The gradient of a convolution's kernel, see fields/problem.cuh: gw_field_gradient_<simt|warp|exact>_<dtype>, as in field_convolution.cu.
#include "fields/gradient.cuh"

#define GW_GRADIENT_SIMT(T, NAME)                                                                                                       \
    extern "C" __global__ void __launch_bounds__(warp_tile::THREADS, sizeof(T) == 8 ? 2 : 3) gw_field_gradient_simt_##NAME(const FieldProblem problem) { \
        begin_kernel();                                                                                                                 \
        gradient_simt<T>(problem);                                                                                                      \
    }
GW_FOR_DTYPES(GW_GRADIENT_SIMT)

#define GW_GRADIENT_WARP(T, NAME)                                                                                     \
    using Gradient_##NAME = GradientWarp<T, field_tile::WARP_ROWS, field_tile::SIDE, false>;                                                          \
    extern "C" __global__ void __launch_bounds__(warp_tile::THREADS, 2) gw_field_gradient_warp_##NAME(const FieldProblem problem) {  \
        begin_kernel();                                                                                               \
        GW_RUN_WARP(Gradient_##NAME);                                                                                      \
    }
GW_GRADIENT_WARP(float, f32)
GW_GRADIENT_WARP(bf16, bf16)
GW_GRADIENT_WARP(f16, f16)

using GradientExact = GradientWarp<float, field_tile::SIDE, field_tile::SIDE, true>;
extern "C" __global__ void __launch_bounds__(warp_tile::THREADS, 3) gw_field_gradient_exact_f32(const FieldProblem problem) {
    begin_kernel();
    GW_RUN_WARP(GradientExact);
}
