// The gate x·Φ(x_0) in front of products (arXiv:2305.11141).
#include "clifford/pointwise/gate.cuh"

#define GW_KERNELS(T, NAME) GW_GATE(gate, NormalGate, T, NAME)
GW_FOR_DTYPES(GW_KERNELS)
