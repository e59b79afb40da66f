// Sums of several arrays of one shape, added in order. One kernel serves up to four arrays and one up to eight; unused operands
// repeat the first and are not added.
#include "gradewise/elementwise.cuh"
#include "gradewise/functions.cuh"

namespace {

/// The sum of the first `count` arrays.
template <class T>
struct Sum {
    i32 count;

    template <int N, int W>
    GW_DEVICE void operator()(const Compute<T> (&values)[N][W], Pack<T, W>& results) const {
        Compute<T> sum[W];
#pragma unroll
        for (int k = 0; k < W; ++k) sum[k] = values[0][k];
#pragma unroll
        for (int n = 1; n < N; ++n) {
            // The branch is uniform over the grid.
            if (n < count) {
#pragma unroll
                for (int k = 0; k < W; ++k) sum[k] = plus(sum[k], values[n][k]);
            }
        }
#pragma unroll
        for (int k = 0; k < W; ++k) results.at[k] = narrow<T>(sum[k]);
    }
};

}  // namespace

#define GW_VIEW(T, NAME) GW_PARAMETER View<const T> NAME
#define GW_KERNELS(T, NAME)                                                                                                   \
    extern "C" __global__ void __launch_bounds__(256) gw_add_4_##NAME(                                                        \
        T* out, i64 elements, i32 wide, GW_PARAMETER Axes axes, GW_VIEW(T, a), GW_VIEW(T, b), GW_VIEW(T, c), GW_VIEW(T, d),   \
        i32 count) {                                                                                                          \
        begin_kernel();                                                                                                       \
        const View<const T>* const in[4] = {&a, &b, &c, &d};                                                                  \
        elementwise(out, elements, wide, axes, in, Sum<T>{count});                                                            \
    }                                                                                                                         \
    extern "C" __global__ void __launch_bounds__(256) gw_add_8_##NAME(                                                        \
        T* out, i64 elements, i32 wide, GW_PARAMETER Axes axes, GW_VIEW(T, a), GW_VIEW(T, b), GW_VIEW(T, c), GW_VIEW(T, d),   \
        GW_VIEW(T, e), GW_VIEW(T, f), GW_VIEW(T, g), GW_VIEW(T, h), i32 count) {                                              \
        begin_kernel();                                                                                                       \
        const View<const T>* const in[8] = {&a, &b, &c, &d, &e, &f, &g, &h};                                                  \
        elementwise(out, elements, wide, axes, in, Sum<T>{count});                                                            \
    }
GW_FOR_DTYPES(GW_KERNELS)
