// The weighted product of Cl(2,0,0), unrolled.
#include "clifford/sgp.cuh"
#include "clifford/sgp_hopper.cuh"
#include "clifford/sgp_rows.cuh"

GW_SGP_8(2, 0, 0, 4)
GW_SGP_ROWS_8(2, 0, 0)
GW_SGP_HOPPER_8(2, 0, 0)
