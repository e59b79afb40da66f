// The weighted product of Cl(3,0,0), unrolled.
#include "ops/sgp.cuh"

GW_SGP_8(3, 0, 0, 2)
