// The weighted product of Cl(3,0,1), unrolled.
#include "clifford/sgp.cuh"
#include "clifford/sgp_hopper.cuh"
#include "clifford/sgp_rows.cuh"

GW_SGP_16(3, 0, 1)
GW_SGP_ROWS_16(3, 0, 1)
GW_SGP_HOPPER_16(3, 0, 1)
