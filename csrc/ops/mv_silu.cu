// mv_silu(x; a, b): grade k times σ(a_k·u_k + b_k), u_0 the scalar part, u_k = q(x^(k)) (arXiv:2305.11141). x is
// [blades, rows, features], a and b are [features, grades]; `first` has the first blade of each grade and one past the last,
// `metric` the diagonal of the quadratic form.
#include "gradewise/math.cuh"

/// u_k at one position.
template <class T>
GW_DEVICE Compute<T> argument(const T* x, const u32* first, const i32* metric, i64 grade, i64 plane) {
    if (grade == 0) return widen(x[0]);
    // In double precision: the squares of an indefinite form cancel.
    double q = 0;
    for (u32 blade = first[grade]; blade < first[grade + 1]; ++blade) {
        const double value = widen(x[blade * plane]);
        q += metric[blade] * value * value;
    }
    return Compute<T>(q);
}

/// One thread per position; blockIdx.y is the grade.
template <class T>
GW_DEVICE void mv_silu(const T* x, const T* a, const T* b, T* out, const u32* first, const i32* metric, i64 plane,
                       i64 features) {
    const i64 grade = blockIdx.y, grades = gridDim.y;
    for (i64 position = thread_index(); position < plane; position += thread_count()) {
        const i64 parameter = position % features * grades + grade;
        const Compute<T> u = argument(x + position, first, metric, grade, plane);
        const Compute<T> s = sigmoid(widen(a[parameter]) * u + widen(b[parameter]));
        for (u32 blade = first[grade]; blade < first[grade + 1]; ++blade) {
            const i64 at = blade * plane + position;
            out[at] = narrow<T>(widen(x[at]) * s);
        }
    }
}

/// Writes the gradient of x and partial gradients of a and b, [chunks, features, grades]. One thread per feature, blockIdx.y
/// the grade, blockIdx.z the chunk of `chunk` rows.
template <class T>
GW_DEVICE void mv_silu_backward(const T* x, const T* a, const T* b, const T* grad, T* out, Compute<T>* partial_a,
                                Compute<T>* partial_b, const u32* first, const i32* metric, i64 rows, i64 features,
                                i64 chunk) {
    using C = Compute<T>;
    const i64 grade = blockIdx.y, grades = gridDim.y, plane = rows * features;
    const i64 begin = blockIdx.z * chunk, end = begin + chunk < rows ? begin + chunk : rows;
    for (i64 feature = thread_index(); feature < features; feature += thread_count()) {
        const C slope = widen(a[feature * grades + grade]), shift = widen(b[feature * grades + grade]);
        C sum_a = 0, sum_b = 0;
        for (i64 row = begin; row < end; ++row) {
            const i64 position = row * features + feature;
            const C u = argument(x + position, first, metric, grade, plane);
            const C s = sigmoid(slope * u + shift);
            C dot = 0;
            for (u32 blade = first[grade]; blade < first[grade + 1]; ++blade) {
                const i64 at = blade * plane + position;
                dot += widen(x[at]) * widen(grad[at]);
            }
            const C pull = dot * s * (C(1) - s);
            sum_a += pull * u;
            sum_b += pull;
            const C twice = C(2) * pull * slope;
            for (u32 blade = first[grade]; blade < first[grade + 1]; ++blade) {
                const i64 at = blade * plane + position;
                const C through = grade == 0 ? pull * slope : twice * C(metric[blade]) * widen(x[at]);
                out[at] = narrow<T>(widen(grad[at]) * s + through);
            }
        }
        const i64 at = (blockIdx.z * features + feature) * grades + grade;
        partial_a[at] = sum_a;
        partial_b[at] = sum_b;
    }
}

#define GW_KERNELS(T, NAME)                                                                                             \
    extern "C" __global__ void __launch_bounds__(256, 4)                                                                   \
        gw_mv_silu_fwd_##NAME(const T* x, const T* a, const T* b, T* out, const u32* first, const i32* metric,          \
                              i64 plane, i64 features) {                                                                \
        begin_kernel();                                                                                                 \
        mv_silu<T>(x, a, b, out, first, metric, plane, features);                                                       \
    }                                                                                                                   \
    extern "C" __global__ void __launch_bounds__(256, 4) gw_mv_silu_bwd_##NAME(                                            \
        const T* x, const T* a, const T* b, const T* grad, T* out, Compute<T>* partial_a, Compute<T>* partial_b,        \
        const u32* first, const i32* metric, i64 rows, i64 features, i64 chunk) {                                       \
        begin_kernel();                                                                                                 \
        mv_silu_backward<T>(x, a, b, grad, out, partial_a, partial_b, first, metric, rows, features, chunk);            \
    }
GW_FOR_DTYPES(GW_KERNELS)
