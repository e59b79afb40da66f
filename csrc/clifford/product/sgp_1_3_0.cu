// The weighted product of Cl(1,3,0), unrolled.
#include "clifford/product/unrolled.cuh"
#include "clifford/product/sm90_persistent.cuh"
#include "clifford/product/persistent.cuh"

GW_SGP_16(1, 3, 0)
GW_SGP_PERSISTENT_16(1, 3, 0)
GW_SGP_SM90_16(1, 3, 0)
