// Blocks of equivariant networks with 33 to 64 features, for the algebras of the plane and of space, on compute capability 9.0, for which
// registers and shared memory were laid out. Compiled to a trap on other targets; the launcher checks the device.
#include "clifford/block/sm90_64_backward.cuh"
#include "clifford/block/sm90_64_first_gradients.cuh"
#include "clifford/block/sm90_64_forward.cuh"
#include "clifford/block/sm90_64_inner_gradients.cuh"
#include "gradewise/strided.cuh"

#define GW_MV_WIDE_PASSES(P, Q, R, KIND, PARTS, T, NAME)                                                                            \
    extern "C" __global__ void __launch_bounds__(256, 1) gw_mv_wide##KIND##_fwd_##P##_##Q##_##R##_##NAME(                        \
        GW_PARAMETER MvBlockWeights<T> weights, const T* y, const T* residual, T* out, char* prepared) {                         \
        begin_kernel();                                                                                                          \
        extern __shared__ uint4 shared[];                                                                                        \
        if (are_aligned<4, T>(weights.features, {y, residual, out})) {                                                           \
            using Pass = MvWideForward<Algebra<P, Q, R>, T, PARTS, true>;                                                        \
            GW_RUN_MV_TILES(Pass::run((char*)shared, weights, y, residual, out, prepared));                                      \
        } else {                                                                                                                 \
            using Pass = MvWideForward<Algebra<P, Q, R>, T, PARTS, false>;                                                       \
            GW_RUN_MV_TILES(Pass::run((char*)shared, weights, y, residual, out, prepared));                                      \
        }                                                                                                                        \
    }                                                                                                                            \
    extern "C" __global__ void __launch_bounds__(256, 1) gw_mv_wide##KIND##_bwd_##P##_##Q##_##R##_##NAME(                        \
        GW_PARAMETER MvBlockWeights<T> weights, const T* y, const T* grad, const char* prepared, T* grad_y, char* h,             \
        char* grad_r, char* grad_l, float* inverses, float* partial) {                                                           \
        begin_kernel();                                                                                                          \
        extern __shared__ uint4 shared[];                                                                                        \
        if (are_aligned<4, T>(weights.features, {y, grad, grad_y})) {                                                            \
            using Pass = MvWideBackward<Algebra<P, Q, R>, T, PARTS, true>;                                                       \
            GW_RUN_MV_TILES(Pass::run((char*)shared, weights, {y, grad, prepared}, {grad_y, h, grad_r, grad_l, inverses}, partial)); \
        } else {                                                                                                                 \
            using Pass = MvWideBackward<Algebra<P, Q, R>, T, PARTS, false>;                                                      \
            GW_RUN_MV_TILES(Pass::run((char*)shared, weights, {y, grad, prepared}, {grad_y, h, grad_r, grad_l, inverses}, partial)); \
        }                                                                                                                        \
    }

#define GW_MV_WIDE_FIRST(P, Q, R, KIND, PARTS, T, NAME, COLUMNS)                                                                 \
    extern "C" __global__ void __launch_bounds__(512, 1)                                                                         \
        gw_mv_wide##KIND##_first_##COLUMNS##_##P##_##Q##_##R##_##NAME(const T* x, const T* grad, const T* matrices, T* grad_x,   \
                                                                      float* partial, i64 rows, i64 inputs, i64 pitch,           \
                                                                      i64 features) {                                            \
        begin_kernel();                                                                                                          \
        extern __shared__ uint4 shared[];                                                                                        \
        using Pass = MvWideFirst<Algebra<P, Q, R>, T, PARTS, COLUMNS>;                                                           \
        GW_RUN_MV_TILES(                                                                                                         \
            Pass::run((char*)shared, {x, grad, matrices, rows, int(inputs), int(pitch), int(features)}, grad_x, partial));       \
    }

#define GW_MV_WIDE_INNER_SUMS(P, Q, R, KIND, PARTS)                                                                              \
    extern "C" __global__ void __launch_bounds__(512, 1) gw_mv_wide##KIND##_inner_sums_##P##_##Q##_##R##_f32(                    \
        const char* h, const char* grad_r, const char* grad_l, const float* inverses, float* partial, i64 tiles, i64 features) { \
        begin_kernel();                                                                                                          \
        extern __shared__ uint4 shared[];                                                                                        \
        using Pass = MvWideInnerSums<Algebra<P, Q, R>, PARTS>;                                                                   \
        GW_RUN_MV_TILES(Pass::run((char*)shared, {{h, grad_r, grad_l}, inverses, int(tiles), int(features)}, partial));          \
    }

#define GW_MV_WIDE_KERNELS(P, Q, R, KIND, PARTS, T, NAME)       \
    GW_MV_WIDE_PASSES(P, Q, R, KIND, PARTS, T, NAME)            \
    GW_MV_WIDE_FIRST(P, Q, R, KIND, PARTS, T, NAME, 64)         \
    GW_MV_WIDE_FIRST(P, Q, R, KIND, PARTS, T, NAME, 80)

#define GW_MV_WIDE(P, Q, R)                              \
    GW_MV_WIDE_KERNELS(P, Q, R, _exact, 3, float, f32)    \
    GW_MV_WIDE_KERNELS(P, Q, R, , 1, float, f32)          \
    GW_MV_WIDE_KERNELS(P, Q, R, , 1, bf16, bf16)          \
    GW_MV_WIDE_KERNELS(P, Q, R, , 1, f16, f16)            \
    GW_MV_WIDE_INNER_SUMS(P, Q, R, _exact, 3)             \
    GW_MV_WIDE_INNER_SUMS(P, Q, R, , 1)

GW_MV_WIDE(2, 0, 0)
GW_MV_WIDE(3, 0, 0)
