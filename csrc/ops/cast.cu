// Conversions between element types, rounded to nearest, ties to even.
#include "gradewise/elementwise.cuh"

namespace {

/// Rounds to odd: rounding the result again, to a type with at least two digits less, gives the same as rounding once.
GW_DEVICE float round_to_odd(double value) {
    const float truncated = __double2float_rz(value);
    const bool exact = static_cast<double>(truncated) == value || value != value;
    return exact ? truncated : __uint_as_float(__float_as_uint(truncated) | 1u);
}

template <class S, class T>
struct Convert {
    GW_DEVICE static T one(Compute<S> value) { return narrow<T>(value); }
};
template <>
struct Convert<double, f16> {
    GW_DEVICE static f16 one(double value) { return narrow<f16>(round_to_odd(value)); }
};
template <>
struct Convert<double, bf16> {
    GW_DEVICE static bf16 one(double value) { return narrow<bf16>(round_to_odd(value)); }
};

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
