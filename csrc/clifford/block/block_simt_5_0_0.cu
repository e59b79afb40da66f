// Blocks of equivariant networks, and steerable layers alone, for Cl(5,0,0).
#include "clifford/block/simt_kernels.cuh"

GW_BLOCK_SIMT_32(5, 0, 0)
