// The weighted product of Cl(4,1,0), unrolled.
#include "ops/sgp.cuh"
#include "ops/sgp_hopper.cuh"
#include "ops/sgp_rows.cuh"

GW_SGP_32(4, 1, 0)
GW_SGP_ROWS_32(4, 1, 0)
GW_SGP_HOPPER_32(4, 1, 0)
