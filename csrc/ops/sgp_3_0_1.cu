// The weighted product of Cl(3,0,1), unrolled.
#include "ops/sgp.cuh"
#include "ops/sgp_hopper.cuh"
#include "ops/sgp_rows.cuh"

GW_SGP_16(3, 0, 1)
GW_SGP_ROWS_16(3, 0, 1)
GW_SGP_HOPPER_16(3, 0, 1)
