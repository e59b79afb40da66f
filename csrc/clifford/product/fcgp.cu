// The algebras whose fully connected product is compiled ahead of time; others use tables (table_product.cu).
#include "clifford/product/fcgp.cuh"

GW_FCGP_8(2, 0, 0)
GW_FCGP_8(3, 0, 0)
