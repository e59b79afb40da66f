// The kernels of attention by the instructions of sm_90a, see attention/hopper.cuh and attention/hopper_backward.cuh. Names:
// gw_attention_<engine>_<pass>_<features>_<dtype>.
#pragma once

#include "attention/hopper.cuh"
#include "attention/hopper_backward.cuh"

// Compiled to a trap on other targets; the launcher checks the device.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define GW_RUN(...) __VA_ARGS__::run(problem, tiles, units)
#else
#define GW_RUN(...) __trap()
#endif

#define GW_PASS(T, NAME, D, PASS, THREADS, PROBLEM, ...)                                         \
    extern "C" __global__ void __launch_bounds__(THREADS, 1) gw_attention_##PASS##_##D##_##NAME( \
        const __grid_constant__ PROBLEM problem, i32 tiles, i32 units) {                         \
        begin_kernel();                                                                          \
        GW_RUN(__VA_ARGS__);                                                                     \
    }
#define GW_BACKWARD(T, NAME, D, PASS, ...) \
    GW_PASS(T, NAME, D, PASS, (AttentionHopperBackward<T, D, __VA_ARGS__>::THREADS), HopperAttentionBackward, AttentionHopperBackward<T, D, __VA_ARGS__>)
#define GW_ATTENTION(T, NAME, D, ENGINE, GENERAL)                                                      \
    GW_PASS(T, NAME, D, ENGINE##_fwd, attention_hopper::threads(attention_hopper::CONSUMERS), HopperAttention, AttentionHopper<T, D, GENERAL>)            \
    GW_BACKWARD(T, NAME, D, ENGINE##_bwd_q, false, GENERAL)                                            \
    GW_BACKWARD(T, NAME, D, ENGINE##_bwd_kv, true, GENERAL)

/// The kernels of all sizes and dtypes.
#define GW_HOPPER_KERNELS(ENGINE, GENERAL)         \
    GW_ATTENTION(bf16, bf16, 64, ENGINE, GENERAL)  \
    GW_ATTENTION(bf16, bf16, 128, ENGINE, GENERAL) \
    GW_ATTENTION(f16, f16, 64, ENGINE, GENERAL)    \
    GW_ATTENTION(f16, f16, 128, ENGINE, GENERAL)
