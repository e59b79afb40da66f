// Elementwise functions of one array. The functions are numbered as in crates/kernels/src/ops/pointwise/unary/functions.rs.
#include "gradewise/elementwise.cuh"
#include "gradewise/math.cuh"

namespace {

enum Function : i32 {
    kNeg,
    kAbs,
    kSign,
    kExp,
    kLog,
    kSqrt,
    kRsqrt,
    kRecip,
    kSquare,
    kSin,
    kCos,
    kTanh,
    kErf,
    kSigmoid,
    kSilu,
    kGelu,
    kSiluDerivative,
    kGeluDerivative,
    kRelu,
    kNotFinite,
    kAddScalar,
    kMulScalar,
    kClamp,
    kPow,
    kPowInteger,
};

/// x^n by repeated squaring, for either sign of x.
template <class C>
GW_DEVICE C integer_power(C x, i64 n) {
    C power = 1, square = x;
    for (u64 rest = n < 0 ? -n : n; rest > 0; rest >>= 1) {
        if (rest & 1) power *= square;
        square *= square;
    }
    return n < 0 ? C(1) / power : power;
}

/// Applies one of the functions, with its parameters, to a pack.
template <class T>
struct Unary {
    using C = Compute<T>;
    i32 function;
    double p, q;

    template <int W, class G>
    GW_DEVICE static void each(const C (&values)[W], Pack<T, W>& results, const G& g) {
#pragma unroll
        for (int k = 0; k < W; ++k) results.at[k] = narrow<T>(g(values[k]));
    }

    template <int W>
    GW_DEVICE void operator()(const C (&values)[1][W], Pack<T, W>& results) const {
        const auto each = [&](const auto& g) { Unary::each(values[0], results, g); };
        const C a = static_cast<C>(p), b = static_cast<C>(q);
        // The branch is uniform over the grid.
        switch (function) {
            case kNeg: return each([](C x) { return -x; });
            case kAbs: return each([](C x) { return x < C(0) ? -x : (x == C(0) ? C(0) : x); });
            case kSign: return each([](C x) { return x > C(0) ? C(1) : x < C(0) ? C(-1) : x; });
            case kExp: return each([](C x) { return exponential(x); });
            case kLog: return each([](C x) { return log(x); });
            case kSqrt: return each([](C x) { return root(x); });
            case kRsqrt: return each([](C x) { return C(1) / root(x); });
            case kRecip: return each([](C x) { return C(1) / x; });
            case kSquare: return each([](C x) { return x * x; });
            case kSin: return each([](C x) { return sin(x); });
            case kCos: return each([](C x) { return cos(x); });
            case kTanh: return each([](C x) { return tanh(x); });
            case kErf: return each([](C x) { return erf(x); });
            case kSigmoid: return each([](C x) { return sigmoid(x); });
            case kSilu: return each([](C x) { return x * sigmoid(x); });
            case kGelu: return each([](C x) { return x * normal_cdf(x); });
            case kSiluDerivative:
                return each([](C x) {
                    const C s = sigmoid(x);
                    return s + x * (s * (C(1) - s));
                });
            case kGeluDerivative: return each([](C x) { return normal_cdf(x) + x * normal_pdf(x); });
            case kRelu: return each([](C x) { return x < C(0) ? C(0) : x; });
            // Infinity minus itself is NaN as well.
            case kNotFinite: return each([](C x) { return x - x == C(0) ? C(0) : C(1); });
            case kAddScalar: return each([a](C x) { return x + a; });
            case kMulScalar: return each([a](C x) { return x * a; });
            case kClamp:
                return each([a, b](C x) {
                    const C limited = x < a ? a : x;
                    return limited > b ? b : limited;
                });
            case kPow: return each([a](C x) { return pow(x, a); });
            case kPowInteger: {
                const i64 n = static_cast<i64>(p);
                return each([n](C x) { return integer_power(x, n); });
            }
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
