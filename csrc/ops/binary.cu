// Elementwise functions of two arrays, broadcast together, and the choice between two arrays (csrc/gradewise/functions.cuh).
#include "gradewise/elementwise.cuh"
#include "gradewise/functions.cuh"

namespace {

/// Applies one of the functions to a pack.
template <class T>
struct Binary {
    using C = Compute<T>;
    i32 function;

    template <BinaryFunction F, int W>
    GW_DEVICE static void each(const C (&values)[2][W], Pack<T, W>& results) {
#pragma unroll
        for (int k = 0; k < W; ++k) results.at[k] = narrow<T>(binary<F>(values[0][k], values[1][k]));
    }

    template <int W>
    GW_DEVICE void operator()(const C (&values)[2][W], Pack<T, W>& results) const {
        // The branch is uniform over the grid.
        switch (function) {
#define GW_CASE(NAME) \
    case NAME: return each<NAME>(values, results);
            GW_FOR_BINARY_FUNCTIONS(GW_CASE)
#undef GW_CASE
        }
    }
};

/// Selects the second operand where the first is not 0 (NaN is not 0), else the third.
template <class T>
struct Select {
    template <int W>
    GW_DEVICE void operator()(const Compute<T> (&values)[3][W], Pack<T, W>& results) const {
#pragma unroll
        for (int k = 0; k < W; ++k) results.at[k] = narrow<T>(choose(values[0][k], values[1][k], values[2][k]));
    }
};

}  // namespace

#define GW_KERNELS(T, NAME)                                                                                  \
    extern "C" __global__ void __launch_bounds__(256) gw_binary_##NAME(                                      \
        T* out, i64 elements, i32 wide, GW_PARAMETER Axes axes, GW_PARAMETER View<const T> a, GW_PARAMETER View<const T> b, i32 function) {         \
        begin_kernel();                                                                                                                             \
        const View<const T>* const in[2] = {&a, &b};                                                         \
        elementwise(out, elements, wide, axes, in, Binary<T>{function});                                     \
    }                                                                                                        \
    extern "C" __global__ void __launch_bounds__(256) gw_select_##NAME(                                      \
        T* out, i64 elements, i32 wide, GW_PARAMETER Axes axes, GW_PARAMETER View<const T> mask, GW_PARAMETER View<const T> a, GW_PARAMETER View<const T> b) {   \
        begin_kernel();                                                                                                                                          \
        const View<const T>* const in[3] = {&mask, &a, &b};                                                  \
        elementwise(out, elements, wide, axes, in, Select<T>{});                                             \
    }
GW_FOR_DTYPES(GW_KERNELS)
