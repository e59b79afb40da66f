// Normalisation of the vectors and scalars of feature planes together: crates/kernels/src/ops/clifford/transformer/joint_norm/mod.rs has the
// definition. x is [scalars + planes·channels, rows]; rows are adjacent.
//
// A warp works on TILE rows of one set of channels, one for each lane. The warps of a block share a set, take its channels in turn and add
// up sums through shared memory, in a fixed order; or, where sets are short, such as heads of an attention, each has a set of its own.
#include "gradewise/integers.cuh"
#include "gradewise/math.cuh"
#include "clifford/transformer/norm_launch.cuh"
#include "clifford/transformer/planes_launch.cuh"

using feature_planes::MOST_PLANES, joint_norm_tile::TILE, joint_norm_tile::WARPS;

/// Planes that a thread loads at a time where their number is not known when this is compiled.
constexpr int DEPTH = 4;

/// Channels and scalars that a thread loads at a time, with B planes or with any number (B = 0).
template <int B>
constexpr int LINES = B > 0 ? 4 : 1;

/// Of each set: line (g·channels + c)·heads + h of a plane, and so for scalars.
struct JointSets {
    i64 rows, groups, heads, channels, scalars;
    double epsilon;
    i32 planes, unused;
    /// The scalar part of reverse(blade)·blade, of each plane.
    float factor[MOST_PLANES];
};

/// A set of channels: the numbers of its first vector and scalar among those of a plane, and from one to the next; and where their elements
/// are from those of the first line, in elements.
struct Lines {
    i64 first, first_scalar, next, plane_lines, scalar_lines;
    i64 vectors, scalars, channel, plane;

    GW_DEVICE Lines(const JointSets& sets, i64 set) {
        const i64 g = set / sets.heads, h = set - g * sets.heads;
        first = g * sets.channels * sets.heads + h;
        first_scalar = g * sets.scalars * sets.heads + h;
        next = sets.heads;
        plane_lines = sets.groups * sets.heads * sets.channels;
        scalar_lines = sets.groups * sets.heads * sets.scalars;
        vectors = (scalar_lines + first) * sets.rows;
        scalars = first_scalar * sets.rows;
        channel = next * sets.rows;
        plane = plane_lines * sets.rows;
    }
};

/// Calls f(plane, values of the N arrays there) for the planes of the channel at `at`: B of them, or as many as `sets` has (B = 0).
template <int B, int N, class T, class F>
GW_DEVICE void each_plane(const T* const (&x)[N], const JointSets& sets, const Lines& lines, i64 at, F f) {
    constexpr int STEP = B > 0 ? B : DEPTH;
    const int planes = B > 0 ? B : sets.planes;
    for (int base = 0; base < planes; base += STEP) {
        Compute<T> values[STEP][N];
#pragma unroll
        for (int k = 0; k < STEP; ++k) {
            const i64 place = at + (B > 0 || base + k < planes ? base + k : 0) * lines.plane;
#pragma unroll
            for (int n = 0; n < N; ++n) values[k][n] = widen(x[n][place]);
        }
#pragma unroll
        for (int k = 0; k < STEP; ++k) {
            if (B > 0 || base + k < planes) f(base + k, values[k]);
        }
    }
}

/// The warps of a block that share a set, SPAN of them, and this one's number among them.
template <int SPAN>
struct Team {
    static_assert(SPAN == 1 || SPAN == WARPS, "a set has a warp or all of them");
    static constexpr int SETS = WARPS / SPAN;

    static GW_DEVICE i64 first_set() { return SPAN == 1 ? blockIdx.y * i64(WARPS) + threadIdx.y : blockIdx.y; }
    static GW_DEVICE int warp() { return SPAN == 1 ? 0 : threadIdx.y; }

    /// Calls f(the number of a line, where it is) for the channels of this warp, and for its scalars.
    template <int B, class F>
    static GW_DEVICE void each_channel(const JointSets& sets, const Lines& lines, F f) {
        i64 line = lines.first + warp() * lines.next, at = lines.vectors + warp() * lines.channel;
#pragma unroll LINES<B>
        for (i64 c = warp(); c < sets.channels; c += SPAN) {
            f(line, at);
            line += SPAN * lines.next, at += SPAN * lines.channel;
        }
    }
    template <int B, class F>
    static GW_DEVICE void each_scalar(const JointSets& sets, const Lines& lines, F f) {
        i64 line = lines.first_scalar + warp() * lines.next, at = lines.scalars + warp() * lines.channel;
#pragma unroll LINES<B>
        for (i64 s = warp(); s < sets.scalars; s += SPAN) {
            f(line, at);
            line += SPAN * lines.next, at += SPAN * lines.channel;
        }
    }

