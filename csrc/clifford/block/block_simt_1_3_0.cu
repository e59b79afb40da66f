// Blocks of equivariant networks, and steerable layers alone, for Cl(1,3,0).
#include "clifford/block/simt_kernels.cuh"

GW_BLOCK_SIMT_16(1, 3, 0)
