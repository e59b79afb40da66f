// The weighted product of Cl(5,0,0), unrolled.
#include "ops/sgp.cuh"

GW_SGP_32(5, 0, 0)
