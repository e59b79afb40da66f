// The kernels of attention by ordinary arithmetic, see attention/simt.cuh. Names: gw_attention_<engine>_<pass>_<features>_<dtype>.
#pragma once

#include "attention/simt.cuh"

#define GW_PASS(T, NAME, D, PASS, ...)                                                          \
    extern "C" __global__ void __launch_bounds__(attention_simt::THREADS, 2) gw_attention_##PASS##_##D##_##NAME( \
        const __grid_constant__ Attention p, i32 tiles) {                                       \
        begin_kernel();                                                                         \
        __VA_ARGS__(p, tiles);                                                                  \
    }
#define GW_ATTENTION(T, NAME, D, ENGINE, GENERAL)                                                                           \
    GW_PASS(T, NAME, D, ENGINE##_fwd, AttentionSimt<T, D, sizeof(Compute<T>) == 8 ? 1 : 2, GENERAL>::forward)               \
    GW_PASS(T, NAME, D, ENGINE##_bwd_q, AttentionSimt<T, D, 1, GENERAL>::backward_q)                                        \
    GW_PASS(T, NAME, D, ENGINE##_bwd_kv, AttentionSimt<T, D, 1, GENERAL>::backward_kv)

/// The kernels of all sizes for a dtype.
#define GW_SIMT_KERNELS(T, NAME, ENGINE, GENERAL) \
    GW_ATTENTION(T, NAME, 32, ENGINE, GENERAL)    \
    GW_ATTENTION(T, NAME, 64, ENGINE, GENERAL)    \
    GW_ATTENTION(T, NAME, 128, ENGINE, GENERAL)
