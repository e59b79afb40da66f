// The pairwise sums of the fully connected product of one algebra, unrolled: P[group] = Σ ±x_i·y_k for each path and result; and
// the gradients of x and y from those of P. Matrix products compute the steps in between.
//
// x and y are [blades, plane]; a launch works on `count` positions from the given address on. P is [groups, count], in order of
// path, then result. A thread works on V adjacent positions. Names: gw_fcgp_<sums|sums_bwd>_v<V>_<algebra>_<dtype>.
#pragma once

#include "clifford/product/multivectors.cuh"

template <class A, class T, int V>
struct Pairs {
    using C = Compute<T>;
    using Product = Multivectors<A, C, V>;
    using Element = typename Product::Element;
    using Gates = typename Product::Gates;
    using Slopes = typename Product::Slopes;
    using Order = Pivoted<A, Purpose::SUMS>;
    static constexpr int GROUPS = Order::list.at[Order::COUNT - 1].group + 1;
    /// Whether `backward` reads all gradients of the sums before it computes: one register each, in Cl(3,0) 44. Read where they are
    /// needed, too few reads are under way at a time (73 µs instead of 47, docs/lab/kernels.md). Algebras of 16 blades have more sums
    /// than a thread has registers.
    static constexpr bool READS_AHEAD = sizeof(T) * V <= 4 && GROUPS <= 64;

    /// Gradients of the sums as they are stored.
    struct Stored {
        Pack<T, V> at[READS_AHEAD ? GROUPS : 1];

        GW_DEVICE void read(const T* sums, i64 count) {
            if constexpr (READS_AHEAD) {
#pragma unroll
                for (int group = 0; group < GROUPS; ++group) at[group] = *reinterpret_cast<const Pack<T, V>*>(sums + group * count);
                // Keeps the compiler from moving the reads back to where they are needed.
                asm volatile("" ::: "memory");
            }
        }
    };

    GW_DEVICE static void forward(const T* x, const T* y, T* sums, i64 count, i64 plane, i32 gated) {
        for (i64 position = thread_index() * V; position < count; position += thread_count() * V) {
            Element a, b;
            Product::load(a, x + position, plane);
            Product::load(b, y + position, plane);
            if (gated) Gates(a, b).apply(a);
            C sum[V];
            each<Order::COUNT>([&](auto term) {
                constexpr auto t = Order::list.at[decltype(term)::value];
                constexpr int left = t.left, right = t.right, sign = t.sign, group = t.group;
                constexpr bool opens = t.opens, closes = t.closes;
#pragma unroll
                for (int v = 0; v < V; ++v) {
                    const C product = a.at[left][v] * b.at[right][v];
                    if constexpr (opens) {
                        sum[v] = sign > 0 ? product : -product;
                    } else {
                        sum[v] = sign > 0 ? sum[v] + product : sum[v] - product;
                    }
                }
                if constexpr (closes) ::store<V>(sums + group * count + position, sum);
            });
        }
    }

    /// Gradients of x and y (each may be null) from those of the sums. Like x and y, they are [blades, plane].
    GW_DEVICE static void backward(const T* x, const T* y, const T* sums, T* grad_x, T* grad_y, i64 count, i64 plane, i32 gated) {
        for (i64 position = thread_index() * V; position < count; position += thread_count() * V) {
            Element a, b, da = {}, db = {};
            Product::load(a, x + position, plane);
            Product::load(b, y + position, plane);
            Stored stored;
            stored.read(sums + position, count);
            Slopes gates;
            if (gated) gates = Slopes(a, b);
            C g[V];
            each<Order::COUNT>([&](auto term) {
                constexpr auto t = Order::list.at[decltype(term)::value];
                constexpr int left = t.left, right = t.right, sign = t.sign, group = t.group;
                if constexpr (t.opens && READS_AHEAD) {
#pragma unroll
                    for (int v = 0; v < V; ++v) g[v] = widen(stored.at[group].at[v]);
                } else if constexpr (t.opens) {
                    ::load<V>(sums + group * count + position, g);
                }
#pragma unroll
                for (int v = 0; v < V; ++v) {
                    const C signed_g = sign > 0 ? g[v] : -g[v];
                    da.at[left][v] += signed_g * b.at[right][v];
                    db.at[right][v] += signed_g * a.at[left][v];
                }
            });
            if (gated) {
                // The gradients are linear in g, so the gates are applied once, at the end.
                gates.apply(da);
                gates.apply(db);
                Product::gate_backward(a, gates.a, da);
                Product::gate_backward(b, gates.b, db);
            }
            if (grad_x != nullptr) Product::store(grad_x + position, da, plane);
            if (grad_y != nullptr) Product::store(grad_y + position, db, plane);
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

/// V is 1, or as many positions as registers allow for 8 blades. From architecture 10.0 on the compiler pairs f16 positions, and
/// four of those take too many registers.
#define GW_FCGP_8(P, Q, R)              \
    GW_FCGP(P, Q, R, float, f32, 1, 1)  \
    GW_FCGP(P, Q, R, float, f32, 4, 2)  \
    GW_FCGP(P, Q, R, double, f64, 1, 1) \
    GW_FCGP(P, Q, R, bf16, bf16, 1, 1)  \
    GW_FCGP(P, Q, R, bf16, bf16, 4, 2)  \
    GW_FCGP(P, Q, R, f16, f16, 1, 1)    \
    GW_FCGP(P, Q, R, f16, f16, 2, 2)
