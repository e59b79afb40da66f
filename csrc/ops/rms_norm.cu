// RMS norm per row and grade: o / √((1/N)·Σ_features Σ_blades-of-grade o² + 1e-6). Arrays are [blades, rows, features],
// 1/rms is [grades, rows] in compute precision; `first` has the first blade of each grade and one past the last.
//
// blockDim.x threads share a row, blockDim.y rows share a block (gradewise/group.cuh).
#include "gradewise/group.cuh"
#include "gradewise/math.cuh"

constexpr double EPSILON = 1e-6;

/// Normalises in place.
template <class T>
GW_DEVICE void rms_norm(T* x, Compute<T>* inverse_rms, const u32* first, i64 grades, i64 rows, i64 features) {
    using C = Compute<T>;
    __shared__ C scratch[32];
    const i64 plane = rows * features;
    for (i64 base = static_cast<i64>(blockIdx.x) * blockDim.y; base < rows; base += static_cast<i64>(gridDim.x) * blockDim.y) {
        const i64 row = base + threadIdx.y;
        const bool active = row < rows;
        for (i64 grade = 0; grade < grades; ++grade) {
            C squares = 0;
            for (i64 blade = first[grade]; active && blade < first[grade + 1]; ++blade) {
                const T* line = x + blade * plane + row * features;
                for (i64 i = threadIdx.x; i < features; i += blockDim.x) squares += widen(line[i]) * widen(line[i]);
            }
            squares = row_sum(squares, scratch);
            const C scale = C(1) / root(squares / C(features) + C(EPSILON));
            if (!active) continue;
            if (threadIdx.x == 0) inverse_rms[grade * rows + row] = scale;
            for (i64 blade = first[grade]; blade < first[grade + 1]; ++blade) {
                T* line = x + blade * plane + row * features;
                for (i64 i = threadIdx.x; i < features; i += blockDim.x) line[i] = narrow<T>(widen(line[i]) * scale);
            }
        }
    }
}

/// The gradient of the norm's input from that of its output. With r = 1/rms and ô the output, the part of g along ô, which
/// the norm nearly removes (it scales it by eps·r²), is separated before the difference is taken.
template <class T>
GW_DEVICE void rms_norm_backward(const T* output, const Compute<T>* inverse_rms, const T* grad, T* out, const u32* first,
                                 i64 grades, i64 rows, i64 features) {
    using C = Compute<T>;
    __shared__ C scratch[32];
    const i64 plane = rows * features;
    for (i64 base = static_cast<i64>(blockIdx.x) * blockDim.y; base < rows; base += static_cast<i64>(gridDim.x) * blockDim.y) {
        const i64 row = base + threadIdx.y;
        const bool active = row < rows;
        for (i64 grade = 0; grade < grades; ++grade) {
            C projection = 0, squares = 0;
            for (i64 blade = first[grade]; active && blade < first[grade + 1]; ++blade) {
                const i64 line = blade * plane + row * features;
                for (i64 i = threadIdx.x; i < features; i += blockDim.x) {
                    const C o = widen(output[line + i]);
                    projection += o * widen(grad[line + i]);
                    squares += o * o;
                }
            }
            projection = row_sum(projection, scratch);
            squares = row_sum(squares, scratch);
            if (!active) continue;
            const C along = squares > C(0) ? projection / squares : C(0);
            const C scale = inverse_rms[grade * rows + row];
            const C kept = C(EPSILON) * scale * scale;
            for (i64 blade = first[grade]; blade < first[grade + 1]; ++blade) {
                const i64 line = blade * plane + row * features;
                for (i64 i = threadIdx.x; i < features; i += blockDim.x) {
                    const C parallel = along * widen(output[line + i]);
                    out[line + i] = narrow<T>(scale * ((widen(grad[line + i]) - parallel) + parallel * kept));
                }
            }
        }
    }
}

/// along[grade, row] = Σ ô·g / Σ ô² over the grade's elements of the row, with ô the output: how much of g lies along it.
template <class T>
GW_DEVICE void rms_norm_along(const T* output, const T* grad, Compute<T>* along, const u32* first, i64 grades, i64 rows,
                              i64 features) {
    using C = Compute<T>;
    __shared__ C scratch[32];
    const i64 plane = rows * features;
    for (i64 base = static_cast<i64>(blockIdx.x) * blockDim.y; base < rows; base += static_cast<i64>(gridDim.x) * blockDim.y) {
        const i64 row = base + threadIdx.y;
        for (i64 grade = 0; grade < grades; ++grade) {
            C projection = 0, squares = 0;
            for (i64 blade = first[grade]; row < rows && blade < first[grade + 1]; ++blade) {
                const i64 line = blade * plane + row * features;
                for (i64 i = threadIdx.x; i < features; i += blockDim.x) {
                    const C o = widen(output[line + i]);
                    projection += o * widen(grad[line + i]);
                    squares += o * o;
                }
            }
            projection = row_sum(projection, scratch);
            squares = row_sum(squares, scratch);
            if (row < rows && threadIdx.x == 0) along[grade * rows + row] = squares > C(0) ? projection / squares : C(0);
        }
    }
}

#define GW_KERNELS(T, NAME)                                                                                               \
    extern "C" __global__ void __launch_bounds__(256, 4) gw_rms_norm_fwd_##NAME(                                             \
        T* x, Compute<T>* inverse_rms, const u32* first, i64 grades, i64 rows, i64 features) {                            \
        rms_norm<T>(x, inverse_rms, first, grades, rows, features);                                                       \
    }                                                                                                                     \
    extern "C" __global__ void __launch_bounds__(256, 4)                                                                     \
        gw_rms_norm_bwd_##NAME(const T* output, const Compute<T>* inverse_rms, const T* grad, T* out, const u32* first,   \
                               i64 grades, i64 rows, i64 features) {                                                      \
        rms_norm_backward<T>(output, inverse_rms, grad, out, first, grades, rows, features);                              \
    }                                                                                                                     \
    extern "C" __global__ void __launch_bounds__(256, 4) gw_rms_norm_along_##NAME(                                        \
        const T* output, const T* grad, Compute<T>* along, const u32* first, i64 grades, i64 rows, i64 features) {        \
        rms_norm_along<T>(output, grad, along, first, grades, rows, features);                                            \
    }
GW_FOR_DTYPES(GW_KERNELS)
