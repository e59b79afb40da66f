// The weighted product of Cl(4,1,0), unrolled.
#include "ops/sgp.cuh"

GW_SGP_32(4, 1, 0)
