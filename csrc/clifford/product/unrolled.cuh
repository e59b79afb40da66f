// The weighted product of one algebra with gates and norm, unrolled: out = norm(Σ w·gate(x)·gate(y)), and its gradients. These
// kernels serve every shape and dtype; clifford/product/persistent.cuh and clifford/product/sm90_persistent.cuh serve the common cases faster.
//
// x, y and out are [blades, rows, features], w is [features, paths]. A thread works on V adjacent features of a row, whose
// blades it holds in registers. Names: gw_sgp_<fwd|bwd>_v<V>_<algebra>_<dtype>.
#pragma once

#include "clifford/product/multivectors.cuh"
#include "clifford/pointwise/norms.cuh"
#include "gradewise/group.cuh"

template <class A, class T, int V>
struct UnrolledProduct {
    using C = Compute<T>;
    using Product = Multivectors<A, C, V>;
    using Element = typename Product::Element;
    using Gates = typename Product::Gates;
    using Weights = typename Product::Weights;
    static constexpr int BLADES = A::BLADES, PATHS = A::PATHS, GRADES = A::GRADES;

    /// out = scale·(base + product), normalised if `inverse_rms` [grades, rows] is given. blockDim.x threads share a row,
    /// blockDim.y rows share a block (gradewise/group.cuh).
    GW_DEVICE static void forward(const T* x, const T* y, const T* w, const T* base, T* out, C* inverse_rms, i64 rows,
                                  i64 features, i32 gated, double scale) {
        __shared__ C scratch[GRADES][32];
        const i64 plane = rows * features;
        const i64 across = static_cast<i64>(blockDim.x) * V;
        const bool single = features <= across;
        Weights weights;
        const i64 own = static_cast<i64>(threadIdx.x) * V;
        if (single && own < features) read_weights(w, own, weights);
        each_row(rows, [&](i64 row, bool there) {
            C squares[GRADES] = {};
            Element result;
            for (i64 feature = own; there && feature < features; feature += across) {
                const i64 position = row * features + feature;
                Element a, b;
                Product::load(a, x + position, plane);
                Product::load(b, y + position, plane);
                if (gated) Gates(a, b).apply(a);
                if (!single) read_weights(w, feature, weights);
                Product::multiply(a, b, weights, result);
                if (base != nullptr) {
                    Product::load(a, base + position, plane);
#pragma unroll
                    for (int blade = 0; blade < BLADES; ++blade) {
#pragma unroll
                        for (int v = 0; v < V; ++v) result.at[blade][v] = C(scale) * (result.at[blade][v] + a.at[blade][v]);
                    }
                }
                if (inverse_rms != nullptr) {
                    Product::add_squares(result, squares);
                    if (single) continue;
                }
                Product::store(out + position, result, plane);
            }
            if (inverse_rms == nullptr) return;
            row_sums(squares, scratch);
            if (!there) return;
            C factor[GRADES];
#pragma unroll
            for (int grade = 0; grade < GRADES; ++grade) {
                factor[grade] = C(1) / root(squares[grade] / C(features) + C(RMS_EPSILON));
                if (threadIdx.x == 0) inverse_rms[grade * rows + row] = factor[grade];
            }
            for (i64 feature = own; feature < features; feature += across) {
                const i64 position = row * features + feature;
                if (!single) Product::load(result, out + position, plane);
                Product::scale_grades(result, factor, result);
                Product::store(out + position, result, plane);
            }
        });
    }