    template <class C>
    static GW_DEVICE C sum(C value, C (&scratch)[WARPS][TILE]) {
        if constexpr (SPAN == 1) return value;
        __syncthreads();  // The scratch may still be in use by the previous call.
        scratch[threadIdx.y][threadIdx.x] = value;
        __syncthreads();
        C sum = scratch[0][threadIdx.x];
#pragma unroll
        for (int warp = 1; warp < WARPS; ++warp) sum += scratch[warp][threadIdx.x];
        return sum;
    }
};

/// 1/sqrt(mean of the squares of a set + epsilon) of this thread's row, at which x points.
template <int B, int SPAN, class T>
GW_DEVICE Compute<T> inverse_root(const T* x, const JointSets& sets, const Lines& lines, Compute<T> (&scratch)[WARPS][TILE]) {
    using C = Compute<T>;
    C total = 0;
    Team<SPAN>::template each_channel<B>(sets, lines, [&](i64, i64 at) {
        C form = 0;
        const T* const arrays[1] = {x};
        each_plane<B>(arrays, sets, lines, at, [&](int p, const C(&value)[1]) { form += C(sets.factor[p]) * value[0] * value[0]; });
        total += form < 0 ? -form : form;
    });
    Team<SPAN>::template each_scalar<B>(sets, lines, [&](i64, i64 at) {
        const C value = widen(x[at]);
        total += value * value;
    });
    return C(1) / root(Team<SPAN>::sum(total, scratch) / C(sets.channels + sets.scalars) + C(sets.epsilon));
}

/// `gains` has one for each channel of a plane, `scalar_gains` for each scalar; either may be null.
template <int B, int SPAN, class T>
GW_DEVICE void joint_norm(const JointSets& sets, const T* __restrict__ x, const T* __restrict__ gains, const T* __restrict__ scalar_gains,
                          T* __restrict__ out) {
    using C = Compute<T>;
    using Own = Team<SPAN>;
    __shared__ C scratch[WARPS][TILE];
    for (i64 set = Own::first_set(); set < sets.groups * sets.heads; set += i64(gridDim.y) * Own::SETS) {
        const Lines lines(sets, set);
        for (i64 tile = blockIdx.x; tile * TILE < sets.rows; tile += gridDim.x) {
            const i64 row = tile * TILE + threadIdx.x;
            const bool there = row < sets.rows;
            // Lanes past the end read the last row, and write nothing.
            const T* const own = x + (there ? row : sets.rows - 1);
            const C scale = inverse_root<B, SPAN>(own, sets, lines, scratch);
            if (!there) continue;
            T* const result = out + row;
            Own::template each_channel<B>(sets, lines, [&](i64 line, i64 at) {
                const C factor = gains == nullptr ? scale : scale * widen(gains[line]);
                const T* const arrays[1] = {own};
                each_plane<B>(arrays, sets, lines, at, [&](int p, const C(&value)[1]) {
                    result[at + p * lines.plane] = narrow<T>(value[0] * factor);
                });
            });
            Own::template each_scalar<B>(sets, lines, [&](i64 line, i64 at) {
                const C factor = scalar_gains == nullptr ? scale : scale * widen(scalar_gains[line]);
                result[at] = narrow<T>(widen(own[at]) * factor);
            });
        }
    }
}

