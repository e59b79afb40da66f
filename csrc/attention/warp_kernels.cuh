// The kernels of attention by warp-wide matrix instructions, see attention/warp.cuh. Names: gw_attention_<engine>_<pass>_<features>_<dtype>.
#pragma once

#include "attention/warp.cuh"

// Compiled to a trap on targets without the instructions; the launcher checks the device.
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
#define GW_RUN(PASS) PASS(p, tiles)
#else
#define GW_RUN(PASS) __trap()
#endif

/// BLOCKS: how many blocks must fit on a multiprocessor.
#define GW_PASS(T, NAME, D, PASS, GENERAL, EXACT, FUNCTION, BLOCKS)                                                   \
    extern "C" __global__ void __launch_bounds__(attention_warp::THREADS, BLOCKS) gw_attention_##PASS##_##D##_##NAME( \
        const __grid_constant__ Attention p, i32 tiles) {                                                             \
        begin_kernel();                                                                                               \
        GW_RUN((AttentionWarp<T, D, GENERAL, EXACT>::FUNCTION));                                                      \
    }
#define GW_ATTENTION(T, NAME, D, ENGINE, GENERAL, EXACT)                                  \
    GW_PASS(T, NAME, D, ENGINE##_fwd, GENERAL, EXACT, forward, (D) <= 64 && !(EXACT) ? 3 : 2)         \
    GW_PASS(T, NAME, D, ENGINE##_bwd_q, GENERAL, EXACT, backward_q, (D) <= 64 && (D) != 48 && !(EXACT) ? 3 : 2)    \
    GW_PASS(T, NAME, D, ENGINE##_bwd_kv, GENERAL, EXACT, backward_kv, 2)

/// The kernels of all sizes of 16-bit dtypes.
#define GW_WARP_KERNELS(ENGINE, GENERAL)                  \
    GW_ATTENTION(bf16, bf16, 32, ENGINE, GENERAL, false)  \
    GW_ATTENTION(bf16, bf16, 64, ENGINE, GENERAL, false)  \
    GW_ATTENTION(bf16, bf16, 128, ENGINE, GENERAL, false) \
    GW_ATTENTION(f16, f16, 32, ENGINE, GENERAL, false)    \
    GW_ATTENTION(f16, f16, 64, ENGINE, GENERAL, false)    \
    GW_ATTENTION(f16, f16, 128, ENGINE, GENERAL, false)

/// The kernels of f32. Exact ones of 128 features would need more registers than there are.
#define GW_WARP_KERNELS_F32(ENGINE, EXACT)             \
    GW_ATTENTION(float, f32, 32, ENGINE, false, EXACT) \
    GW_ATTENTION(float, f32, 48, ENGINE, false, EXACT) \
    GW_ATTENTION(float, f32, 64, ENGINE, false, EXACT) \
    GW_ATTENTION(float, f32, 96, ENGINE, false, EXACT)
