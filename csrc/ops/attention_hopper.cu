// Attention by the instructions of sm_90a, see attention/hopper.cuh and attention/hopper_backward.cuh. Names:
// gw_attention_hopper_<pass>_<features>_<dtype>.
#include "attention/hopper.cuh"
#include "attention/hopper_backward.cuh"

// Compiled to a trap on other targets; the launcher checks the device.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define GW_RUN(...) __VA_ARGS__::run(problem, tiles, units)
#else
#define GW_RUN(...) __trap()
#endif

#define GW_PASS(T, NAME, D, PASS, THREADS, PROBLEM, ...)                                                  \
    extern "C" __global__ void __launch_bounds__(THREADS, 1) gw_attention_hopper_##PASS##_##D##_##NAME( \
        const __grid_constant__ PROBLEM problem, i32 tiles, i32 units) {                         \
        begin_kernel();                                                                          \
        GW_RUN(__VA_ARGS__);                                                                     \
    }
#define GW_ATTENTION(T, NAME, D)                                                                        \
    GW_PASS(T, NAME, D, fwd, 384, HopperAttention, AttentionHopper<T, D>)                                    \
    GW_PASS(T, NAME, D, bwd_q, (AttentionHopperBackward<T, D, false>::THREADS), HopperAttentionBackward, AttentionHopperBackward<T, D, false>)           \
    GW_PASS(T, NAME, D, bwd_kv, (AttentionHopperBackward<T, D, true>::THREADS), HopperAttentionBackward, AttentionHopperBackward<T, D, true>)
GW_ATTENTION(bf16, bf16, 64)
GW_ATTENTION(bf16, bf16, 128)
GW_ATTENTION(f16, f16, 64)
GW_ATTENTION(f16, f16, 128)
