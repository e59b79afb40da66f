// The weighted product of one algebra with everything around it, unrolled: out = norm(Σ w·gate(x)·gate(y)), and its gradients.
//
// x, y and out are [blades, rows, features], w is [features, paths]. A thread works on V adjacent features of a row, whose
// blades it holds in registers. Names: gw_sgp_<fwd|bwd>_v<V>_<algebra>_<dtype>.
#pragma once

#include "algebra/unroll.cuh"
#include "gradewise/math.cuh"

template <class A, class T, int V>
struct Sgp {
    using C = Compute<T>;
    using Terms = ::Terms<A>;
    static constexpr int BLADES = A::BLADES, PATHS = A::PATHS, GRADES = A::GRADES;

    /// The blades of V features.
    struct Element {
        C at[BLADES][V];
    };

    GW_DEVICE static void load(Element& element, const T* source, i64 plane) {
#pragma unroll
        for (int blade = 0; blade < BLADES; ++blade, source += plane) ::load<V>(source, element.at[blade]);
        // One element after the other: moved together, their addresses would take more registers than there are.
        asm volatile("" ::: "memory");
    }

    GW_DEVICE static void store(T* target, const Element& element, i64 plane) {
#pragma unroll
        for (int blade = 0; blade < BLADES; ++blade, target += plane) ::store<V>(target, element.at[blade]);
    }

    GW_DEVICE static void gate(Element& element) {
#pragma unroll
        for (int v = 0; v < V; ++v) {
            const C phi = normal_cdf(element.at[0][v]);
#pragma unroll
            for (int blade = 0; blade < BLADES; ++blade) element.at[blade][v] *= phi;
        }
    }

    /// `weight(path, v)` gives the weight of a path.
    template <class W>
    GW_DEVICE static void multiply(const Element& x, const Element& y, W weight, Element& out) {
#pragma unroll
        for (int blade = 0; blade < BLADES; ++blade) {
#pragma unroll
            for (int v = 0; v < V; ++v) out.at[blade][v] = 0;
        }
        C sum[V];
        each<Terms::COUNT>([&](auto term) {
            constexpr int N = decltype(term)::value;
            constexpr int left = Terms::list.left[N], right = Terms::list.right[N], result = Terms::list.result[N];
            constexpr int path = Terms::list.path[N], sign = Terms::list.sign[N];
            constexpr bool opens = Terms::list.opens[N], closes = Terms::list.closes[N];
#pragma unroll
            for (int v = 0; v < V; ++v) {
                const C product = x.at[left][v] * y.at[right][v];
                if constexpr (opens) {
                    sum[v] = sign > 0 ? product : -product;
                } else {
                    sum[v] = sign > 0 ? sum[v] + product : sum[v] - product;
                }
                if constexpr (closes) out.at[result][v] += sum[v] * weight(path, v);
            }
        });
    }

