// Attention by ordinary arithmetic, without dropout and of sequences that are not packed; and delta, for all engines.
#include "attention/simt_kernels.cuh"

#define GW_KERNELS(T, NAME)                                                            \
    GW_SIMT_KERNELS(T, NAME, simt, false)                                              \
    extern "C" __global__ void __launch_bounds__(256)                                  \
        gw_attention_delta_##NAME(const __grid_constant__ Attention p, i64 rows) {     \
        begin_kernel();                                                                \
        attention_delta<T>(p, rows);                                                   \
    }
GW_FOR_DTYPES(GW_KERNELS)
