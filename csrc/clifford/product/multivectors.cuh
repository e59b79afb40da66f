// Multivectors in registers: weighted products, their gradients, and gates.
#pragma once

#include "algebra/unroll.cuh"
#include "gradewise/math.cuh"

/// V multivectors at a time, with arithmetic on C. T is the storage type, which sets the precision of gates.
///
/// A gate Φ(x_0)·x multiplies all blades by one number. A product therefore applies both operands' gates once, to either operand or
/// to the result; its gradients apply them to the gradient of the result, and take the operands without gates.
template <class A, class C, int V, class T = C>
struct Multivectors {
    static constexpr int BLADES = A::BLADES, PATHS = A::PATHS;
    static constexpr auto tables = A::make();

    struct Element {
        C at[BLADES][V];
    };

    /// Reads V adjacent features of every blade, `plane` elements apart.
    template <class S>
    GW_DEVICE static void load(Element& element, const S* source, i64 plane) {
#pragma unroll
        for (int blade = 0; blade < BLADES; ++blade, source += plane) ::load<V>(source, element.at[blade]);
        // Keeps the loads of two elements apart: interleaved, their addresses take more registers than a thread has.
        asm volatile("" ::: "memory");
    }

    template <class S>
    GW_DEVICE static void store(S* target, const Element& element, i64 plane) {
#pragma unroll
        for (int blade = 0; blade < BLADES; ++blade, target += plane) ::store<V>(target, element.at[blade]);
    }

    /// Adds the squares of each grade's blades to `squares`.
    template <int COUNT>
    GW_DEVICE static void add_squares(const Element& x, C (&squares)[COUNT]) {
        each<BLADES>([&](auto blade) {
            constexpr int N = decltype(blade)::value, grade = tables.grade[N];
#pragma unroll
            for (int v = 0; v < V; ++v) squares[grade] += x.at[N][v] * x.at[N][v];
        });
    }

    /// out = x with each grade multiplied by its factor; out may be x.
    template <int COUNT>
    GW_DEVICE static void scale_grades(const Element& x, const C (&factor)[COUNT], Element& out) {
        each<BLADES>([&](auto blade) {
            constexpr int N = decltype(blade)::value, grade = tables.grade[N];
#pragma unroll
            for (int v = 0; v < V; ++v) out.at[N][v] = x.at[N][v] * factor[grade];
        });
    }

    /// Weights, or sums of their gradients, in registers.
    struct Weights {
        C at[PATHS][V];

        GW_DEVICE C operator()(int path, int v) const { return at[path][v]; }
        GW_DEVICE void add(int path, int v, C value) { at[path][v] += value; }
    };

    /// The same in shared memory, with values `STRIDE` apart.
    template <int STRIDE>
    struct Shared {
        C* first;

        GW_DEVICE C& at(int path, int v) const { return first[(path * V + v) * STRIDE]; }
        GW_DEVICE C operator()(int path, int v) const { return at(path, v); }
        GW_DEVICE void add(int path, int v, C value) { at(path, v) += value; }
    };

    /// out = Σ w·x·y. `weight(path, v)` is the weight of a path.
    template <class W>
    GW_DEVICE static void multiply(const Element& x, const Element& y, const W& weight, Element& out) {
#pragma unroll
        for (int blade = 0; blade < BLADES; ++blade) {
#pragma unroll
            for (int v = 0; v < V; ++v) out.at[blade][v] = 0;
        }
        using Order = Pivoted<A, Purpose::PRODUCT>;
        C shared[V];
        each<Order::COUNT>([&](auto term) {
            constexpr int N = decltype(term)::value;
            constexpr auto t = Order::list.at[N];
            constexpr int left = t.left, right = t.right, result = t.result, path = t.path, sign = t.sign;
            constexpr auto pivot = t.pivot;
            constexpr bool opens = t.opens, closes = t.closes;
#pragma unroll
            for (int v = 0; v < V; ++v) {
                const C a = x.at[left][v], b = y.at[right][v];
                if constexpr (pivot == Order::RESULT) {
                    shared[v] = opens ? (sign > 0 ? a * b : -(a * b)) : (sign > 0 ? shared[v] + a * b : shared[v] - a * b);
                    if constexpr (closes) out.at[result][v] += shared[v] * weight(path, v);
                } else {
                    if constexpr (opens) shared[v] = weight(path, v) * (pivot == Order::LEFT ? a : b);
                    const C product = shared[v] * (pivot == Order::LEFT ? b : a);
                    out.at[result][v] = sign > 0 ? out.at[result][v] + product : out.at[result][v] - product;
                }
            }
        });
    }

