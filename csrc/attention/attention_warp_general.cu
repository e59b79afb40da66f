// Attention by warp-wide matrix instructions, with dropout or of packed sequences.
#include "attention/warp_kernels.cuh"

GW_WARP_KERNELS(warp_general, true)
