// The weighted product of Cl(3,0,0), unrolled.
#include "clifford/product/unrolled.cuh"
#include "clifford/product/sm90_persistent.cuh"
#include "clifford/product/persistent.cuh"

GW_SGP_8(3, 0, 0, 2)
GW_SGP_PERSISTENT_8(3, 0, 0)
GW_SGP_SM90_8(3, 0, 0)