    /// Gradients of x and y (each may be null), and partial gradients of w, [gridDim.x, features, paths].
    ///
    /// If the result was normalised, `inverse_rms` and `along` [grades, rows] say how: along = Σ ô·g / Σ ô² with ô the output.
    /// blockIdx.x is the chunk of `chunk` rows, less than 2³¹, and begins within the rows; blockDim.y rows are worked on at a time.
    /// `feature` is the thread's first one.
    GW_DEVICE static void backward(const T* x, const T* y, const T* w, const T* grad, const C* inverse_rms, const C* along,
                                   T* grad_x, T* grad_y, C* partial, i64 rows, i64 features, i64 chunk, i32 gated,
                                   double scale, i64 feature) {
        const i64 plane = rows * features;
        const bool active = feature < features;
        Weights weights = {}, sums = {};
        if (active) read_weights(w, feature, weights);
        const i64 begin = blockIdx.x * chunk;
        const u32 count = static_cast<u32>(begin + chunk < rows ? chunk : rows - begin);
#pragma unroll 1
        for (u32 at = threadIdx.y; active && at < count; at += blockDim.y) {
            const i64 row = begin + at, position = row * features + feature;
            Element a, b, g;
            Product::load(a, x + position, plane);
            Product::load(b, y + position, plane);
            Product::load(g, grad + position, plane);
            Gates gates;
            if (gated) gates = Gates(a, b);
            if (inverse_rms != nullptr) {
                Element output;
                Product::multiply(a, b, weights, output);
                if (gated) gates.apply(output);
                each<BLADES>([&](auto blade) {
                    constexpr int N = decltype(blade)::value, grade = Product::tables.grade[N];
                    const C r = inverse_rms[grade * rows + row], part = along[grade * rows + row] * r;
                    const C kept = C(RMS_EPSILON) * r * r;
#pragma unroll
                    for (int v = 0; v < V; ++v) {
                        const C parallel = part * output.at[N][v];
                        g.at[N][v] = r * ((g.at[N][v] - parallel) + parallel * kept);
                    }
                });
            } else if (scale != 1) {
#pragma unroll
                for (int blade = 0; blade < BLADES; ++blade) {
#pragma unroll
                    for (int v = 0; v < V; ++v) g.at[blade][v] *= C(scale);
                }
            }
            if (gated) gates.apply(g);
            Element da, db;
            Product::differentiate(a, b, g, weights, da, db, sums);
            if (gated) {
                // Slopes are computed here: kept since the gates, they would take more registers than a thread has.
                Product::gate_backward(a, da);
                Product::gate_backward(b, db);
            }
            if (grad_x != nullptr) Product::store(grad_x + position, da, plane);
            if (grad_y != nullptr) Product::store(grad_y + position, db, plane);
        }
        if (partial == nullptr) return;
        write_sums(sums, active, partial + (blockIdx.x * features + feature) * PATHS);
    }

  private:
    GW_DEVICE static void read_weights(const T* w, i64 feature, Weights& weights) {
#pragma unroll
        for (int v = 0; v < V; ++v) {
#pragma unroll
            for (int path = 0; path < PATHS; ++path) weights.at[path][v] = widen(w[(feature + v) * PATHS + path]);
        }
    }

    /// Sums of several values over the threads of a row, in a fixed order; every thread of the row gets them. All threads of the
    /// block call it.
    GW_DEVICE static void row_sums(C (&values)[GRADES], C (&scratch)[GRADES][32]) {
        const int width = blockDim.x < 32 ? blockDim.x : 32;
        for (int offset = width / 2; offset > 0; offset /= 2) {
#pragma unroll
            for (int i = 0; i < GRADES; ++i) values[i] += __shfl_xor_sync(0xffffffffu, values[i], offset, width);
        }
        if (blockDim.x <= 32) return;
        const int warps = blockDim.x / 32, first = threadIdx.y * warps;
        __syncthreads();  // The scratch may still be in use by the previous row.
        if (threadIdx.x % 32 == 0) {
#pragma unroll
            for (int i = 0; i < GRADES; ++i) scratch[i][first + threadIdx.x / 32] = values[i];
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < GRADES; ++i) {
            values[i] = scratch[i][first];
            for (int warp = 1; warp < warps; ++warp) values[i] += scratch[i][first + warp];
        }
    }

    /// Writes the thread's sums, added over the rows that the block works on at a time, in order. All threads of the block call it.
    GW_DEVICE static void write_sums(const Weights& sums, bool active, C* target) {
        __shared__ C rows_of_block[256];
#pragma unroll
        for (int path = 0; path < PATHS; ++path) {
#pragma unroll
            for (int v = 0; v < V; ++v) {
                C total = sums.at[path][v];
                if (blockDim.y > 1) {
                    __syncthreads();
                    rows_of_block[threadIdx.y * blockDim.x + threadIdx.x] = total;
                    __syncthreads();
                    for (int other = 1; threadIdx.y == 0 && other < blockDim.y; ++other) {
                        total += rows_of_block[other * blockDim.x + threadIdx.x];
                    }
                }
                if (active && threadIdx.y == 0) target[v * PATHS + path] = total;
            }
        }
    }
};

/// Without a number of blocks, ptxas for sm_100 and later limits the registers of some instances by itself until they spill.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
#define GW_SGP_FORWARD_BOUNDS __launch_bounds__(256, 1)
#else
#define GW_SGP_FORWARD_BOUNDS __launch_bounds__(256)
#endif

