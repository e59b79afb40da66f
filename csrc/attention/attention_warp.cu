// Attention by warp-wide matrix instructions, without dropout and of sequences that are not packed.
#include "attention/warp_kernels.cuh"

GW_WARP_KERNELS(warp, false)
