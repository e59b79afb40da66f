// mv_normalization(x; a): x^(k) / (σ(a_k)·(‖x^(k)‖ - 1) + 1 + 1e-6) with the smooth norm of clifford/pointwise/norms.cuh (arXiv:2305.11141).
#include "clifford/pointwise/normalization.cuh"

#define GW_KERNELS(T, NAME) GW_NORMALIZATION(mv_normalization, Normalization, T, NAME)
GW_FOR_DTYPES(GW_KERNELS)