/// The gradient of x, and for each block along x partial sums over its rows of the gains' gradients, [gridDim.x, channels of a plane +
/// scalars]; null without gains. With r = 1/sqrt(total/n + ε) and D = Σ gain·grad·x over the set, the gradient of an element is
/// r·gain·grad − r³·D/n·s·x, where s is sign(q)·factor for vectors of the square q, and 1 for scalars.
template <int B, int SPAN, class T>
GW_DEVICE void joint_norm_backward(const JointSets& sets, const T* __restrict__ x, const T* __restrict__ gains,
                                   const T* __restrict__ scalar_gains, const T* __restrict__ grad, T* __restrict__ grad_x,
                                   Compute<T>* __restrict__ partial) {
    using C = Compute<T>;
    using Own = Team<SPAN>;
    __shared__ C scratch[WARPS][TILE];
    for (i64 set = Own::first_set(); set < sets.groups * sets.heads; set += i64(gridDim.y) * Own::SETS) {
        const Lines lines(sets, set);
        C* const own_partial = partial == nullptr ? nullptr : partial + blockIdx.x * (lines.plane_lines + lines.scalar_lines);
        const auto add = [&](i64 place, C value, bool is_first) {
            for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(0xffffffffu, value, offset);
            if (threadIdx.x == 0) own_partial[place] = is_first ? value : own_partial[place] + value;
        };
        bool is_first = true;
        for (i64 tile = blockIdx.x; tile * TILE < sets.rows; tile += gridDim.x, is_first = false) {
            const i64 row = tile * TILE + threadIdx.x;
            const bool there = row < sets.rows;
            const i64 place = there ? row : sets.rows - 1;
            const T* const own = x + place;
            const T* const upstream = grad + place;
            T* const result = grad_x + place;
            const T* const both[2] = {own, upstream};
            const C scale = inverse_root<B, SPAN>(own, sets, lines, scratch);
            C along = 0;
            Own::template each_channel<B>(sets, lines, [&](i64 line, i64 at) {
                C dot = 0;
                each_plane<B>(both, sets, lines, at, [&](int, const C(&value)[2]) { dot += value[0] * value[1]; });
                along += gains == nullptr ? dot : dot * widen(gains[line]);
            });
            Own::template each_scalar<B>(sets, lines, [&](i64 line, i64 at) {
                const C dot = widen(own[at]) * widen(upstream[at]);
                along += scalar_gains == nullptr ? dot : dot * widen(scalar_gains[line]);
            });
            const C pull = Own::sum(along, scratch) * scale * scale * scale / C(sets.channels + sets.scalars);
            Own::template each_channel<B>(sets, lines, [&](i64 line, i64 at) {
                C form = 0, dot = 0;
                each_plane<B>(both, sets, lines, at, [&](int p, const C(&value)[2]) {
                    form += C(sets.factor[p]) * value[0] * value[0];
                    dot += value[0] * value[1];
                });
                const C factor = gains == nullptr ? scale : scale * widen(gains[line]);
                const C sign = form > 0 ? pull : form < 0 ? -pull : C(0);
                each_plane<B>(both, sets, lines, at, [&](int p, const C(&value)[2]) {
                    const C gradient = factor * value[1] - sign * C(sets.factor[p]) * value[0];
                    if (there) result[at + p * lines.plane] = narrow<T>(gradient);
                });
                if (partial != nullptr) add(line, there ? dot * scale : C(0), is_first);
            });
            Own::template each_scalar<B>(sets, lines, [&](i64 line, i64 at) {
                const C value = widen(own[at]), through = widen(upstream[at]);
                const C factor = scalar_gains == nullptr ? scale : scale * widen(scalar_gains[line]);
                if (there) result[at] = narrow<T>(factor * through - pull * value);
                if (partial != nullptr) add(lines.plane_lines + line, there ? value * through * scale : C(0), is_first);
            });
        }
    }
}

/// Kernels for B planes (0: any number) and sets of SPAN warps.
#define GW_KERNELS_OF(B, SPAN, KIND, T, NAME)                                                                                     \
    extern "C" __global__ void __launch_bounds__(TILE * WARPS, 1) gw_joint_norm##KIND##_fwd_##NAME(                                  \
        const __grid_constant__ JointSets sets, const T* x, const T* gains, const T* scalar_gains, T* out) {                      \
        begin_kernel();                                                                                                           \
        joint_norm<B, SPAN, T>(sets, x, gains, scalar_gains, out);                                                                \
    }                                                                                                                             \
    extern "C" __global__ void __launch_bounds__(TILE * WARPS, 1) gw_joint_norm##KIND##_bwd_##NAME(                                  \
        const __grid_constant__ JointSets sets, const T* x, const T* gains, const T* scalar_gains, const T* grad, T* grad_x,      \
        Compute<T>* partial) {                                                                                                    \
        begin_kernel();                                                                                                           \
        joint_norm_backward<B, SPAN, T>(sets, x, gains, scalar_gains, grad, grad_x, partial);                                     \
    }
#define GW_KERNELS(T, NAME)                                                              \
    GW_KERNELS_OF(0, WARPS, , T, NAME) GW_KERNELS_OF(0, 1, _short, T, NAME)              \
    GW_KERNELS_OF(4, WARPS, _4, T, NAME) GW_KERNELS_OF(4, 1, _4_short, T, NAME)
GW_FOR_DTYPES(GW_KERNELS)