    /// out = scale·(base + product), normalised if `inverse_rms` [grades, rows] is given. blockDim.x threads share a row,
    /// blockDim.y rows share a block (gradewise/group.cuh).
    GW_DEVICE static void forward(const T* x, const T* y, const T* w, const T* base, T* out, C* inverse_rms, i64 rows,
                                  i64 features, i32 gated, double scale) {
        __shared__ C scratch[GRADES][32];
        const i64 plane = rows * features;
        const i64 across = static_cast<i64>(blockDim.x) * V;
        const bool single = features <= across;
        C weights[PATHS][V];
        const i64 own = static_cast<i64>(threadIdx.x) * V;
        auto load_weights = [&](i64 feature) {
#pragma unroll
            for (int v = 0; v < V; ++v) {
#pragma unroll
                for (int path = 0; path < PATHS; ++path) weights[path][v] = widen(w[(feature + v) * PATHS + path]);
            }
        };
        if (single && own < features) load_weights(own);
        auto weight = [&](int path, int v) { return weights[path][v]; };
        const i64 stride = static_cast<i64>(gridDim.x) * blockDim.y;
        for (i64 first = static_cast<i64>(blockIdx.x) * blockDim.y; first < rows; first += stride) {
            const i64 row = first + threadIdx.y;
            C squares[GRADES] = {};
            Element result;
            for (i64 feature = own; row < rows && feature < features; feature += across) {
                const i64 position = row * features + feature;
                Element a, b;
                load(a, x + position, plane);
                load(b, y + position, plane);
                if (gated) {
                    gate(a);
                    gate(b);
                }
                if (!single) load_weights(feature);
                multiply(a, b, weight, result);
                if (base != nullptr) {
                    load(a, base + position, plane);
#pragma unroll
                    for (int blade = 0; blade < BLADES; ++blade) {
#pragma unroll
                        for (int v = 0; v < V; ++v) result.at[blade][v] = C(scale) * (result.at[blade][v] + a.at[blade][v]);
                    }
                }
                if (inverse_rms != nullptr) {
                    each<BLADES>([&](auto blade) {
                        constexpr int N = decltype(blade)::value, grade = Terms::tables.grade[N];
#pragma unroll
                        for (int v = 0; v < V; ++v) squares[grade] += result.at[N][v] * result.at[N][v];
                    });
                    if (single) continue;
                }
                store(out + position, result, plane);
            }
            if (inverse_rms == nullptr) continue;
            row_sums(squares, scratch);
            if (row >= rows) continue;
            C factor[GRADES];
#pragma unroll
            for (int grade = 0; grade < GRADES; ++grade) {
                factor[grade] = C(1) / root(squares[grade] / C(features) + C(1e-6));
                if (threadIdx.x == 0) inverse_rms[grade * rows + row] = factor[grade];
            }
            for (i64 feature = own; feature < features; feature += across) {
                const i64 position = row * features + feature;
                if (!single) load(result, out + position, plane);
                each<BLADES>([&](auto blade) {
                    constexpr int N = decltype(blade)::value, grade = Terms::tables.grade[N];
#pragma unroll
                    for (int v = 0; v < V; ++v) result.at[N][v] *= factor[grade];
                });
                store(out + position, result, plane);
            }
        }
    }

    /// Sums of several values over the threads of a row, in a fixed order; every thread of the row gets them.
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

