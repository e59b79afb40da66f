// Attention of f32 by warp-wide matrix instructions, with the accuracy of f32.
#include "attention/warp_kernels.cuh"

GW_WARP_KERNELS_F32(warp_exact, true)