    /// Gradients of the operands of `multiply` from the gradient g of its result; those of the weights are added to `sums`.
    template <class W>
    GW_DEVICE static void differentiate(const Element& a, const Element& b, const Element& g, const W& weight, Element& da,
                                        Element& db, W& sums) {
#pragma unroll
        for (int blade = 0; blade < BLADES; ++blade) {
#pragma unroll
            for (int v = 0; v < V; ++v) da.at[blade][v] = db.at[blade][v] = 0;
        }
        using Order = Pivoted<A, Purpose::GRADIENT>;
        C sum[V], weighted[V];
        each<Order::COUNT>([&](auto term) {
            constexpr int N = decltype(term)::value;
            constexpr auto t = Order::list.at[N];
            constexpr int left = t.left, right = t.right, result = t.result, path = t.path, sign = t.sign;
            constexpr auto pivot = t.pivot;
            constexpr bool opens = t.opens, closes = t.closes;
            auto add = [](C& target, C value) { target = sign > 0 ? target + value : target - value; };
#pragma unroll
            for (int v = 0; v < V; ++v) {
                // `own` is the operand on the pivot side; `one` and `two` are the other two sides.
                const C own = pivot == Order::LEFT ? a.at[left][v] : pivot == Order::RIGHT ? b.at[right][v] : g.at[result][v];
                const C one = pivot == Order::RESULT ? a.at[left][v] : g.at[result][v];
                const C two = pivot == Order::RIGHT ? a.at[left][v] : b.at[right][v];
                if constexpr (opens) {
                    sum[v] = sign > 0 ? one * two : -(one * two);
                    weighted[v] = weight(path, v) * own;
                } else {
                    add(sum[v], one * two);
                }
                if constexpr (pivot == Order::RESULT) {
                    add(da.at[left][v], weighted[v] * two);
                    add(db.at[right][v], weighted[v] * one);
                } else {
                    add((pivot == Order::LEFT ? db.at[right][v] : da.at[left][v]), weighted[v] * one);
                    if constexpr (closes) {
                        (pivot == Order::LEFT ? da.at[left][v] : db.at[right][v]) += weight(path, v) * sum[v];
                    }
                }
                if constexpr (closes) sums.add(path, v, sum[v] * own);
            }
        });
    }

    GW_DEVICE static Normal<C> density(C x) {
        if constexpr (sizeof(T) == 2) {
            return coarse_normal(x);
        } else {
            return normal(x);
        }
    }

    /// The factor Φ(a_0)·Φ(b_0) of gate(a)·gate(b).
    struct Gates {
        C both[V];

        Gates() = default;
        GW_DEVICE Gates(const Element& a, const Element& b) {
#pragma unroll
            for (int v = 0; v < V; ++v) both[v] = density(a.at[0][v]).cdf * density(b.at[0][v]).cdf;
        }

        /// Applies the factor to the product or to one operand.
        GW_DEVICE void apply(Element& element) const {
#pragma unroll
            for (int blade = 0; blade < BLADES; ++blade) {
#pragma unroll
                for (int v = 0; v < V; ++v) element.at[blade][v] *= both[v];
            }
        }
    };

    /// φ/Φ at a scalar part; 0 far out on the left, where Φ is 0.
    GW_DEVICE static C slope(const Normal<C>& at) { return at.cdf > C(0) ? quotient(at.pdf, at.cdf) : C(0); }

    /// The factor, and φ/Φ at either scalar part for the gradients.
    struct Slopes : Gates {
        C a[V], b[V];

        Slopes() = default;
        GW_DEVICE Slopes(const Element& x, const Element& y) {
#pragma unroll
            for (int v = 0; v < V; ++v) {
                const Normal<C> at_x = density(x.at[0][v]), at_y = density(y.at[0][v]);
                this->both[v] = at_x.cdf * at_y.cdf;
                a[v] = slope(at_x);
                b[v] = slope(at_y);
            }
        }
    };

    /// Adds the contribution of the gate's own argument, φ·Σ x·(gradient of gate(x)), to the gradient of x. Before: `gradient` is
    /// Φ·(gradient of gate(x)).
    GW_DEVICE static void gate_backward(const Element& x, const C (&slope)[V], Element& gradient) {
#pragma unroll
        for (int v = 0; v < V; ++v) {
            C dot = 0;
#pragma unroll
            for (int blade = 0; blade < BLADES; ++blade) dot += x.at[blade][v] * gradient.at[blade][v];
            gradient.at[0][v] += slope[v] * dot;
        }
    }

    /// The same, computing φ/Φ here.
    GW_DEVICE static void gate_backward(const Element& x, Element& gradient) {
        C slopes[V];
#pragma unroll
        for (int v = 0; v < V; ++v) slopes[v] = slope(density(x.at[0][v]));
        gate_backward(x, slopes, gradient);
    }
};
