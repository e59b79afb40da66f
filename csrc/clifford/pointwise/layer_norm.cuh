// Layer norms of multivectors: a·x / (mean over features of ‖x‖ + 1e-6), with a norm of the whole multivector. x is
// [blades, rows, features], a is [features], or null for a gain of 1; `metric` is the diagonal of the quadratic form.
//
// The norm N has, for arithmetic on C: `norm(q)` for the quadratic form q, and `slope(q, norm)`, such that the derivative of the norm by
// x_i is that times metric_i·x_i.
//
// blockDim.x threads share a row, blockDim.y rows share a block (gradewise/group.cuh).
#pragma once

#include "gradewise/chunk.cuh"
#include "clifford/pointwise/norms.cuh"
#include "gradewise/group.cuh"

/// (q² + 1e-16)^¼ (arXiv:2305.11141).
struct SmoothNorm {
    template <class C>
    GW_DEVICE static C norm(C q) {
        return smooth_norm<Exact>(q);
    }
    template <class C>
    GW_DEVICE static C slope(C q, C norm) {
        return smooth_norm_slope<Exact>(q, norm);
    }
};

/// The same of max(q, LEAST_SQUARE), whose derivative is 0 below (arXiv:2402.14730). Comparisons, so that NaN stays NaN.
struct ClampedNorm {
    template <class C>
    GW_DEVICE static C norm(C q) {
        return smooth_norm<Exact>(q < C(LEAST_SQUARE) ? C(LEAST_SQUARE) : q);
    }
    template <class C>
    GW_DEVICE static C slope(C q, C norm) {
        return q < C(LEAST_SQUARE) ? C(0) : smooth_norm_slope<Exact>(q, norm);
    }
};

/// The gain of a feature.
template <bool HAS_GAIN, class T>
GW_DEVICE Compute<T> gain_at(const T* a, i64 feature) {
    if constexpr (HAS_GAIN) {
        return widen(a[feature]);
    } else {
        return Compute<T>(1);
    }
}

template <class N, bool HAS_GAIN, class T>
GW_DEVICE void layer_norm(const T* x, const T* a, T* out, const i32* metric, i64 blades, i64 rows, i64 features) {
    using C = Compute<T>;
    __shared__ C scratch[32];
    const i64 plane = rows * features;
    each_row(rows, [&](i64 row, bool there) {
        const i64 line = row * features;
        C norms = 0;
        for (i64 i = threadIdx.x; there && i < features; i += blockDim.x) {
            norms += N::norm(quadratic(x + line + i, metric, i64(0), blades, plane));
        }
        norms = row_sum(norms, scratch);
        if (!there) return;
        const C scale = C(1) / (norms / C(features) + C(NORM_EPSILON));
        for (i64 i = threadIdx.x; i < features; i += blockDim.x) {
            const C gain = gain_at<HAS_GAIN>(a, i) * scale;
            for (i64 blade = 0; blade < blades; ++blade) {
                const i64 at = blade * plane + line + i;
                out[at] = narrow<T>(widen(x[at]) * gain);
            }
        }
    });
}

/// Writes the gradient of x, and with a gain 1/(mean norm + ε) of each row, which the gradient of a takes.
template <class N, bool HAS_GAIN, class T>
GW_DEVICE void layer_norm_backward(const T* x, const T* a, const T* grad, T* out, Compute<T>* inverse_mean,
                                      const i32* metric, i64 blades, i64 rows, i64 features) {
    using C = Compute<T>;
    __shared__ C scratch[32];
    const i64 plane = rows * features;
    each_row(rows, [&](i64 row, bool there) {
        const i64 line = row * features;
        C norms = 0, dots = 0;
        for (i64 i = threadIdx.x; there && i < features; i += blockDim.x) {
            const C along = dot(x + line + i, grad + line + i, i64(0), blades, plane);
            norms += N::norm(quadratic(x + line + i, metric, i64(0), blades, plane));
            dots += gain_at<HAS_GAIN>(a, i) * along;
        }
        norms = row_sum(norms, scratch);
        dots = row_sum(dots, scratch);
        if (!there) return;
        const C scale = C(1) / (norms / C(features) + C(NORM_EPSILON));
        if (HAS_GAIN && threadIdx.x == 0) inverse_mean[row] = scale;
        const C norm_grad = -dots * scale * scale / C(features);
        for (i64 i = threadIdx.x; i < features; i += blockDim.x) {
            const C q = quadratic(x + line + i, metric, i64(0), blades, plane);
            const C form_grad = norm_grad * N::slope(q, N::norm(q)), gain = gain_at<HAS_GAIN>(a, i) * scale;
            for (i64 blade = 0; blade < blades; ++blade) {
                const i64 at = blade * plane + line + i;
                out[at] = narrow<T>(widen(grad[at]) * gain + form_grad * C(metric[blade]) * widen(x[at]));
            }
        }
    });
}
