// Attention by warp-wide matrix instructions, see attention/warp.cuh. Names: gw_attention_warp_<pass>_<features>_<dtype>.
#include "attention/warp.cuh"

// Compiled to a trap on targets without the instructions; the launcher checks the device.
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
#define GW_RUN(PASS) PASS(p, tiles)
#else
#define GW_RUN(PASS) __trap()
#endif

/// BLOCKS: how many blocks must fit on a multiprocessor.
#define GW_PASS(T, NAME, D, PASS, FUNCTION, BLOCKS)                                                         \
    extern "C" __global__ void __launch_bounds__(128, BLOCKS) gw_attention_warp_##PASS##_##D##_##NAME(      \
        const __grid_constant__ Attention p, i32 tiles) {                                                   \
        begin_kernel();                                                                                     \
        GW_RUN((AttentionWarp<T, D>::FUNCTION));                                                            \
    }
#define GW_ATTENTION(T, NAME, D)                              \
    GW_PASS(T, NAME, D, fwd, forward, (D) <= 64 ? 3 : 2)      \
    GW_PASS(T, NAME, D, bwd_q, backward_q, (D) <= 64 ? 3 : 2) \
    GW_PASS(T, NAME, D, bwd_kv, backward_kv, 2)
#define GW_KERNELS(T, NAME)         \
    GW_ATTENTION(T, NAME, 32)       \
    GW_ATTENTION(T, NAME, 64)       \
    GW_ATTENTION(T, NAME, 128)
GW_KERNELS(bf16, bf16)
GW_KERNELS(f16, f16)
