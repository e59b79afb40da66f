// The weighted product of Cl(1,3,0), unrolled.
#include "ops/sgp.cuh"

GW_SGP_16(1, 3, 0)
