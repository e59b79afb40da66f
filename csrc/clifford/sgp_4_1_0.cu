// The weighted product of Cl(4,1,0), unrolled.
#include "clifford/sgp.cuh"
#include "clifford/sgp_hopper.cuh"
#include "clifford/sgp_quads.cuh"
#include "clifford/sgp_rows.cuh"

GW_SGP_32(4, 1, 0)
GW_SGP_HOPPER_32(4, 1, 0)
GW_SGP_QUADS(4, 1, 0)
// Where shared memory holds less than three rows of those.
GW_SGP_ROWS_32(4, 1, 0)
