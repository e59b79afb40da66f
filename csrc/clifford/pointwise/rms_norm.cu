// RMS norm per row and grade: o / √((1/N)·Σ_features Σ_blades-of-grade o² + 1e-6). Arrays are [blades, rows, features],
// 1/rms is [grades, rows] in compute precision; `first` has the first blade of each grade and one past the last.
//
// blockDim.x threads share a row, blockDim.y rows share a block (gradewise/group.cuh).
#include "clifford/pointwise/norms.cuh"
#include "gradewise/group.cuh"

/// Calls f(place) for every V adjacent elements of this thread in one grade of a row.
template <int V, class F>
GW_DEVICE void each_of_grade(const u32* first, i64 grade, i64 plane, i64 row, i64 features, F f) {
    for (i64 blade = first[grade]; blade < first[grade + 1]; ++blade) {
        const i64 line = blade * plane + row * features;
        for (i64 i = static_cast<i64>(threadIdx.x) * V; i < features; i += static_cast<i64>(blockDim.x) * V) f(line + i);
    }
}

/// Elements of a 16-byte access.
template <class T>
constexpr int WIDE = 16 / sizeof(T);

/// Whether rows of arrays at these addresses allow 16-byte accesses.
template <class T, class... Addresses>
GW_DEVICE bool wide(i64 features, Addresses... addresses) {
    return features % WIDE<T> == 0 && ((reinterpret_cast<u64>(addresses) % 16 == 0) && ...);
}

/// Normalises in place.
template <class T, int V>
GW_DEVICE void rms_norm(T* x, Compute<T>* inverse_rms, const u32* first, i64 grades, i64 rows, i64 features) {
    using C = Compute<T>;
    __shared__ C scratch[32];
    const i64 plane = rows * features;
    each_row(rows, [&](i64 row, bool there) {
        for (i64 grade = 0; grade < grades; ++grade) {
            C squares = 0;
            if (there) {
                each_of_grade<V>(first, grade, plane, row, features, [&](i64 place) {
                    C values[V];
                    load<V>(x + place, values);
#pragma unroll
                    for (int e = 0; e < V; ++e) squares += values[e] * values[e];
                });
            }
            squares = row_sum(squares, scratch);
            const C scale = C(1) / root(squares / C(features) + C(RMS_EPSILON));
            if (!there) continue;
            if (threadIdx.x == 0) inverse_rms[grade * rows + row] = scale;
            each_of_grade<V>(first, grade, plane, row, features, [&](i64 place) {
                C values[V];
                load<V>(x + place, values);
#pragma unroll
                for (int e = 0; e < V; ++e) values[e] *= scale;
                store<V>(x + place, values);
            });
        }
    });
}

/// Σ ô·g and Σ ô² over a grade's elements of a row, with ô the output.
template <class T, int V>
GW_DEVICE void rms_norm_sums(const T* output, const T* grad, const u32* first, i64 grade, i64 plane, i64 row, i64 features,
                             bool there, Compute<T>* scratch, Compute<T>& projection, Compute<T>& squares) {
    using C = Compute<T>;
    projection = squares = 0;
    if (there) {
        each_of_grade<V>(first, grade, plane, row, features, [&](i64 place) {
            C o[V], g[V];
            load<V>(output + place, o);
            load<V>(grad + place, g);
#pragma unroll
            for (int e = 0; e < V; ++e) {
                projection += o[e] * g[e];
                squares += o[e] * o[e];
            }
        });
    }
    projection = row_sum(projection, scratch);
    squares = row_sum(squares, scratch);
}

