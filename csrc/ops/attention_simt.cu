// Attention by ordinary arithmetic, see attention/simt.cuh. Names: gw_attention_simt_<pass>_<features>_<dtype>.
#include "attention/simt.cuh"

#define GW_ATTENTION(T, NAME, D, R)                                                                        \
    extern "C" __global__ void __launch_bounds__(256, 2) gw_attention_simt_fwd_##D##_##NAME(                  \
        const __grid_constant__ Attention p, i32 tiles) {                                                      \
        begin_kernel();                                                                                        \
        AttentionSimt<T, D, R>::forward(p, tiles);                                                         \
    }                                                                                                      \
    extern "C" __global__ void __launch_bounds__(256, 2) gw_attention_simt_bwd_q_##D##_##NAME(                \
        const __grid_constant__ Attention p, i32 tiles) {                                                      \
        begin_kernel();                                                                                        \
        AttentionSimt<T, D, 1>::backward_q(p, tiles);                                                      \
    }                                                                                                      \
    extern "C" __global__ void __launch_bounds__(256, 2) gw_attention_simt_bwd_kv_##D##_##NAME(               \
        const __grid_constant__ Attention p, i32 tiles) {                                                      \
        begin_kernel();                                                                                        \
        AttentionSimt<T, D, 1>::backward_kv(p, tiles);                                                     \
    }
#define GW_KERNELS(T, NAME)                                                                                \
    GW_ATTENTION(T, NAME, 32, sizeof(Compute<T>) == 8 ? 1 : 2)                                             \
    GW_ATTENTION(T, NAME, 64, sizeof(Compute<T>) == 8 ? 1 : 2)                                             \
    GW_ATTENTION(T, NAME, 128, sizeof(Compute<T>) == 8 ? 1 : 2)                                            \
    extern "C" __global__ void __launch_bounds__(256)                                                      \
        gw_attention_delta_##NAME(const __grid_constant__ Attention p, i64 rows) {                             \
        begin_kernel();                                                                                        \
        attention_delta<T>(p, rows);                                                                       \
    }
GW_FOR_DTYPES(GW_KERNELS)
