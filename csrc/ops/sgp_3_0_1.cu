// The weighted product of Cl(3,0,1), unrolled.
#include "ops/sgp.cuh"

GW_SGP_16(3, 0, 1)
