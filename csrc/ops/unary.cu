// Elementwise functions of one array (csrc/gradewise/functions.cuh).
#include "gradewise/elementwise.cuh"
#include "gradewise/functions.cuh"

namespace {

/// Applies one of the functions, with its parameters, to a pack.
template <class T>
struct Unary {
    using C = Compute<T>;
    i32 function;
    double p, q;

    template <UnaryFunction F, int W>
    GW_DEVICE void each(const C (&values)[W], Pack<T, W>& results) const {
#pragma unroll
        for (int k = 0; k < W; ++k) results.at[k] = narrow<T>(unary<F>(values[k], p, q));
    }

    template <int W>
    GW_DEVICE void operator()(const C (&values)[1][W], Pack<T, W>& results) const {
        // The branch is uniform over the grid.
        switch (function) {
#define GW_CASE(NAME) \
    case NAME: return each<NAME>(values[0], results);
            GW_FOR_UNARY_FUNCTIONS(GW_CASE)
#undef GW_CASE
        }
    }
};

}  // namespace

/// How many blocks must fit on a multiprocessor: for packs of eight, more than the compiler would plan for. Compute capability 7.5
/// has at most 1024 threads; from 8.0 to 8.9 the derivative of gelu takes more registers than six blocks leave.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
constexpr int MOST_BLOCKS = 4;
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
constexpr int MOST_BLOCKS = 5;
#else
constexpr int MOST_BLOCKS = 6;
#endif
template <class T>
constexpr int BLOCKS = sizeof(T) == 2 ? MOST_BLOCKS : 1;

#define GW_KERNELS(T, NAME)                                                                                                       \
    extern "C" __global__ void __launch_bounds__(256, BLOCKS<T>) gw_unary_##NAME(                                                 \
        T* out, i64 elements, i32 wide, GW_PARAMETER Axes axes, GW_PARAMETER View<const T> x, i32 function, double p, double q) { \
        begin_kernel();                                                                                                           \
        const View<const T>* const in[1] = {&x};                                                                                  \
        elementwise(out, elements, wide, axes, in, Unary<T>{function, p, q});                                                     \
    }
GW_FOR_DTYPES(GW_KERNELS)
