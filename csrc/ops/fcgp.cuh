// The pairwise sums of the fully connected product of one algebra, unrolled: P[group] = Σ ±x_i·y_k for each path and result, and
// the gradients of x and y from those of P. What is between are matrix products.
//
// x and y are [blades, plane], of which `count` positions from the given address on are worked on; P is [groups, count], in order
// of path, then result. A thread works on V adjacent positions. Names: gw_fcgp_<sums|sums_bwd>_v<V>_<algebra>_<dtype>.
#pragma once

#include "ops/sgp.cuh"

template <class A, class T, int V>
struct Pairs {
    using C = Compute<T>;
    using Terms = ::Terms<A>;
    using Element = typename Sgp<A, T, V>::Element;

    struct Numbers {
        short group[Terms::COUNT] = {};
    };

    /// The group of each term. Terms are in order of result, then path.
    static constexpr Numbers make() {
        Numbers numbers{};
        for (int n = 0; n < Terms::COUNT; ++n) {
            int before = 0;
            for (int other = 0; other < Terms::COUNT; ++other) {
                if (!Terms::list.opens[other]) continue;
                const int path = Terms::list.path[other] - Terms::list.path[n];
                if (path < 0 || (path == 0 && Terms::list.result[other] < Terms::list.result[n])) ++before;
            }
            numbers.group[n] = static_cast<short>(before);
        }
        return numbers;
    }

    static constexpr Numbers numbers = make();

    GW_DEVICE static void forward(const T* x, const T* y, T* sums, i64 count, i64 plane, i32 gated) {
        for (i64 position = thread_index() * V; position < count; position += thread_count() * V) {
            Element a, b;
            Sgp<A, T, V>::load(a, x + position, plane);
            Sgp<A, T, V>::load(b, y + position, plane);
            if (gated) {
                Sgp<A, T, V>::gate(a);
                Sgp<A, T, V>::gate(b);
            }
            C sum[V];
            each<Terms::COUNT>([&](auto term) {
                constexpr int N = decltype(term)::value;
                constexpr int left = Terms::list.left[N], right = Terms::list.right[N], sign = Terms::list.sign[N];
                constexpr bool opens = Terms::list.opens[N], closes = Terms::list.closes[N];
#pragma unroll
                for (int v = 0; v < V; ++v) {
                    const C product = a.at[left][v] * b.at[right][v];
                    if constexpr (opens) {
                        sum[v] = sign > 0 ? product : -product;
                    } else {
                        sum[v] = sign > 0 ? sum[v] + product : sum[v] - product;
                    }
                }
                constexpr int group = numbers.group[N];
                if constexpr (closes) ::store<V>(sums + group * count + position, sum);
            });
        }
    }

    /// Gradients of x and y, each [blades, plane] as they are.
    GW_DEVICE static void backward(const T* x, const T* y, const T* sums, T* grad_x, T* grad_y, i64 count, i64 plane, i32 gated) {
        for (i64 position = thread_index() * V; position < count; position += thread_count() * V) {
            Element a, b, da, db;
            Sgp<A, T, V>::load(a, x + position, plane);
            Sgp<A, T, V>::load(b, y + position, plane);
            C scalar_a[V], scalar_b[V];
#pragma unroll
            for (int v = 0; v < V; ++v) {
                scalar_a[v] = a.at[0][v];
                scalar_b[v] = b.at[0][v];
            }
            if (gated) {
                Sgp<A, T, V>::gate(a);
                Sgp<A, T, V>::gate(b);
            }
#pragma unroll
            for (int blade = 0; blade < A::BLADES; ++blade) {
#pragma unroll
                for (int v = 0; v < V; ++v) da.at[blade][v] = db.at[blade][v] = 0;
            }
            C pull[V];
            each<Terms::COUNT>([&](auto term) {
                constexpr int N = decltype(term)::value;
                constexpr int left = Terms::list.left[N], right = Terms::list.right[N], sign = Terms::list.sign[N];
                constexpr int group = numbers.group[N];
                if constexpr (Terms::list.opens[N]) ::load<V>(sums + group * count + position, pull);
#pragma unroll
                for (int v = 0; v < V; ++v) {
                    const C g = sign > 0 ? pull[v] : -pull[v];
                    da.at[left][v] += g * b.at[right][v];
                    db.at[right][v] += g * a.at[left][v];
                }
            });
            if (gated) {
                Sgp<A, T, V>::gate_backward(a, scalar_a, da);
                Sgp<A, T, V>::gate_backward(b, scalar_b, db);
            }
            if (grad_x != nullptr) Sgp<A, T, V>::store(grad_x + position, da, plane);
            if (grad_y != nullptr) Sgp<A, T, V>::store(grad_y + position, db, plane);
        }
    }
};

#define GW_FCGP_SUMS(P, Q, R, T, NAME, V)                                                                                    \
    extern "C" __global__ void __launch_bounds__(256) gw_fcgp_sums_v##V##_##P##_##Q##_##R##_##NAME(                          \
        const T* x, const T* y, T* sums, i64 count, i64 plane, i32 gated) {                                                  \
        begin_kernel();                                                                                                      \
        Pairs<Algebra<P, Q, R>, T, V>::forward(x, y, sums, count, plane, gated);                                             \
    }
#define GW_FCGP_SUMS_BACKWARD(P, Q, R, T, NAME, V)                                                                           \
    extern "C" __global__ void __launch_bounds__(256) gw_fcgp_sums_bwd_v##V##_##P##_##Q##_##R##_##NAME(                      \
        const T* x, const T* y, const T* sums, T* grad_x, T* grad_y, i64 count, i64 plane, i32 gated) {                      \
        begin_kernel();                                                                                                      \
        Pairs<Algebra<P, Q, R>, T, V>::backward(x, y, sums, grad_x, grad_y, count, plane, gated);                            \
    }
#define GW_FCGP(P, Q, R, T, NAME, FORWARD, BACKWARD)  \
    GW_FCGP_SUMS(P, Q, R, T, NAME, FORWARD)           \
    GW_FCGP_SUMS_BACKWARD(P, Q, R, T, NAME, BACKWARD)

/// As many adjacent positions of up to 8 blades as registers allow, and one. For architectures from 10.0 on, the compiler pairs f16
/// positions, for which four take too many.
#define GW_FCGP_8(P, Q, R)              \
    GW_FCGP(P, Q, R, float, f32, 1, 1)  \
    GW_FCGP(P, Q, R, float, f32, 4, 2)  \
    GW_FCGP(P, Q, R, double, f64, 1, 1) \
    GW_FCGP(P, Q, R, bf16, bf16, 1, 1)  \
    GW_FCGP(P, Q, R, bf16, bf16, 4, 2)  \
    GW_FCGP(P, Q, R, f16, f16, 1, 1)    \
    GW_FCGP(P, Q, R, f16, f16, 2, 2)
