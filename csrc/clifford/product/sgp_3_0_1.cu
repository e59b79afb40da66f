// The weighted product of Cl(3,0,1), unrolled.
#include "clifford/product/unrolled.cuh"
#include "clifford/product/sm90_persistent.cuh"
#include "clifford/product/persistent.cuh"

GW_SGP_16(3, 0, 1)
GW_SGP_PERSISTENT_16(3, 0, 1)
GW_SGP_SM90_16(3, 0, 1)
