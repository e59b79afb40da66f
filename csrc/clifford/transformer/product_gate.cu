// Gated linear units of vectors and scalars, without their linear map: crates/kernels/src/ops/clifford/transformer/product_gate/mod.rs has the
// definition. x is [2·scalars + planes·3·channels, rows], the result [scalars + planes·channels, rows]; rows are adjacent. A thread computes a
// row of one channel or scalar.
#include "clifford/transformer/activation.cuh"
#include "clifford/transformer/planes_launch.cuh"
#include "gradewise/integers.cuh"

using feature_planes::MOST_PLANES;
constexpr int DEPTH = 4;

struct GateSizes {
    i64 rows, channels, scalars;
    i32 planes, gate, scalar_gate, unused;
    /// The scalar part of reverse(blade)·blade, of each plane.
    signed char factor[MOST_PLANES];

    /// The line of part `part` (0: what is gated, 1 and 2: the factors of the product) of a channel of x, and of a channel of the result.
    GW_DEVICE i64 in(int p, int part, i64 channel) const { return 2 * scalars + (p * 3 + part) * channels + channel; }
    GW_DEVICE i64 out(int p, i64 channel) const { return scalars + p * channels + channel; }
};

/// Calls f(scalar, or channel after the scalars; row). Rows go along the blocks, whose second index counts the former.
template <class F>
GW_DEVICE void each_unit(const GateSizes& sizes, F f) {
    for (i64 unit = blockIdx.y; unit < sizes.scalars + sizes.channels; unit += gridDim.y) {
        for (i64 row = thread_index(); row < sizes.rows; row += thread_count()) f(unit, row);
    }
}

template <class T>
GW_DEVICE void product_gate(const GateSizes& sizes, const T* x, T* out) {
    using C = Compute<T>;
    const i64 rows = sizes.rows;
    each_unit(sizes, [&](i64 unit, i64 row) {
        if (unit < sizes.scalars) {
            const C value = widen(x[unit * rows + row]), gate = widen(x[(sizes.scalars + unit) * rows + row]);
            out[unit * rows + row] = narrow<T>(activation(sizes.scalar_gate, gate).value * value);
            return;
        }
        const i64 channel = unit - sizes.scalars;
        C form = 0;
#pragma unroll DEPTH
        for (int p = 0; p < sizes.planes; ++p) {
            const C left = widen(x[sizes.in(p, 1, channel) * rows + row]), right = widen(x[sizes.in(p, 2, channel) * rows + row]);
            form += C(sizes.factor[p]) * left * right;
        }
        const C gate = activation(sizes.gate, C(0.5) * form).value;
#pragma unroll DEPTH
        for (int p = 0; p < sizes.planes; ++p) {
            out[sizes.out(p, channel) * rows + row] = narrow<T>(gate * widen(x[sizes.in(p, 0, channel) * rows + row]));
        }
    });
}

template <class T>
GW_DEVICE void product_gate_backward(const GateSizes& sizes, const T* x, const T* grad, T* grad_x) {
    using C = Compute<T>;
    const i64 rows = sizes.rows;
    each_unit(sizes, [&](i64 unit, i64 row) {
        if (unit < sizes.scalars) {
            const C value = widen(x[unit * rows + row]), upstream = widen(grad[unit * rows + row]);
            const Jet<C> jet = activation(sizes.scalar_gate, widen(x[(sizes.scalars + unit) * rows + row]));
            grad_x[unit * rows + row] = narrow<T>(jet.value * upstream);
            grad_x[(sizes.scalars + unit) * rows + row] = narrow<T>(jet.slope * value * upstream);
            return;
        }
        const i64 channel = unit - sizes.scalars;
        C form = 0, along = 0;
#pragma unroll DEPTH
        for (int p = 0; p < sizes.planes; ++p) {
            const C value = widen(x[sizes.in(p, 0, channel) * rows + row]), upstream = widen(grad[sizes.out(p, channel) * rows + row]);
            const C left = widen(x[sizes.in(p, 1, channel) * rows + row]), right = widen(x[sizes.in(p, 2, channel) * rows + row]);
            form += C(sizes.factor[p]) * left * right;
            along += value * upstream;
        }
        const Jet<C> jet = activation(sizes.gate, C(0.5) * form);
        const C of_form = C(0.5) * jet.slope * along;
#pragma unroll DEPTH
        for (int p = 0; p < sizes.planes; ++p) {
            const C upstream = widen(grad[sizes.out(p, channel) * rows + row]), factor = of_form * C(sizes.factor[p]);
            const C left = widen(x[sizes.in(p, 1, channel) * rows + row]), right = widen(x[sizes.in(p, 2, channel) * rows + row]);
            grad_x[sizes.in(p, 0, channel) * rows + row] = narrow<T>(jet.value * upstream);
            grad_x[sizes.in(p, 1, channel) * rows + row] = narrow<T>(factor * right);
            grad_x[sizes.in(p, 2, channel) * rows + row] = narrow<T>(factor * left);
        }
    });
}

#define GW_KERNELS(T, NAME)                                                                                      \
    extern "C" __global__ void __launch_bounds__(256) gw_product_gate_fwd_##NAME(                                \
        const __grid_constant__ GateSizes sizes, const T* x, T* out) {                                           \
        begin_kernel();                                                                                          \
        product_gate<T>(sizes, x, out);                                                                          \
    }                                                                                                            \
    extern "C" __global__ void __launch_bounds__(256) gw_product_gate_bwd_##NAME(                                \
        const __grid_constant__ GateSizes sizes, const T* x, const T* grad, T* grad_x) {                         \
        begin_kernel();                                                                                          \
        product_gate_backward<T>(sizes, x, grad, grad_x);                                                        \
    }
GW_FOR_DTYPES(GW_KERNELS)
