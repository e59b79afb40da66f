// A constant matrix on the blades of a field: y_j = Σ_i M_ji x_i + b_j with x and y [BLADES, plane], the bias [BLADES, channels] or null,
// and channels the innermost part of the plane. The matrix is a parameter, so that its entries are constants of the instructions.
#include "gradewise/types.cuh"

namespace {

/// By rows; entries behind BLADES² are not read.
template <class C>
struct Matrix {
    C at[64];
};

/// WIDE adjacent positions of all blades per thread.
template <int BLADES, int WIDE, class T>
GW_DEVICE void blade_matrix(const T* x, const T* bias, T* out, i64 plane, i64 channels, const Matrix<Compute<T>>& matrix) {
    using C = Compute<T>;
    for (i64 at = thread_index() * WIDE; at < plane; at += thread_count() * WIDE) {
        C values[BLADES][WIDE];
#pragma unroll
        for (int i = 0; i < BLADES; ++i) load<WIDE>(x + i * plane + at, values[i]);
        const i64 channel = bias == nullptr ? 0 : at % channels;
#pragma unroll
        for (int j = 0; j < BLADES; ++j) {
            C sums[WIDE] = {};
            if (bias != nullptr) load<WIDE>(bias + j * channels + channel, sums);
#pragma unroll
            for (int i = 0; i < BLADES; ++i) {
#pragma unroll
                for (int e = 0; e < WIDE; ++e) sums[e] += matrix.at[j * BLADES + i] * values[i][e];
            }
            store<WIDE>(out + j * plane + at, sums);
        }
    }
}

}  // namespace

#define GW_KERNEL(LABEL, BLADES, WIDE, T, NAME)                                                                             \
    extern "C" __global__ void __launch_bounds__(256)                                                                       \
        gw_blade_matrix_##LABEL##_##NAME(const T* x, const T* bias, T* out, i64 plane, i64 channels,                        \
                                         const Matrix<Compute<T>> matrix) {                                                 \
        begin_kernel();                                                                                                     \
        blade_matrix<BLADES, WIDE>(x, bias, out, plane, channels, matrix);                                                  \
    }
#define GW_KERNELS(T, NAME)                          \
    GW_KERNEL(2, 2, 16 / sizeof(T), T, NAME)         \
    GW_KERNEL(4, 4, 16 / sizeof(T), T, NAME)         \
    GW_KERNEL(8, 8, 16 / sizeof(T), T, NAME)         \
    GW_KERNEL(single_2, 2, 1, T, NAME)               \
    GW_KERNEL(single_4, 4, 1, T, NAME)               \
    GW_KERNEL(single_8, 8, 1, T, NAME)
GW_FOR_DTYPES(GW_KERNELS)
