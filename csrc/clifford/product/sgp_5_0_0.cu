// The weighted product of Cl(5,0,0), unrolled.
#include "clifford/product/unrolled.cuh"
#include "clifford/product/sm90_persistent.cuh"
#include "clifford/product/four_lanes.cuh"
#include "clifford/product/persistent.cuh"

GW_SGP_32(5, 0, 0)
GW_SGP_SM90_32(5, 0, 0)
GW_SGP_FOUR_LANES(5, 0, 0)
// Where shared memory holds less than three rows of those.
GW_SGP_PERSISTENT_32(5, 0, 0)
