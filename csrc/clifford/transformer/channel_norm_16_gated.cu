// Gates of 16 planes, with a norm before them or without: csrc/clifford/transformer/channel_norm_16.cuh.
#include "clifford/transformer/channel_norm_16.cuh"

using sixteen_planes::SixteenPlanes, sixteen_planes::most, sixteen_planes::ROWS;

#define GW_KERNELS(T, NAME)                                                                                                          \
    extern "C" __global__ void __launch_bounds__(ROWS * most(sizeof(T)), 1) gw_channel_norm_16_gated_fwd_##NAME(                     \
        const __grid_constant__ SixteenPlanes planes, const T* x, const T* gains, const T* scalar_gains, T* out) {                   \
        begin_kernel();                                                                                                              \
        sixteen_planes::norm<T, true>(planes, x, gains, scalar_gains, out);                                                          \
    }                                                                                                                                \
    extern "C" __global__ void __launch_bounds__(ROWS * most(sizeof(T)), 1) gw_channel_norm_16_gated_bwd_##NAME(                     \
        const __grid_constant__ SixteenPlanes planes, const T* x, const T* gains, const T* scalar_gains, const T* grad, T* grad_x,   \
        Compute<T>* partial) {                                                                                                       \
        begin_kernel();                                                                                                              \
        sixteen_planes::norm_backward<T, true>(planes, x, gains, scalar_gains, grad, grad_x, partial);                               \
    }
GW_FOR_DTYPES(GW_KERNELS)
