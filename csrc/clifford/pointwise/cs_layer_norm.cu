// cs_layer_norm(x): x / (mean over channels of ‖x‖ + 1e-6), with norms of at least 0.1 (arXiv:2402.14730). Shapes are those of
// clifford/pointwise/layer_norm.cuh.
#include "clifford/pointwise/layer_norm.cuh"

#define GW_KERNELS(T, NAME)                                                                                     \
    extern "C" __global__ void __launch_bounds__(256, 4) gw_cs_layer_norm_fwd_##NAME(                           \
        const T* x, T* out, const i32* metric, i64 blades, i64 rows, i64 features) {                            \
        begin_kernel();                                                                                         \
        layer_norm<ClampedNorm, false>(x, static_cast<const T*>(nullptr), out, metric, blades, rows, features); \
    }                                                                                                           \
    extern "C" __global__ void __launch_bounds__(256, 4) gw_cs_layer_norm_bwd_##NAME(                           \
        const T* x, const T* grad, T* out, const i32* metric, i64 blades, i64 rows, i64 features) {             \
        begin_kernel();                                                                                         \
        layer_norm_backward<ClampedNorm, false>(x, static_cast<const T*>(nullptr), grad, out,                   \
                                                static_cast<Compute<T>*>(nullptr), metric, blades, rows, features); \
    }
GW_FOR_DTYPES(GW_KERNELS)
