// Kernels of the normalisations of grades, whose functions (clifford/pointwise/grades.cuh) differ in the norm alone: GW_NORMALIZATION(operation,
// function, type, its name) defines the forward and the backward one. Shapes are those of clifford/pointwise/grades.cuh.
#pragma once

#include "clifford/pointwise/grades.cuh"

#define GW_NORMALIZATION(OPERATION, FUNCTION, T, NAME)                                                                      \
    extern "C" __global__ void __launch_bounds__(256, 4) gw_##OPERATION##_fwd_##NAME(                                       \
        const T* x, const T* a, T* out, const u32* first, const i32* metric, i64 plane, i64 features) {                     \
        begin_kernel();                                                                                                     \
        scale_grades<FUNCTION<Compute<T>>, T>(x, {a}, out, first, metric, plane, features);                                 \
    }                                                                                                                       \
    extern "C" __global__ void __launch_bounds__(256, 3) gw_##OPERATION##_bwd_##NAME(                                       \
        const T* x, const T* a, const T* grad, T* out, Compute<T>* partial, const u32* first, const i32* metric, i64 rows,  \
        i64 features, i64 chunk) {                                                                                          \
        begin_kernel();                                                                                                     \
        scale_grades_backward<FUNCTION<Compute<T>>, T>(x, {a}, grad, out, {partial}, first, metric, {rows, features, chunk}); \
    }
