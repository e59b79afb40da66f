// cs_grade_norm(x; a): x^(k) / (σ(a_k)·(‖x^(k)‖ - 1) + 1 + 1e-6) with norms of at least 0.1 (arXiv:2402.14730).
#include "clifford/pointwise/normalization.cuh"

#define GW_KERNELS(T, NAME) GW_NORMALIZATION(cs_grade_norm, ClampedNormalization, T, NAME)
GW_FOR_DTYPES(GW_KERNELS)
