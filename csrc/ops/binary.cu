// Elementwise functions of two arrays, broadcast together, and the choice between two arrays. The functions are numbered
// as in crates/kernels/src/ops/binary/cuda.rs.
#include "gradewise/elementwise.cuh"

namespace {

enum Function : i32 {
    kAdd,
    kSub,
    kMul,
    kDiv,
    kMax,
    kMin,
    kEqual,
    kNotEqual,
    kGreater,
    kGreaterEqual,
    kLess,
    kLessEqual,
};

/// Applies one of the functions to a pack.
template <class T>
struct Binary {
    using C = Compute<T>;
    i32 function;

    template <int W>
    GW_DEVICE void operator()(const C (&values)[2][W], Pack<T, W>& results) const {
        const auto each = [&](const auto& g) {
#pragma unroll
            for (int k = 0; k < W; ++k) results.at[k] = narrow<T>(C(g(values[0][k], values[1][k])));
        };
        // The branch is uniform over the grid.
        switch (function) {
            case kAdd: return each([](C a, C b) { return a + b; });
            case kSub: return each([](C a, C b) { return a - b; });
            case kMul: return each([](C a, C b) { return a * b; });
            case kDiv: return each([](C a, C b) { return a / b; });
            case kMax: return each([](C a, C b) { return a > b || a != a ? a : b; });
            case kMin: return each([](C a, C b) { return a < b || a != a ? a : b; });
            case kEqual: return each([](C a, C b) { return a == b; });
            case kNotEqual: return each([](C a, C b) { return a != b; });
            case kGreater: return each([](C a, C b) { return a > b; });
            case kGreaterEqual: return each([](C a, C b) { return a >= b; });
            case kLess: return each([](C a, C b) { return a < b; });
            case kLessEqual: return each([](C a, C b) { return a <= b; });
        }
    }
};

/// Selects the second operand where the first is not 0 (NaN is not 0), else the third.
template <class T>
struct Select {
    template <int W>
    GW_DEVICE void operator()(const Compute<T> (&values)[3][W], Pack<T, W>& results) const {
#pragma unroll
        for (int k = 0; k < W; ++k) {
            results.at[k] = narrow<T>(values[0][k] != Compute<T>(0) ? values[1][k] : values[2][k]);
        }
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
