// Blocks of equivariant networks with 33 to 64 features, for the algebras of the plane and of space, on compute capability 9.0, for which
// registers and shared memory were laid out. Compiled to a trap on other targets; the launcher checks the device.
#include "clifford/block/sm90_64_backward.cuh"
#include "clifford/block/sm90_64_first_gradients.cuh"
#include "clifford/block/sm90_64_forward.cuh"
#include "clifford/block/sm90_64_inner_gradients.cuh"
#include "gradewise/strided.cuh"

#define GW_BLOCK_64_PASSES(P, Q, R, KIND, PRODUCTS, T, NAME)                                                                        \
    extern "C" __global__ void __launch_bounds__((Block64Sizes<Algebra<P, Q, R>, PRODUCTS == 3 ? 2 : 1>::THREADS), 1)               \
        gw_block_sm90_64##KIND##_fwd_##P##_##Q##_##R##_##NAME(                                                                      \
        GW_PARAMETER BlockOperands<T> weights, const T* y, const T* residual, T* out, char* prepared) {                             \
        begin_kernel();                                                                                                             \
        extern __shared__ uint4 shared[];                                                                                           \
        if (are_aligned<4, T>(weights.features, {y, residual, out})) {                                                              \
            using Pass = Block64Forward<Algebra<P, Q, R>, T, PRODUCTS, true>;                                                       \
            GW_RUN_ON_SM90(Pass::run((char*)shared, weights, y, residual, out, prepared));                                          \
        } else {                                                                                                                    \
            using Pass = Block64Forward<Algebra<P, Q, R>, T, PRODUCTS, false>;                                                      \
            GW_RUN_ON_SM90(Pass::run((char*)shared, weights, y, residual, out, prepared));                                          \
        }                                                                                                                           \
    }                                                                                                                               \
    extern "C" __global__ void __launch_bounds__((Block64Sizes<Algebra<P, Q, R>, PRODUCTS == 3 ? 2 : 1>::THREADS), 1)               \
        gw_block_sm90_64##KIND##_bwd_##P##_##Q##_##R##_##NAME(                                                                      \
        GW_PARAMETER BlockOperands<T> weights, const T* y, const T* grad, const char* prepared, T* grad_y, char* h,                 \
        char* grad_r, char* grad_l, float* inverses, float* partial) {                                                              \
        begin_kernel();                                                                                                             \
        extern __shared__ uint4 shared[];                                                                                           \
        if (are_aligned<4, T>(weights.features, {y, grad, grad_y})) {                                                               \
            using Pass = Block64Backward<Algebra<P, Q, R>, T, PRODUCTS, true>;                                                      \
            GW_RUN_ON_SM90(Pass::run((char*)shared, weights, {y, grad, prepared}, {grad_y, h, grad_r, grad_l, inverses}, partial)); \
        } else {                                                                                                                    \
            using Pass = Block64Backward<Algebra<P, Q, R>, T, PRODUCTS, false>;                                                     \
            GW_RUN_ON_SM90(Pass::run((char*)shared, weights, {y, grad, prepared}, {grad_y, h, grad_r, grad_l, inverses}, partial)); \
        }                                                                                                                           \
    }

#define GW_BLOCK_64_FIRST(P, Q, R, KIND, PRODUCTS, T, NAME, COLUMNS)                                                                     \
    extern "C" __global__ void __launch_bounds__((Block64FirstSizes<sizeof(T), COLUMNS>::THREADS), 1)                                    \
        gw_block_sm90_64##KIND##_bwd_first_##COLUMNS##_##P##_##Q##_##R##_##NAME(const T* x, const T* grad, const T* matrices, T* grad_x, \
                                                                      float* partial, i64 rows, i64 inputs, i64 pitch,                   \
                                                                      i64 features) {                                                    \
        begin_kernel();                                                                                                                  \
        extern __shared__ uint4 shared[];                                                                                                \
        using Pass = Block64FirstGradients<Algebra<P, Q, R>, T, PRODUCTS, COLUMNS>;                                                      \
        GW_RUN_ON_SM90(                                                                                                                  \
            Pass::run((char*)shared, {x, grad, matrices, rows, int(inputs), int(pitch), int(features)}, grad_x, partial));               \
    }

#define GW_BLOCK_64_INNER_SUMS(P, Q, R, KIND, PRODUCTS)                                                                          \
    extern "C" __global__ void __launch_bounds__((Block64InnerSizes<Algebra<P, Q, R>, PRODUCTS == 3 ? 2 : 1>::THREADS), 1)       \
        gw_block_sm90_64##KIND##_bwd_inner_##P##_##Q##_##R##_f32(                                                                \
        const char* h, const char* grad_r, const char* grad_l, const float* inverses, float* partial, i64 tiles, i64 features) { \
        begin_kernel();                                                                                                          \
        extern __shared__ uint4 shared[];                                                                                        \
        using Pass = Block64InnerGradients<Algebra<P, Q, R>, PRODUCTS>;                                                          \
        GW_RUN_ON_SM90(Pass::run((char*)shared, {{h, grad_r, grad_l}, inverses, int(tiles), int(features)}, partial));           \
    }

#define GW_BLOCK_64_KERNELS(P, Q, R, KIND, PRODUCTS, T, NAME) \
    GW_BLOCK_64_PASSES(P, Q, R, KIND, PRODUCTS, T, NAME)      \
    GW_BLOCK_64_FIRST(P, Q, R, KIND, PRODUCTS, T, NAME, 64)   \
    GW_BLOCK_64_FIRST(P, Q, R, KIND, PRODUCTS, T, NAME, 80)

#define GW_BLOCK_64(P, Q, R)                            \
    GW_BLOCK_64_KERNELS(P, Q, R, _f32x3, 3, float, f32) \
    GW_BLOCK_64_KERNELS(P, Q, R, , 1, float, f32)       \
    GW_BLOCK_64_KERNELS(P, Q, R, , 1, bf16, bf16)       \
    GW_BLOCK_64_KERNELS(P, Q, R, , 1, f16, f16)         \
    GW_BLOCK_64_INNER_SUMS(P, Q, R, _f32x3, 3)          \
    GW_BLOCK_64_INNER_SUMS(P, Q, R, , 1)

GW_BLOCK_64(2, 0, 0)
GW_BLOCK_64(3, 0, 0)
