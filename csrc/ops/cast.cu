// Conversions between element types (csrc/gradewise/functions.cuh).
#include "gradewise/elementwise.cuh"
#include "gradewise/functions.cuh"

namespace {

template <class S, class T>
struct Cast {
    template <int W>
    GW_DEVICE void operator()(const Compute<S> (&values)[1][W], Pack<T, W>& results) const {
#pragma unroll
        for (int k = 0; k < W; ++k) results.at[k] = Convert<S, T>::one(values[0][k]);
    }
};

}  // namespace

#define GW_CAST(S, FROM, T, TO)                                                                   \
    extern "C" __global__ void __launch_bounds__(256) gw_cast_##FROM##_##TO(                      \
        T* out, i64 elements, i32 wide, GW_PARAMETER Axes axes, GW_PARAMETER View<const S> x) {                             \
        begin_kernel();                                                                                                     \
        const View<const S>* const in[1] = {&x};                                                  \
        elementwise(out, elements, wide, axes, in, Cast<S, T>{});                                 \
    }
GW_CAST(float, f32, double, f64)
GW_CAST(float, f32, bf16, bf16)
GW_CAST(float, f32, f16, f16)
GW_CAST(double, f64, float, f32)
GW_CAST(double, f64, bf16, bf16)
GW_CAST(double, f64, f16, f16)
GW_CAST(bf16, bf16, float, f32)
GW_CAST(bf16, bf16, double, f64)
GW_CAST(bf16, bf16, f16, f16)
GW_CAST(f16, f16, float, f32)
GW_CAST(f16, f16, double, f64)
GW_CAST(f16, f16, bf16, bf16)
