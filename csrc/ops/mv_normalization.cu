// mv_normalization(x; a): x^(k) / (σ(a_k)·(‖x^(k)‖ − 1) + 1 + 1e-6) with the smooth norm ‖x‖ = (q² + 1e-16)^¼
// (arXiv:2305.11141). x is [blades, rows, features], a is [features, grades]; tables as in mv_silu.cu.
#include "gradewise/math.cuh"

template <class T>
struct Norm {
    Compute<T> q, norm;
};

template <class T>
GW_DEVICE Norm<T> norm_of(const T* x, const u32* first, const i32* metric, i64 grade, i64 plane) {
    using C = Compute<T>;
    // In double precision: the squares of an indefinite form cancel, and the norm is nearly singular where they do.
    double sum = 0;
    for (u32 blade = first[grade]; blade < first[grade + 1]; ++blade) {
        const double value = widen(x[blade * plane]);
        sum += metric[blade] * value * value;
    }
    const C q = C(sum);
    return {q, root(root(q * q + C(1e-16)))};
}

/// One thread per position; blockIdx.y is the grade.
template <class T>
GW_DEVICE void mv_normalization(const T* x, const T* a, T* out, const u32* first, const i32* metric, i64 plane,
                                i64 features) {
    using C = Compute<T>;
    const i64 grade = blockIdx.y, grades = gridDim.y;
    for (i64 position = thread_index(); position < plane; position += thread_count()) {
        const C parameter = widen(a[position % features * grades + grade]);
        // 1 − σ(a) as σ(−a), which keeps its digits.
        const C share = sigmoid(parameter), rest = sigmoid(-parameter);
        const C norm = norm_of(x + position, first, metric, grade, plane).norm;
        const C scale = C(1) / (share * norm + rest + C(1e-6));
        for (u32 blade = first[grade]; blade < first[grade + 1]; ++blade) {
            const i64 at = blade * plane + position;
            out[at] = narrow<T>(widen(x[at]) * scale);
        }
    }
}

/// Writes the gradient of x and partial gradients of a, [chunks, features, grades]. One thread per feature, blockIdx.y the
/// grade, blockIdx.z the chunk of `chunk` rows.
template <class T>
GW_DEVICE void mv_normalization_backward(const T* x, const T* a, const T* grad, T* out, Compute<T>* partial,
                                         const u32* first, const i32* metric, i64 rows, i64 features, i64 chunk) {
    using C = Compute<T>;
    const i64 grade = blockIdx.y, grades = gridDim.y, plane = rows * features;
    const i64 begin = blockIdx.z * chunk, end = begin + chunk < rows ? begin + chunk : rows;
    for (i64 feature = thread_index(); feature < features; feature += thread_count()) {
        const C parameter = widen(a[feature * grades + grade]);
        const C share = sigmoid(parameter), rest = sigmoid(-parameter);
        C sum = 0;
        for (i64 row = begin; row < end; ++row) {
            const i64 position = row * features + feature;
            const Norm<T> of = norm_of(x + position, first, metric, grade, plane);
            const C scale = C(1) / (share * of.norm + rest + C(1e-6));
            C dot = 0;
            for (u32 blade = first[grade]; blade < first[grade + 1]; ++blade) {
                const i64 at = blade * plane + position;
                dot += widen(x[at]) * widen(grad[at]);
            }
            const C pull = -dot * scale * scale;
            sum += pull * (of.norm - C(1));
            const C through = pull * share * (of.q / (of.norm * of.norm * of.norm));
            for (u32 blade = first[grade]; blade < first[grade + 1]; ++blade) {
                const i64 at = blade * plane + position;
                out[at] = narrow<T>(widen(grad[at]) * scale + through * C(metric[blade]) * widen(x[at]));
            }
        }
        partial[(blockIdx.z * features + feature) * grades + grade] = sum * share * rest;
    }
}

#define GW_KERNELS(T, NAME)                                                                                             \
    extern "C" __global__ void __launch_bounds__(256, 4) gw_mv_normalization_fwd_##NAME(                                   \
        const T* x, const T* a, T* out, const u32* first, const i32* metric, i64 plane, i64 features) {                 \
        begin_kernel();                                                                                                 \
        mv_normalization<T>(x, a, out, first, metric, plane, features);                                                 \
    }                                                                                                                   \
    extern "C" __global__ void __launch_bounds__(256, 4)                                                                   \
        gw_mv_normalization_bwd_##NAME(const T* x, const T* a, const T* grad, T* out, Compute<T>* partial,              \
                                       const u32* first, const i32* metric, i64 rows, i64 features, i64 chunk) {        \
        begin_kernel();                                                                                                 \
        mv_normalization_backward<T>(x, a, grad, out, partial, first, metric, rows, features, chunk);                   \
    }
GW_FOR_DTYPES(GW_KERNELS)
