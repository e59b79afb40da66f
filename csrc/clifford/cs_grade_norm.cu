// cs_grade_norm(x; a): x^(k) / (σ(a_k)·(‖x^(k)‖ - 1) + 1 + 1e-6) with norms of at least 0.1 (arXiv:2402.14730). Shapes are those of clifford/grades.cuh.
#include "clifford/grades.cuh"

#define GW_KERNELS(T, NAME)                                                                                                 \
    extern "C" __global__ void __launch_bounds__(256, 4) gw_cs_grade_norm_fwd_##NAME(                                    \
        const T* x, const T* a, T* out, const u32* first, const i32* metric, i64 plane, i64 features) {                     \
        begin_kernel();                                                                                                     \
        scale_grades<ClampedNormalization<Compute<T>>, T>(x, {a}, out, first, metric, plane, features);                            \
    }                                                                                                                       \
    extern "C" __global__ void __launch_bounds__(256, 4) gw_cs_grade_norm_bwd_##NAME(                                    \
        const T* x, const T* a, const T* grad, T* out, Compute<T>* partial, const u32* first, const i32* metric, i64 rows,  \
        i64 features, i64 chunk) {                                                                                          \
        begin_kernel();                                                                                                     \
        scale_grades_backward<ClampedNormalization<Compute<T>>, T>(x, {a}, grad, out, {partial}, first, metric,                    \
                                                            {rows, features, chunk});                                       \
    }
GW_FOR_DTYPES(GW_KERNELS)
