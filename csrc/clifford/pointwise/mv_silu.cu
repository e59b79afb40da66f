// mv_silu(x; a, b): grade k times σ(a_k·u_k + b_k), u_0 the scalar part, u_k the quadratic form of x^(k) (arXiv:2305.11141). Shapes
// are those of clifford/pointwise/grades.cuh.
#include "clifford/pointwise/grades.cuh"

#define GW_KERNELS(T, NAME)                                                                                          \
    extern "C" __global__ void __launch_bounds__(256, 4) gw_mv_silu_fwd_##NAME(                                      \
        const T* x, const T* a, const T* b, T* out, const u32* first, const i32* metric, i64 plane, i64 features) {  \
        begin_kernel();                                                                                              \
        scale_grades<Silu<Compute<T>>, T>(x, {a, b}, out, first, metric, plane, features);                           \
    }                                                                                                                \
    extern "C" __global__ void __launch_bounds__(256, 3) gw_mv_silu_bwd_##NAME(                                      \
        const T* x, const T* a, const T* b, const T* grad, T* out, Compute<T>* partial_a, Compute<T>* partial_b,     \
        const u32* first, const i32* metric, i64 rows, i64 features, i64 chunk) {                                    \
        begin_kernel();                                                                                              \
        scale_grades_backward<Silu<Compute<T>>, T>(x, {a, b}, grad, out, {partial_a, partial_b}, first, metric,      \
                                                   {rows, features, chunk});                                         \
    }
GW_FOR_DTYPES(GW_KERNELS)
