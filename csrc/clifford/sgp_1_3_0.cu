// The weighted product of Cl(1,3,0), unrolled.
#include "clifford/sgp.cuh"
#include "clifford/sgp_hopper.cuh"
#include "clifford/sgp_rows.cuh"

GW_SGP_16(1, 3, 0)
GW_SGP_ROWS_16(1, 3, 0)
GW_SGP_HOPPER_16(1, 3, 0)
