// The grade-wise linear map between few features and many, see mv_narrow.cuh.
//
// Names: gw_mv_narrow_<function>_<K>x<V>_<dtype>. `both` are `sums` and `spread` in one launch, for the gradients of maps from many
// features to few.
#include "clifford/mv_narrow.cuh"

#define GW_KERNEL(FUNCTION, K, V, T, NAME)                                              \
    extern "C" __global__ void __launch_bounds__(kNarrowThreads, (K) * (V) > 4 ? 2 : 3) \
        gw_mv_narrow_##FUNCTION##_##K##x##V##_##NAME(GW_PARAMETER NarrowMap<T> map) {   \
        begin_kernel();                                                                 \
        NarrowFunctions<T, K, V>::FUNCTION(map);                                        \
    }
// `both` is not for 8: its sums and matrix entries need more registers than two blocks leave to a thread. `collect` wants a power of two.
#define GW_WIDTHS(V, T, NAME)        \
    GW_KERNEL(spread, 1, V, T, NAME)  \
    GW_KERNEL(spread, 3, V, T, NAME)  \
    GW_KERNEL(spread, 4, V, T, NAME)  \
    GW_KERNEL(spread, 8, V, T, NAME)  \
    GW_KERNEL(collect, 1, V, T, NAME) \
    GW_KERNEL(collect, 4, V, T, NAME) \
    GW_KERNEL(collect, 8, V, T, NAME) \
    GW_KERNEL(sums, 1, V, T, NAME)    \
    GW_KERNEL(sums, 3, V, T, NAME)    \
    GW_KERNEL(sums, 4, V, T, NAME)    \
    GW_KERNEL(sums, 8, V, T, NAME)    \
    GW_KERNEL(both, 1, V, T, NAME)    \
    GW_KERNEL(both, 3, V, T, NAME)    \
    GW_KERNEL(both, 4, V, T, NAME)
#define GW_KERNELS(T, NAME) \
    GW_WIDTHS(1, T, NAME)   \
    GW_WIDTHS(4, T, NAME)
GW_KERNELS(float, f32)
GW_KERNELS(bf16, bf16)
GW_KERNELS(f16, f16)
