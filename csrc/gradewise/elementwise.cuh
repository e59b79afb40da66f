// Functions of one or several elements at the same position of broadcast views, into adjacent elements.
#pragma once

#include "gradewise/strided.cuh"

/// Threads per block of these kernels.
constexpr i64 ELEMENTWISE_THREADS = 256;

/// Elements per thread and step: 16 bytes, so that enough loads are in flight.
template <class T>
constexpr int ELEMENTWISE_PACK = 16 / sizeof(T);

/// Loads W elements of each operand, A adjacent ones per access.
template <int A, int N, class S, int W>
GW_DEVICE void load_packs(const Axes& axes, const Strides* const (&strides)[N], const View<const S>* const (&in)[N], i64 first,
                          Compute<S> (&values)[N][W]) {
#pragma unroll
    for (int at = 0; at < W; at += A) {
        i64 offset[N];
        locate(axes, strides, first + at, offset);
#pragma unroll
        for (int n = 0; n < N; ++n) {
            const S* source = in[n]->data + offset[n];
            Compute<S> pack[A];
            if (axes.rank > 0 && strides[n]->at[0] == 1) {
                load(source, pack);
            } else {
                const Compute<S> value = widen(*source);
#pragma unroll
                for (int k = 0; k < A; ++k) pack[k] = value;
            }
#pragma unroll
            for (int k = 0; k < A; ++k) values[n][at + k] = pack[k];
        }
    }
}

/// out[i] = f(in[0][i], in[1][i], …). `f(values, results)` computes `ELEMENTWISE_PACK<S>` results at once. `out` may be one of the
/// operands.
///
/// `wide` is the number of elements per vector access: a pack, half a pack for packs of eight, or 0 for scalar access. A nonzero
/// `wide` requires that `out` and every operand are aligned to that many elements, that the innermost stride of each operand is 0
/// or 1, and, if there are several axes, that the innermost size and the other strides of operands with innermost stride 1 are
/// multiples of it.
template <int N, class S, class T, class F>
GW_DEVICE void elementwise(
    T* out, i64 elements, int wide, const Axes& axes, const View<const S>* const (&in)[N], const F& f) {
    constexpr int W = ELEMENTWISE_PACK<S>;
    const Strides* strides[N];
#pragma unroll
    for (int n = 0; n < N; ++n) strides[n] = &in[n]->strides;
    // Scalar access: adjacent threads take adjacent elements.
    const i64 step = wide ? 1 : ELEMENTWISE_THREADS;
    const i64 pieces = wide ? (elements + W - 1) / W : (elements + W * ELEMENTWISE_THREADS - 1) / (W * ELEMENTWISE_THREADS) * ELEMENTWISE_THREADS;
    for (i64 piece = thread_index(); piece < pieces; piece += thread_count()) {
        const i64 first = wide ? piece * W : piece / ELEMENTWISE_THREADS * (W * ELEMENTWISE_THREADS) + piece % ELEMENTWISE_THREADS;
        const bool packed = wide && first + W <= elements;
        Compute<S> values[N][W];
        if (packed) {
            if (W < 8 || wide == W) {
                load_packs<W>(axes, strides, in, first, values);
            } else {
                load_packs<W / 2>(axes, strides, in, first, values);
            }
        } else {
#pragma unroll
            for (int k = 0; k < W; ++k) {
                const i64 position = first + k * step;
                i64 offset[N];
                locate(axes, strides, position < elements ? position : 0, offset);
#pragma unroll
                for (int n = 0; n < N; ++n) values[n][k] = widen(in[n]->data[offset[n]]);
            }
        }
        Pack<T, W> results;
        f(values, results);
        if (packed && (W < 8 || wide == W)) {
            *reinterpret_cast<Pack<T, W>*>(out + first) = results;
        } else if (packed) {
#pragma unroll
            for (int at = 0; at < W; at += W / 2) {
                Pack<T, W / 2> half;
#pragma unroll
                for (int k = 0; k < W / 2; ++k) half.at[k] = results.at[at + k];
                *reinterpret_cast<Pack<T, W / 2>*>(out + first + at) = half;
            }
        } else {
#pragma unroll
            for (int k = 0; k < W; ++k) {
                if (first + k * step < elements) out[first + k * step] = results.at[k];
            }
        }
    }
}
