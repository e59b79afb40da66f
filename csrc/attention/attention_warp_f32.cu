// Attention of f32 by warp-wide matrix instructions, in TF32.
#include "attention/warp_kernels.cuh"

GW_WARP_KERNELS_F32(warp, false)
GW_ATTENTION(float, f32, 128, warp, false, false)
