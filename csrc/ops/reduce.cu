// Reductions of strided views, in double precision for every storage type. The order of a reduction depends on sizes only: a thread
// combines every n-th element of a part, a tree combines the threads, the second stage combines the parts. The reducers are
// numbered as in crates/kernels/src/ops/reduce/cuda.rs.
#include "gradewise/strided.cuh"

namespace {

enum Reducer : i32 { kSum, kGreatest, kLeast };

struct Sum {
    GW_DEVICE static double combine(double a, double b) { return a + b; }
};
// NaN wins in both.
struct Greatest {
    GW_DEVICE static double combine(double a, double b) { return a > b || a != a ? a : b; }
};
struct Least {
    GW_DEVICE static double combine(double a, double b) { return a < b || a != a ? a : b; }
};

template <class R>
GW_DEVICE double start() {
    return 0;
}
template <>
GW_DEVICE double start<Greatest>() {
    return -__longlong_as_double(0x7ff0000000000000LL);
}
template <>
GW_DEVICE double start<Least>() {
    return __longlong_as_double(0x7ff0000000000000LL);
}

template <class R>
GW_DEVICE double across_warp(double value) {
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) {
        value = R::combine(value, __shfl_xor_sync(0xffffffffu, value, offset));
    }
    return value;
}

/// The index spaces of a reduction: the elements of `reduced` from each of the `outputs` positions of `kept`, in `parts` parts.
struct Task {
    i64 outputs, count, parts;
    double scale;
};

/// The range of a part.
struct Range {
    i64 begin, end;
    GW_DEVICE Range(const Task& task, i64 part) {
        const i64 size = (task.count + task.parts - 1) / task.parts;
        begin = part * size;
        end = begin + size < task.count ? begin + size : task.count;
    }
};

template <class T>
GW_DEVICE void finish(const Task& task, T* out, double* partial, i64 output, i64 part, double value) {
    if (task.parts == 1) {
        out[output] = narrow<T>(value * task.scale);
    } else {
        partial[output * task.parts + part] = value;
    }
}

/// One warp, or the whole block of 256 threads, for each part of each result; adjacent threads read adjacent reduced elements.
template <class T, class R>
GW_DEVICE void rows(const View<const T>& x, const Strides& inner, const Axes& kept, const Axes& reduced, const Task& task,
                    i32 whole_block, T* out, double* partial) {
    __shared__ double warps[8];
    const i64 lanes = whole_block ? 256 : 32;
    const i64 first = whole_block ? blockIdx.x : blockIdx.x * 8LL + threadIdx.x / 32;
    const i64 step = whole_block ? gridDim.x : gridDim.x * 8LL;
    for (i64 unit = first; unit < task.outputs * task.parts; unit += step) {
        const i64 output = task.parts == 1 ? unit : unit / task.parts, part = unit - output * task.parts;
        const T* source = x.data + locate(kept, x.strides, output);
        const Range range(task, part);
        double value = start<R>();
        if (reduced.rank <= 1) {
#pragma unroll 4
            for (i64 i = range.begin + threadIdx.x % lanes; i < range.end; i += lanes) {
                value = R::combine(value, widen(source[i * inner.at[0]]));
            }
        } else {
            for (i64 i = range.begin + threadIdx.x % lanes; i < range.end; i += lanes) {
                value = R::combine(value, widen(source[locate(reduced, inner, i)]));
            }
        }
        value = across_warp<R>(value);
        if (whole_block) {
            __syncthreads();  // The previous result may still be read.
            if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = value;
            __syncthreads();
            value = warps[0];
            for (int warp = 1; warp < 8; ++warp) value = R::combine(value, warps[warp]);
        }
        if (threadIdx.x % lanes == 0) finish(task, out, partial, output, part, value);
    }
}

