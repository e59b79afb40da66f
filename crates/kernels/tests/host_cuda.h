// What generated kernels use of CUDA, for the host's compiler: a thread is an iteration of two loops. Half precision, whose conversions are
// instructions of the device, is left out.
#pragma once

#include <math.h>
#include <string.h>

struct Dimension {
    unsigned x, y, z;
};
static thread_local Dimension blockIdx, blockDim, gridDim, threadIdx;

#define __global__
#define __launch_bounds__(...)
#define __grid_constant__
// Kernels of stages are run stage by stage.
static inline void __syncthreads() {}

// Compiled with -ffp-contract=off, so that products and sums are rounded one by one.
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fdiv_rn(float a, float b) { return a / b; }
static inline double __dmul_rn(double a, double b) { return a * b; }
static inline double __dadd_rn(double a, double b) { return a + b; }
static inline double __ddiv_rn(double a, double b) { return a / b; }
static inline float __fdividef(float a, float b) { return a / b; }
static inline float rsqrtf(float x) { return 1 / sqrtf(x); }

template <class To, class From>
static inline To bits_of(From from) {
    To to;
    static_assert(sizeof to == sizeof from, "the same bits");
    memcpy(&to, &from, sizeof to);
    return to;
}
static inline float __uint_as_float(unsigned bits) { return bits_of<float>(bits); }
static inline unsigned __float_as_uint(float value) { return bits_of<unsigned>(value); }
static inline double __longlong_as_double(long long bits) { return bits_of<double>(bits); }
static inline float __double2float_rz(double value) {
    const float nearest = static_cast<float>(value);
    return fabs(static_cast<double>(nearest)) > fabs(value) ? nextafterf(nearest, 0) : nearest;
}
