// The grade-wise linear map between few features and many, see few_to_many.cuh.
//
// Names: gw_mv_linear_<function>_<K>x<V>_<dtype>, and with_f32 before the dtype where all but the many features is in f32. `grads` is
// `weight_grad` and `few_to_many` in one launch, for the gradients of maps from many features to few.
#include "clifford/linear/few_to_many.cuh"

#define GW_KERNEL(FUNCTION, K, V, T, P, NAME)                                                 \
    extern "C" __global__ void __launch_bounds__(few_features::THREADS, (K) * (V) > 4 ? 2 : 3)  \
        gw_mv_linear_##FUNCTION##_##K##x##V##_##NAME(GW_PARAMETER FewFeaturesMap<T, P> map) { \
        begin_kernel();                                                                       \
        FewFeaturesFunctions<T, P, K, V>::FUNCTION(map);                                      \
    }
// `grads` is not for 8: its sums and matrix entries need more registers than two blocks leave to a thread. `many_to_few` needs a power of two.
#define GW_WIDTHS(V, T, P, NAME)             \
    GW_KERNEL(few_to_many, 1, V, T, P, NAME) \
    GW_KERNEL(few_to_many, 3, V, T, P, NAME) \
    GW_KERNEL(few_to_many, 4, V, T, P, NAME) \
    GW_KERNEL(few_to_many, 8, V, T, P, NAME) \
    GW_KERNEL(many_to_few, 1, V, T, P, NAME) \
    GW_KERNEL(many_to_few, 4, V, T, P, NAME) \
    GW_KERNEL(many_to_few, 8, V, T, P, NAME) \
    GW_KERNEL(weight_grad, 1, V, T, P, NAME) \
    GW_KERNEL(weight_grad, 3, V, T, P, NAME) \
    GW_KERNEL(weight_grad, 4, V, T, P, NAME) \
    GW_KERNEL(weight_grad, 8, V, T, P, NAME) \
    GW_KERNEL(grads, 1, V, T, P, NAME)       \
    GW_KERNEL(grads, 3, V, T, P, NAME)       \
    GW_KERNEL(grads, 4, V, T, P, NAME)
#define GW_KERNELS(T, NAME)    \
    GW_WIDTHS(1, T, T, NAME)   \
    GW_WIDTHS(4, T, T, NAME)
GW_KERNELS(float, f32)
GW_KERNELS(bf16, bf16)
GW_KERNELS(f16, f16)
// In mixed precision, for packs alone: what has none is converted.
GW_WIDTHS(4, bf16, float, with_f32_bf16)
GW_WIDTHS(4, f16, float, with_f32_f16)
