// Normalisation of the vectors and scalars of feature planes together: crates/kernels/src/ops/clifford/transformer/joint_norm/mod.rs has the
// definition. x is [scalars + planes·channels, rows]; rows are adjacent.
//
// A block works on TILE rows of one set of channels, one for each lane; its warps take the channels in turn, and share sums through shared
// memory, in a fixed order.
#include "gradewise/integers.cuh"
#include "gradewise/math.cuh"
#include "clifford/transformer/norm_launch.cuh"

using joint_norm_tile::MOST_PLANES, joint_norm_tile::TILE, joint_norm_tile::WARPS;

/// Loads of an array that a thread has under way.
constexpr int DEPTH = 4;

/// Of each set: line (g·channels + c)·heads + h of a plane, and so for scalars.
struct JointSets {
    i64 rows, groups, heads, channels, scalars;
    double epsilon;
    i32 planes, unused;
    /// The scalar part of reverse(blade)·blade, of each plane.
    signed char factor[MOST_PLANES];
};

/// A set of channels, in a column of planes.
struct Lines {
    i64 first, step, plane, scalar_first, scalars;

    GW_DEVICE Lines(const JointSets& sets, i64 set) {
        const i64 g = set / sets.heads, h = set - g * sets.heads;
        first = g * sets.channels * sets.heads + h;
        scalar_first = g * sets.scalars * sets.heads + h;
        step = sets.heads;
        plane = sets.groups * sets.heads * sets.channels;
        scalars = sets.groups * sets.heads * sets.scalars;
    }
    /// The number of a channel among those of a plane, and of a scalar.
    GW_DEVICE i64 channel(i64 c) const { return first + c * step; }
    GW_DEVICE i64 scalar(i64 s) const { return scalar_first + s * step; }
    GW_DEVICE i64 line(int p, i64 c) const { return scalars + p * plane + channel(c); }
};

/// Calls f(plane, values of the N arrays there) for the planes of a channel, DEPTH of them loaded at a time.
template <int N, class T, class F>
GW_DEVICE void each_plane(const T* const (&x)[N], const JointSets& sets, const Lines& lines, i64 channel, F f) {
    for (int base = 0; base < sets.planes; base += DEPTH) {
        Compute<T> values[DEPTH][N];
#pragma unroll
        for (int k = 0; k < DEPTH; ++k) {
            const i64 at = lines.line(base + k < sets.planes ? base + k : 0, channel) * sets.rows;
#pragma unroll
            for (int n = 0; n < N; ++n) values[k][n] = widen(x[n][at]);
        }
#pragma unroll
        for (int k = 0; k < DEPTH; ++k) {
            if (base + k < sets.planes) f(base + k, values[k]);
        }
    }
}

template <class C>
GW_DEVICE C shared_sum(C value, C (&scratch)[WARPS][TILE]) {
    __syncthreads();  // The scratch may still be in use by the previous call.
    scratch[threadIdx.y][threadIdx.x] = value;
    __syncthreads();
    C sum = scratch[0][threadIdx.x];
#pragma unroll
    for (int warp = 1; warp < WARPS; ++warp) sum += scratch[warp][threadIdx.x];
    return sum;
}

/// 1/sqrt(mean of the squares of a set + epsilon) of this thread's row, at which x points.
template <class T>
GW_DEVICE Compute<T> inverse_root(const T* x, const JointSets& sets, const Lines& lines, Compute<T> (&scratch)[WARPS][TILE]) {
    using C = Compute<T>;
    C total = 0;
    for (i64 c = threadIdx.y; c < sets.channels; c += WARPS) {
        C form = 0;
        const T* const arrays[1] = {x};
        each_plane(arrays, sets, lines, c, [&](int p, const C(&value)[1]) { form += C(sets.factor[p]) * value[0] * value[0]; });
        total += form < 0 ? -form : form;
    }
#pragma unroll 4
    for (i64 s = threadIdx.y; s < sets.scalars; s += WARPS) {
        const C value = widen(x[lines.scalar(s) * sets.rows]);
        total += value * value;
    }
    return C(1) / root(shared_sum(total, scratch) / C(sets.channels + sets.scalars) + C(sets.epsilon));
}

/// `gains` has one for each channel of a plane, `scalar_gains` for each scalar; either may be null.
template <class T>
GW_DEVICE void joint_norm(const JointSets& sets, const T* x, const T* gains, const T* scalar_gains, T* out) {
    using C = Compute<T>;
    __shared__ C scratch[WARPS][TILE];
    for (i64 set = blockIdx.y; set < sets.groups * sets.heads; set += gridDim.y) {
        const Lines lines(sets, set);
        for (i64 tile = blockIdx.x; tile * TILE < sets.rows; tile += gridDim.x) {
            const i64 row = tile * TILE + threadIdx.x;
            const bool there = row < sets.rows;
            // Lanes past the end read the last row, and write nothing.
            const T* const own = x + (there ? row : sets.rows - 1);
            const C scale = inverse_root(own, sets, lines, scratch);
            if (!there) continue;
            for (i64 c = threadIdx.y; c < sets.channels; c += WARPS) {
                const C factor = gains == nullptr ? scale : scale * widen(gains[lines.channel(c)]);
                const T* const arrays[1] = {own};
                each_plane(arrays, sets, lines, c, [&](int p, const C(&value)[1]) {
                    out[lines.line(p, c) * sets.rows + row] = narrow<T>(value[0] * factor);
                });
            }
#pragma unroll 4
            for (i64 s = threadIdx.y; s < sets.scalars; s += WARPS) {
                const i64 line = lines.scalar(s);
                const C factor = scalar_gains == nullptr ? scale : scale * widen(scalar_gains[line]);
                out[line * sets.rows + row] = narrow<T>(widen(own[line * sets.rows]) * factor);
            }
        }
    }
}

