// The convolution of fields and its adjoint, see fields/problem.cuh.
//
// gw_field_gather_simt_<dtype> serves any sizes; gw_field_gather_warp_<dtype> channels in whole packs of 16 bytes by matrix instructions,
// in f32 by TF32; gw_field_gather_exact_f32 the same in three parts, with the accuracy of f32.
#include "fields/gather.cuh"

#define GW_GATHER_SIMT(T, NAME)                                                                                                      \
    extern "C" __global__ void __launch_bounds__(warp_tile::THREADS, sizeof(T) == 8 ? 2 : 3) gw_field_gather_simt_##NAME(const FieldProblem problem) { \
        begin_kernel();                                                                                                              \
        gather_simt<T>(problem);                                                                                                     \
    }
GW_FOR_DTYPES(GW_GATHER_SIMT)

#define GW_GATHER_WARP(T, NAME)                                                                                     \
    using Gather_##NAME = GatherWarp<T, field_tile::WARP_ROWS, field_tile::SIDE, false>;                                                            \
    extern "C" __global__ void __launch_bounds__(warp_tile::THREADS, 3) gw_field_gather_warp_##NAME(const FieldProblem problem) {  \
        begin_kernel();                                                                                             \
        GW_RUN_WARP(Gather_##NAME);                                                                                      \
    }
GW_GATHER_WARP(float, f32)
GW_GATHER_WARP(bf16, bf16)
GW_GATHER_WARP(f16, f16)

using GatherExact = GatherWarp<float, field_tile::SIDE, field_tile::SIDE, true>;
extern "C" __global__ void __launch_bounds__(warp_tile::THREADS, 3) gw_field_gather_exact_f32(const FieldProblem problem) {
    begin_kernel();
    GW_RUN_WARP(GatherExact);
}
