// Gather, scatter and scatter-add along an axis. Arrays are [outer, size, inner], positions [outer, count, inner].
#include "gradewise/debug.cuh"
#include "gradewise/types.cuh"

namespace {

/// out[o, p, i] = x[o, at[o, p, i], i].
template <class T>
GW_DEVICE void gather(const T* x, const u32* at, T* out, i64 outer, i64 size, i64 count, i64 inner) {
    for (i64 e = thread_index(); e < outer * count * inner; e += thread_count()) {
        const i64 row = e / inner;
        out[e] = x[(row / count * size + GW_INDEX(at[e], size)) * inner + (e - row * inner)];
    }
}

/// out[o, at[o, p, i], i] = x[o, p, i]; no position occurs twice.
template <class T>
GW_DEVICE void scatter(const T* x, const u32* at, T* out, i64 outer, i64 size, i64 count, i64 inner) {
    for (i64 e = thread_index(); e < outer * count * inner; e += thread_count()) {
        const i64 row = e / inner;
        out[(row / count * size + GW_INDEX(at[e], size)) * inner + (e - row * inner)] = x[e];
    }
}

/// out[o, at[o, p, i], i] += x[o, p, i], one thread per o and i, in the order of p.
template <class T>
GW_DEVICE void scatter_add(const T* x, const u32* at, T* out, i64 outer, i64 size, i64 count, i64 inner) {
    for (i64 line = thread_index(); line < outer * inner; line += thread_count()) {
        const i64 o = line / inner, i = line - o * inner;
        for (i64 p = 0; p < count; ++p) {
            const i64 e = (o * count + p) * inner + i;
            T* target = out + (o * size + GW_INDEX(at[e], size)) * inner + i;
            *target = narrow<T>(widen(*target) + widen(x[e]));
        }
    }
}

}  // namespace

#define GW_KERNEL(OPERATION, T, NAME)                                                                           \
    extern "C" __global__ void __launch_bounds__(256) gw_##OPERATION##_##NAME(                                  \
        const T* x, const u32* at, T* out, i64 outer, i64 size, i64 count, i64 inner) {                         \
        begin_kernel();                                                                                         \
        OPERATION(x, at, out, outer, size, count, inner);                                                       \
    }
#define GW_KERNELS(T, NAME)       \
    GW_KERNEL(gather, T, NAME)    \
    GW_KERNEL(scatter, T, NAME)
GW_FOR_DTYPES(GW_KERNELS)
// Sums are kept in the computing precision.
GW_KERNEL(scatter_add, float, f32)
GW_KERNEL(scatter_add, double, f64)