#define GW_SGP_FORWARD(P, Q, R, T, NAME, V)                                                                              \
    extern "C" __global__ void GW_SGP_FORWARD_BOUNDS gw_sgp_fwd_v##V##_##P##_##Q##_##R##_##NAME(                         \
        const T* x, const T* y, const T* w, const T* base, T* out, Compute<T>* inverse_rms, i64 rows, i64 features,      \
        i32 gated, double scale) {                                                                                       \
        begin_kernel();                                                                                                  \
        UnrolledProduct<Algebra<P, Q, R>, T, V>::forward(x, y, w, base, out, inverse_rms, rows, features, gated, scale); \
    }

/// Backward; blockIdx.y selects the tile of blockDim.x·V features. From architecture 10.0 on the compiler pairs the features of a
/// thread, for which 8 blades leave too few registers: there they are worked on one after the other.
template <class A, class T, int V>
GW_DEVICE void sgp_backward(const T* x, const T* y, const T* w, const T* grad, const Compute<T>* inverse_rms,
                            const Compute<T>* along, T* grad_x, T* grad_y, Compute<T>* partial, i64 rows, i64 features,
                            i64 chunk, i32 gated, double scale) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
    constexpr int TOGETHER = A::BLADES < 8 ? V : 1;
#else
    constexpr int TOGETHER = V;
#endif
    const i64 first = (static_cast<i64>(blockIdx.y) * blockDim.x + threadIdx.x) * V;
#pragma unroll 1
    for (i64 feature = first; feature < first + V; feature += TOGETHER) {
        UnrolledProduct<A, T, TOGETHER>::backward(x, y, w, grad, inverse_rms, along, grad_x, grad_y, partial, rows, features, chunk,
                                      gated, scale, feature);
    }
}

/// THREADS, at least the size of a block (128), sets how many registers the compiler may use.
#define GW_SGP_BACKWARD(P, Q, R, T, NAME, V, THREADS)                                                                        \
    extern "C" __global__ void __launch_bounds__(THREADS) gw_sgp_bwd_v##V##_##P##_##Q##_##R##_##NAME(                        \
        const T* x, const T* y, const T* w, const T* grad, const Compute<T>* inverse_rms, const Compute<T>* along,           \
        T* grad_x, T* grad_y, Compute<T>* partial, i64 rows, i64 features, i64 chunk, i32 gated, double scale) {             \
        begin_kernel();                                                                                                      \
        sgp_backward<Algebra<P, Q, R>, T, V>(x, y, w, grad, inverse_rms, along, grad_x, grad_y, partial, rows, features,     \
                                             chunk, gated, scale);                                                           \
    }

#define GW_SGP(P, Q, R, T, NAME, V, THREADS) \
    GW_SGP_FORWARD(P, Q, R, T, NAME, V)      \
    GW_SGP_BACKWARD(P, Q, R, T, NAME, V, THREADS)

/// All kernels of an algebra that its registers allow: of up to 8 blades, 16, and 32. Where one is missing, the launcher uses
/// tables (table_product.cu).
#define GW_SGP_8(P, Q, R, WIDE)          \
    GW_SGP(P, Q, R, float, f32, 1, 256)       \
    GW_SGP(P, Q, R, float, f32, WIDE, 256)    \
    GW_SGP(P, Q, R, double, f64, 1, 256)      \
    GW_SGP(P, Q, R, bf16, bf16, 1, 256)       \
    GW_SGP(P, Q, R, bf16, bf16, WIDE, 256)    \
    GW_SGP(P, Q, R, f16, f16, 1, 256)         \
    GW_SGP(P, Q, R, f16, f16, WIDE, 256)

#define GW_SGP_16(P, Q, R)               \
    GW_SGP(P, Q, R, float, f32, 1, 320)       \
    GW_SGP_FORWARD(P, Q, R, double, f64, 1) \
    GW_SGP(P, Q, R, bf16, bf16, 1, 320)       \
    GW_SGP(P, Q, R, f16, f16, 1, 320)

#define GW_SGP_32(P, Q, R)                \
    GW_SGP_FORWARD(P, Q, R, float, f32, 1) \
    GW_SGP_FORWARD(P, Q, R, bf16, bf16, 1) \
    GW_SGP_FORWARD(P, Q, R, f16, f16, 1)
