// Blocks of equivariant networks with 33 to 64 features, for the algebras of the plane and of space, on compute capability 9.0, for which
// registers and shared memory were laid out. Compiled to a trap on other targets; the launcher checks the device.
#include "clifford/mv_wide_backward.cuh"
#include "clifford/mv_wide_forward.cuh"
#include "clifford/mv_wide_sums.cuh"
#include "gradewise/strided.cuh"

/// Calls f with whether four features of these arrays can be accessed as one: 1 or 0, as a type.
template <class T, int N, class F>
GW_DEVICE void with_packs(i64 features, const T* const (&arrays)[N], F f) {
    constexpr int BYTES = 4 * sizeof(T);
    u64 bits = features * sizeof(T);
#pragma unroll
    for (int n = 0; n < N; ++n) bits |= reinterpret_cast<u64>(arrays[n]);
    if (bits % BYTES == 0) {
        f(Constant<1>{});
    } else {
        f(Constant<0>{});
    }
}

#define GW_MV_WIDE_PASSES(P, Q, R, KIND, PARTS, T, NAME)                                                                            \
    extern "C" __global__ void __launch_bounds__(256, 1) gw_mv_wide##KIND##_fwd_##P##_##Q##_##R##_##NAME(                        \
        GW_PARAMETER MvBlockWeights<T> weights, const T* y, const T* residual, T* out) {                                         \
        begin_kernel();                                                                                                          \
        extern __shared__ uint4 shared[];                                                                                        \
        GW_RUN_MV_TILES(with_packs<T>(weights.features, {y, residual, out}, [&](auto packed) {                                   \
            using Pass = MvWideForward<Algebra<P, Q, R>, T, PARTS, (decltype(packed)::value == 1)>;                              \
            Pass::run(reinterpret_cast<float*>(shared), weights, y, residual, out);                                              \
        }));                                                                                                                     \
    }                                                                                                                            \
    extern "C" __global__ void __launch_bounds__(256, 1) gw_mv_wide##KIND##_bwd_##P##_##Q##_##R##_##NAME(                        \
        GW_PARAMETER MvBlockWeights<T> weights, const T* y, const T* grad, T* h, T* grad_r, T* grad_l, T* grad_y,                \
        float* partial) {                                                                                                        \
        begin_kernel();                                                                                                          \
        extern __shared__ uint4 shared[];                                                                                        \
        GW_RUN_MV_TILES(with_packs<T>(weights.features, {y, grad, h, grad_r, grad_l, grad_y}, [&](auto packed) {                 \
            using Pass = MvWideBackward<Algebra<P, Q, R>, T, PARTS, (decltype(packed)::value == 1)>;                             \
            Pass::run(reinterpret_cast<float*>(shared), weights, {y, grad}, {h, grad_r, grad_l, grad_y}, partial);               \
        }));                                                                                                                     \
    }

#define GW_MV_WIDE_SUMS(P, Q, R, KIND, PARTS, T, NAME, COUNT, COLUMNS)                                                            \
    extern "C" __global__ void __launch_bounds__(COLUMNS / 16 * 128, 1)                                                          \
        gw_mv_wide##KIND##_sums##COUNT##_##COLUMNS##_##P##_##Q##_##R##_##NAME(                                                   \
            const T* a, const T* b, const T* other, float* partial, i64 rows, i64 inputs, i64 pitch, i64 features) {             \
        begin_kernel();                                                                                                          \
        extern __shared__ uint4 shared[];                                                                                        \
        using Pass = MvWideSums<Algebra<P, Q, R>, T, PARTS, COUNT, COLUMNS>;                                                     \
        GW_RUN_MV_TILES(Pass::run(reinterpret_cast<T*>(shared), {a, {b, other}, rows, int(inputs), int(pitch), int(features)}, partial));\
    }

#define GW_MV_WIDE_KERNELS(P, Q, R, KIND, PARTS, T, NAME)          \
    GW_MV_WIDE_PASSES(P, Q, R, KIND, PARTS, T, NAME)               \
    GW_MV_WIDE_SUMS(P, Q, R, KIND, PARTS, T, NAME, 1, 64)          \
    GW_MV_WIDE_SUMS(P, Q, R, KIND, PARTS, T, NAME, 1, 80)          \
    GW_MV_WIDE_SUMS(P, Q, R, KIND, PARTS, T, NAME, 2, 64)

#define GW_MV_WIDE(P, Q, R)                              \
    GW_MV_WIDE_KERNELS(P, Q, R, _exact, 3, float, f32)    \
    GW_MV_WIDE_KERNELS(P, Q, R, , 1, float, f32)          \
    GW_MV_WIDE_KERNELS(P, Q, R, , 1, bf16, bf16)          \
    GW_MV_WIDE_KERNELS(P, Q, R, , 1, f16, f16)

GW_MV_WIDE(2, 0, 0)
GW_MV_WIDE(3, 0, 0)
