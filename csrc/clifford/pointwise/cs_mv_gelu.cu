// cs_mv_gelu(x): the gate of steerable networks, x·½(1 + tanh(√(2/π)(x_0 + 0.044715 x_0³))) (arXiv:2402.14730).
#include "clifford/pointwise/gate.cuh"

#define GW_KERNELS(T, NAME) GW_GATE(cs_mv_gelu, TanhGate, T, NAME)
GW_FOR_DTYPES(GW_KERNELS)