    /// Gradients of x and y (each may be null), and partial gradients of w, [gridDim.x, features, paths].
    ///
    /// If the result was normalised, `inverse_rms` and `along` [grades, rows] say how: along = Σ ô·g / Σ ô² with ô the output.
    /// blockIdx.x is the chunk of `chunk` rows; blockDim.y rows are worked on at a time. `feature` is the thread's first one.
    GW_DEVICE static void backward(const T* x, const T* y, const T* w, const T* grad, const C* inverse_rms, const C* along,
                                   T* grad_x, T* grad_y, C* partial, i64 rows, i64 features, i64 chunk, i32 gated,
                                   double scale, i64 feature) {
        __shared__ C rows_of_block[256];
        const i64 plane = rows * features;
        const bool active = feature < features;
        C weights[PATHS][V], sums[PATHS][V];
#pragma unroll
        for (int path = 0; path < PATHS; ++path) {
#pragma unroll
            for (int v = 0; v < V; ++v) {
                weights[path][v] = active ? widen(w[(feature + v) * PATHS + path]) : C(0);
                sums[path][v] = 0;
            }
        }
        auto weight = [&](int path, int v) { return weights[path][v]; };
        const i64 begin = blockIdx.x * chunk, end = begin + chunk < rows ? begin + chunk : rows;
#pragma unroll 1
        for (i64 row = begin + threadIdx.y; active && row < end; row += blockDim.y) {
            const i64 position = row * features + feature;
            Element a, b, g;
            load(a, x + position, plane);
            load(b, y + position, plane);
            load(g, grad + position, plane);
            C scalar_a[V], scalar_b[V];
#pragma unroll
            for (int v = 0; v < V; ++v) {
                scalar_a[v] = a.at[0][v];
                scalar_b[v] = b.at[0][v];
            }
            if (gated) {
                gate(a);
                gate(b);
            }
            if (inverse_rms != nullptr) {
                Element output;
                multiply(a, b, weight, output);
                each<BLADES>([&](auto blade) {
                    constexpr int N = decltype(blade)::value, grade = Terms::tables.grade[N];
                    const C r = inverse_rms[grade * rows + row], part = along[grade * rows + row] * r;
                    const C kept = C(1e-6) * r * r;
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
            Element da, db;
#pragma unroll
            for (int blade = 0; blade < BLADES; ++blade) {
#pragma unroll
                for (int v = 0; v < V; ++v) da.at[blade][v] = db.at[blade][v] = 0;
            }
            C sum[V], pull[V];
            each<Terms::COUNT>([&](auto term) {
                constexpr int N = decltype(term)::value;
                constexpr int left = Terms::list.left[N], right = Terms::list.right[N], result = Terms::list.result[N];
                constexpr int path = Terms::list.path[N], sign = Terms::list.sign[N];
                constexpr bool opens = Terms::list.opens[N], closes = Terms::list.closes[N];
#pragma unroll
                for (int v = 0; v < V; ++v) {
                    const C product = a.at[left][v] * b.at[right][v];
                    if constexpr (opens) {
                        sum[v] = sign > 0 ? product : -product;
                        pull[v] = weight(path, v) * g.at[result][v];
                    } else {
                        sum[v] = sign > 0 ? sum[v] + product : sum[v] - product;
                    }
                    if constexpr (sign > 0) {
                        da.at[left][v] += pull[v] * b.at[right][v];
                        db.at[right][v] += pull[v] * a.at[left][v];
                    } else {
                        da.at[left][v] -= pull[v] * b.at[right][v];
                        db.at[right][v] -= pull[v] * a.at[left][v];
                    }
                    if constexpr (closes) sums[path][v] += sum[v] * g.at[result][v];
                }
            });
            if (gated) {
                gate_backward(a, scalar_a, da);
                gate_backward(b, scalar_b, db);
            }
            if (grad_x != nullptr) store(grad_x + position, da, plane);
            if (grad_y != nullptr) store(grad_y + position, db, plane);
        }
        if (partial == nullptr) return;
#pragma unroll
        for (int path = 0; path < PATHS; ++path) {
#pragma unroll
            for (int v = 0; v < V; ++v) {
                C total = sums[path][v];
                if (blockDim.y > 1) {
                    // The rows that were worked on at a time, in order.
                    __syncthreads();
                    rows_of_block[threadIdx.y * blockDim.x + threadIdx.x] = total;
                    __syncthreads();
                    for (int other = 1; threadIdx.y == 0 && other < blockDim.y; ++other) {
                        total += rows_of_block[other * blockDim.x + threadIdx.x];
                    }
                }
                if (active && threadIdx.y == 0) partial[(blockIdx.x * features + feature + v) * PATHS + path] = total;
            }
        }
    }

    /// From the gradient of gate(x) to that of x: `gated` holds x·Φ(x_0), `scalar` x_0.
    GW_DEVICE static void gate_backward(const Element& gated, const C (&scalar)[V], Element& gradient) {
#pragma unroll
        for (int v = 0; v < V; ++v) {
            const C phi = normal_cdf(scalar[v]);
            C dot = 0;
#pragma unroll
            for (int blade = 0; blade < BLADES; ++blade) dot += gated.at[blade][v] * gradient.at[blade][v];
            // Σ g·x is Σ g·gate(x)/Φ; far out on the left, where Φ is 0, so is the density.
            const C density = phi > C(0) ? normal_pdf(scalar[v]) / phi : C(0);
#pragma unroll
            for (int blade = 0; blade < BLADES; ++blade) gradient.at[blade][v] *= phi;
            gradient.at[0][v] += density * dot;
        }
    }
};

#define GW_SGP_FORWARD(P, Q, R, T, NAME, V)                                                                                  \
    extern "C" __global__ void __launch_bounds__(256) gw_sgp_fwd_v##V##_##P##_##Q##_##R##_##NAME(                            \
        const T* x, const T* y, const T* w, const T* base, T* out, Compute<T>* inverse_rms, i64 rows, i64 features,          \
        i32 gated, double scale) {                                                                                           \
        begin_kernel();                                                                                                      \
        Sgp<Algebra<P, Q, R>, T, V>::forward(x, y, w, base, out, inverse_rms, rows, features, gated, scale);                 \
    }

/// Backward with blockIdx.y the tile of blockDim.x·V features. For architectures from 10.0 on, the compiler pairs the features of
/// a thread, which takes more registers than there are for 8 blades: there they are worked on one after the other.
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
        Sgp<A, T, TOGETHER>::backward(x, y, w, grad, inverse_rms, along, grad_x, grad_y, partial, rows, features, chunk,
                                      gated, scale, feature);
    }
}

/// THREADS is at least the size of a block (128); the compiler allows for that many, which decides how many registers it takes.
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

/// All kernels of an algebra, as its registers allow: up to 8 blades, up to 16, up to 32. Where one is missing, the product
/// goes by tables (product.cu).
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
