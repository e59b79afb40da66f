// The weighted product of Cl(5,0,0), unrolled.
#include "ops/sgp.cuh"
#include "ops/sgp_hopper.cuh"
#include "ops/sgp_rows.cuh"

GW_SGP_32(5, 0, 0)
GW_SGP_ROWS_32(5, 0, 0)
GW_SGP_HOPPER_32(5, 0, 0)
