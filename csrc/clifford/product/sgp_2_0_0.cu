// The weighted product of Cl(2,0,0), unrolled.
#include "clifford/product/unrolled.cuh"
#include "clifford/product/sm90_persistent.cuh"
#include "clifford/product/persistent.cuh"

GW_SGP_8(2, 0, 0, 4)
GW_SGP_PERSISTENT_8(2, 0, 0)
GW_SGP_SM90_8(2, 0, 0)
