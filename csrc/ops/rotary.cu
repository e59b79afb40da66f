// Rotary position embedding: rotates each pair of features by the angle of its position.
#include "gradewise/strided.cuh"

namespace {

/// x and out are [rows, positions, 2·pairs], cos and sin [positions, pairs]; a thread rotates the features p and p + pairs.
template <class T>
GW_DEVICE void rotary(const T* x, const Compute<T>* cos, const Compute<T>* sin, T* out, i64 count, const Divisor& positions,
                      const Divisor& pairs, i32 inverse) {
    using C = Compute<T>;
    for (i64 at = thread_index(); at < count; at += thread_count()) {
        const i64 row = at / pairs, pair = at - row * pairs.size;
        const i64 angle = (row - row / positions * positions.size) * pairs.size + pair;
        const i64 first = 2 * row * pairs.size + pair, second = first + pairs.size;
        const C a = widen(x[first]), b = widen(x[second]), c = cos[angle], s = inverse ? -sin[angle] : sin[angle];
        out[first] = narrow<T>(a * c - b * s);
        out[second] = narrow<T>(b * c + a * s);
    }
}

}  // namespace

#define GW_KERNELS(T, NAME)                                                                                         \
    extern "C" __global__ void __launch_bounds__(256) gw_rotary_##NAME(                                             \
        const T* x, const Compute<T>* cos, const Compute<T>* sin, T* out, i64 count, GW_PARAMETER Divisor positions, \
        GW_PARAMETER Divisor pairs, i32 inverse) {                                                                  \
        begin_kernel();                                                                                             \
        rotary(x, cos, sin, out, count, positions, pairs, inverse);                                                 \
    }
GW_FOR_DTYPES(GW_KERNELS)
