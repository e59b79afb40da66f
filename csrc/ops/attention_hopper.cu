// Attention by the instructions of sm_90a, see attention/hopper.cuh. Names: gw_attention_hopper_fwd_<features>_<dtype>.
#include "attention/hopper.cuh"

// Compiled to a trap on other targets; the launcher checks the device.
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define GW_RUN(...) __VA_ARGS__::run(problem, tiles, units)
#else
#define GW_RUN(...) __trap()
#endif

#define GW_ATTENTION(T, NAME, D)                                                                            \
    extern "C" __global__ void __launch_bounds__(384, 1) gw_attention_hopper_fwd_##D##_##NAME(              \
        const __grid_constant__ HopperAttention problem, i32 tiles, i64 units) {                                       \
        begin_kernel();                                                                                                \
        GW_RUN(AttentionHopper<T, D>);                                                                      \
    }
GW_ATTENTION(bf16, bf16, 64)
GW_ATTENTION(bf16, bf16, 128)
GW_ATTENTION(f16, f16, 64)
GW_ATTENTION(f16, f16, 128)