/// The gradient of x, and for each block along x partial sums over its rows of the gains' gradients, [gridDim.x, channels of a plane +
/// scalars]; null without gains. With r = 1/sqrt(total/n + ε) and D = Σ gain·grad·x over the set, the gradient of an element is
/// r·gain·grad − r³·D/n·s·x, where s is sign(q)·factor for vectors of the square q, and 1 for scalars.
template <class T>
GW_DEVICE void joint_norm_backward(const JointSets& sets, const T* x, const T* gains, const T* scalar_gains, const T* grad, T* grad_x,
                                   Compute<T>* partial) {
    using C = Compute<T>;
    __shared__ C scratch[WARPS][TILE];
    for (i64 set = blockIdx.y; set < sets.groups * sets.heads; set += gridDim.y) {
        const Lines lines(sets, set);
        C* const own_partial = partial == nullptr ? nullptr : partial + blockIdx.x * (lines.plane + lines.scalars);
        const auto add = [&](i64 place, C value, bool is_first) {
            for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(0xffffffffu, value, offset);
            if (threadIdx.x == 0) own_partial[place] = is_first ? value : own_partial[place] + value;
        };
        bool is_first = true;
        for (i64 tile = blockIdx.x; tile * TILE < sets.rows; tile += gridDim.x, is_first = false) {
            const i64 row = tile * TILE + threadIdx.x;
            const bool there = row < sets.rows;
            const i64 at = there ? row : sets.rows - 1;
            const T* const own = x + at;
            const T* const upstream = grad + at;
            const T* const both[2] = {own, upstream};
            const C scale = inverse_root(own, sets, lines, scratch);
            C along = 0;
            for (i64 c = threadIdx.y; c < sets.channels; c += WARPS) {
                C dot = 0;
                each_plane(both, sets, lines, c, [&](int, const C(&value)[2]) { dot += value[0] * value[1]; });
                along += gains == nullptr ? dot : dot * widen(gains[lines.channel(c)]);
            }
#pragma unroll 4
            for (i64 s = threadIdx.y; s < sets.scalars; s += WARPS) {
                const i64 line = lines.scalar(s);
                const C dot = widen(own[line * sets.rows]) * widen(upstream[line * sets.rows]);
                along += scalar_gains == nullptr ? dot : dot * widen(scalar_gains[line]);
            }
            const C pull = shared_sum(along, scratch) * scale * scale * scale / C(sets.channels + sets.scalars);
            for (i64 c = threadIdx.y; c < sets.channels; c += WARPS) {
                C form = 0, dot = 0;
                each_plane(both, sets, lines, c, [&](int p, const C(&value)[2]) {
                    form += C(sets.factor[p]) * value[0] * value[0];
                    dot += value[0] * value[1];
                });
                const C factor = gains == nullptr ? scale : scale * widen(gains[lines.channel(c)]);
                const C sign = form > 0 ? pull : form < 0 ? -pull : C(0);
                each_plane(both, sets, lines, c, [&](int p, const C(&value)[2]) {
                    const C result = factor * value[1] - sign * C(sets.factor[p]) * value[0];
                    if (there) grad_x[lines.line(p, c) * sets.rows + row] = narrow<T>(result);
                });
                if (partial != nullptr) add(lines.channel(c), there ? dot * scale : C(0), is_first);
            }
            for (i64 s = threadIdx.y; s < sets.scalars; s += WARPS) {
                const i64 line = lines.scalar(s);
                const C value = widen(own[line * sets.rows]), through = widen(upstream[line * sets.rows]);
                const C factor = scalar_gains == nullptr ? scale : scale * widen(scalar_gains[line]);
                if (there) grad_x[line * sets.rows + row] = narrow<T>(factor * through - pull * value);
                if (partial != nullptr) add(lines.plane + line, there ? value * through * scale : C(0), is_first);
            }
        }
    }
}

#define GW_KERNELS(T, NAME)                                                                                            \
    extern "C" __global__ void __launch_bounds__(TILE * WARPS) gw_joint_norm_fwd_##NAME(                               \
        const __grid_constant__ JointSets sets, const T* x, const T* gains, const T* scalar_gains, T* out) {           \
        begin_kernel();                                                                                                \
        joint_norm<T>(sets, x, gains, scalar_gains, out);                                                              \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(TILE * WARPS) gw_joint_norm_bwd_##NAME(                               \
        const __grid_constant__ JointSets sets, const T* x, const T* gains, const T* scalar_gains, const T* grad,      \
        T* grad_x, Compute<T>* partial) {                                                                              \
        begin_kernel();                                                                                                \
        joint_norm_backward<T>(sets, x, gains, scalar_gains, grad, grad_x, partial);                                   \
    }
GW_FOR_DTYPES(GW_KERNELS)
