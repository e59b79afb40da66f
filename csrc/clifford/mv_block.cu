// Blocks of equivariant networks for the algebras of the plane and of space.
#include "gradewise/strided.cuh"
#include "clifford/mv_block.cuh"

GW_MV_BLOCK(2, 0, 0, 1)
GW_MV_BLOCK(2, 0, 0, 2)
GW_MV_BLOCK(3, 0, 0, 1)
GW_MV_BLOCK(3, 0, 0, 2)