/// The gradient of the norm's input from that of its output. With r = 1/rms and ô the output: the norm nearly removes the part of g
/// along ô (it scales it by ε·r²), so that part is separated before the difference is taken.
template <class T, int V>
GW_DEVICE void rms_norm_backward(const T* output, const Compute<T>* inverse_rms, const T* grad, T* out, const u32* first,
                                 i64 grades, i64 rows, i64 features) {
    using C = Compute<T>;
    __shared__ C scratch[32];
    const i64 plane = rows * features;
    each_row(rows, [&](i64 row, bool there) {
        for (i64 grade = 0; grade < grades; ++grade) {
            C projection, squares;
            rms_norm_sums<T, V>(output, grad, first, grade, plane, row, features, there, scratch, projection, squares);
            if (!there) continue;
            const C along = squares > C(0) ? projection / squares : C(0);
            const C scale = inverse_rms[grade * rows + row];
            const C kept = C(RMS_EPSILON) * scale * scale;
            each_of_grade<V>(first, grade, plane, row, features, [&](i64 place) {
                C o[V], g[V];
                load<V>(output + place, o);
                load<V>(grad + place, g);
#pragma unroll
                for (int e = 0; e < V; ++e) {
                    const C parallel = along * o[e];
                    g[e] = scale * ((g[e] - parallel) + parallel * kept);
                }
                store<V>(out + place, g);
            });
        }
    });
}

/// along[grade, row] = Σ ô·g / Σ ô² over the grade's elements of the row: how much of g lies along the output.
template <class T, int V>
GW_DEVICE void rms_norm_along(const T* output, const T* grad, Compute<T>* along, const u32* first, i64 grades, i64 rows,
                              i64 features) {
    using C = Compute<T>;
    __shared__ C scratch[32];
    const i64 plane = rows * features;
    each_row(rows, [&](i64 row, bool there) {
        for (i64 grade = 0; grade < grades; ++grade) {
            C projection, squares;
            rms_norm_sums<T, V>(output, grad, first, grade, plane, row, features, there, scratch, projection, squares);
            if (there && threadIdx.x == 0) along[grade * rows + row] = squares > C(0) ? projection / squares : C(0);
        }
    });
}

#define GW_KERNELS(T, NAME)                                                                                               \
    extern "C" __global__ void __launch_bounds__(256, 4) gw_rms_norm_fwd_##NAME(                                          \
        T* x, Compute<T>* inverse_rms, const u32* first, i64 grades, i64 rows, i64 features) {                            \
        begin_kernel();                                                                                                   \
        if (wide<T>(features, x)) {                                                                                       \
            rms_norm<T, WIDE<T>>(x, inverse_rms, first, grades, rows, features);                                          \
        } else {                                                                                                          \
            rms_norm<T, 1>(x, inverse_rms, first, grades, rows, features);                                                \
        }                                                                                                                 \
    }                                                                                                                     \
    extern "C" __global__ void __launch_bounds__(256, 4)                                                                  \
        gw_rms_norm_bwd_##NAME(const T* output, const Compute<T>* inverse_rms, const T* grad, T* out, const u32* first,   \
                               i64 grades, i64 rows, i64 features) {                                                      \
        begin_kernel();                                                                                                   \
        if (wide<T>(features, output, grad, out)) {                                                                       \
            rms_norm_backward<T, WIDE<T>>(output, inverse_rms, grad, out, first, grades, rows, features);                 \
        } else {                                                                                                          \
            rms_norm_backward<T, 1>(output, inverse_rms, grad, out, first, grades, rows, features);                       \
        }                                                                                                                 \
    }                                                                                                                     \
    extern "C" __global__ void __launch_bounds__(256, 4) gw_rms_norm_along_##NAME(                                        \
        const T* output, const T* grad, Compute<T>* along, const u32* first, i64 grades, i64 rows, i64 features) {        \
        begin_kernel();                                                                                                   \
        if (wide<T>(features, output, grad)) {                                                                            \
            rms_norm_along<T, WIDE<T>>(output, grad, along, first, grades, rows, features);                               \
        } else {                                                                                                          \
            rms_norm_along<T, 1>(output, grad, along, first, grades, rows, features);                                     \
        }                                                                                                                 \
    }
GW_FOR_DTYPES(GW_KERNELS)