/// Adjacent threads have adjacent results; the threads of a column of the block share the elements of one.
template <class T, class R>
GW_DEVICE void columns(const View<const T>& x, const Strides& inner, const Axes& kept, const Axes& reduced,
                       const Task& task, T* out, double* partial) {
    __shared__ double sums[256];
    const i64 width = blockDim.x, tiles = (task.outputs + width - 1) / width;
    for (i64 unit = blockIdx.x; unit < tiles * task.parts; unit += gridDim.x) {
        const i64 part = unit / tiles, output = (unit - part * tiles) * width + threadIdx.x;
        double value = start<R>();
        if (output < task.outputs) {
            const T* source = x.data + locate(kept, x.strides, output);
            const Range range(task, part);
            if (reduced.rank <= 1) {
#pragma unroll 4
                for (i64 i = range.begin + threadIdx.y; i < range.end; i += blockDim.y) {
                    value = R::combine(value, widen(source[i * inner.at[0]]));
                }
            } else {
                for (i64 i = range.begin + threadIdx.y; i < range.end; i += blockDim.y) {
                    value = R::combine(value, widen(source[locate(reduced, inner, i)]));
                }
            }
        }
        if (blockDim.y > 1) {
            __syncthreads();  // The previous results may still be read.
            sums[threadIdx.y * width + threadIdx.x] = value;
            __syncthreads();
            for (int y = 1; y < blockDim.y && threadIdx.y == 0; ++y) {
                value = R::combine(value, sums[y * width + threadIdx.x]);
            }
        }
        if (threadIdx.y == 0 && output < task.outputs) finish(task, out, partial, output, part, value);
    }
}

/// The second stage: one warp for each result.
template <class T, class R>
GW_DEVICE void combine(const double* partial, i64 outputs, i64 parts, double scale, T* out) {
    const i64 first = blockIdx.x * 8LL + threadIdx.x / 32;
    for (i64 output = first; output < outputs; output += gridDim.x * 8LL) {
        double value = start<R>();
        for (i64 part = threadIdx.x % 32; part < parts; part += 32) {
            value = R::combine(value, partial[output * parts + part]);
        }
        value = across_warp<R>(value);
        if (threadIdx.x % 32 == 0) out[output] = narrow<T>(value * scale);
    }
}

}  // namespace

#define GW_REDUCERS(CALL)                   \
    switch (reducer) {                      \
        case kSum: return CALL(Sum);        \
        case kGreatest: return CALL(Greatest); \
        case kLeast: return CALL(Least);    \
    }
#define GW_ROWS(R) rows<Element, R>(x, inner, kept, reduced, task, whole_block, out, partial)
#define GW_COLUMNS(R) columns<Element, R>(x, inner, kept, reduced, task, out, partial)
#define GW_COMBINE(R) combine<Element, R>(partial, outputs, parts, scale, out)

#define GW_KERNELS(T, NAME)                                                                                    \
    extern "C" __global__ void __launch_bounds__(256, 4) gw_reduce_rows_##NAME(                                   \
        GW_PARAMETER View<const T> x, GW_PARAMETER Strides inner, GW_PARAMETER Axes kept,                      \
        GW_PARAMETER Axes reduced, GW_PARAMETER Task task, i32 reducer, i32 whole_block, T* out,               \
        double* partial) {                                                                                     \
        begin_kernel();                                                                                        \
        using Element = T;                                                                                     \
        GW_REDUCERS(GW_ROWS)                                                                                   \
    }                                                                                                          \
    extern "C" __global__ void __launch_bounds__(256, 4) gw_reduce_columns_##NAME(                                \
        GW_PARAMETER View<const T> x, GW_PARAMETER Strides inner, GW_PARAMETER Axes kept,                      \
        GW_PARAMETER Axes reduced, GW_PARAMETER Task task, i32 reducer, T* out, double* partial) {             \
        begin_kernel();                                                                                        \
        using Element = T;                                                                                     \
        GW_REDUCERS(GW_COLUMNS)                                                                                \
    }                                                                                                          \
    extern "C" __global__ void __launch_bounds__(256, 4) gw_reduce_combine_##NAME(                                \
        const double* partial, i64 outputs, i64 parts, double scale, i32 reducer, T* out) {                    \
        begin_kernel();                                                                                        \
        using Element = T;                                                                                     \
        GW_REDUCERS(GW_COMBINE)                                                                                \
    }
GW_FOR_DTYPES(GW_KERNELS)
