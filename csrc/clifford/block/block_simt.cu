// Blocks of equivariant networks, and steerable layers alone, for the algebras of the plane and of space.
#include "clifford/block/simt_kernels.cuh"

GW_BLOCK_SIMT_8(2, 0, 0)
GW_BLOCK_SIMT_8(3, 0, 0)
