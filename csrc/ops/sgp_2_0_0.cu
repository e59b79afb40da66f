// The weighted product of Cl(2,0,0), unrolled.
#include "ops/sgp.cuh"

GW_SGP_8(2, 0, 0, 4)
