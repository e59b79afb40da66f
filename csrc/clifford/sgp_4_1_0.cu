// The weighted product of Cl(4,1,0), unrolled.
#include "clifford/sgp.cuh"
#include "clifford/sgp_hopper.cuh"
#include "clifford/sgp_quads.cuh"

GW_SGP_32(4, 1, 0)
GW_SGP_HOPPER_32(4, 1, 0)
GW_SGP_QUADS(4, 1, 0)
