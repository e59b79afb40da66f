// Normalisation of feature planes over channels, and gates: crates/kernels/src/ops/clifford/transformer/channel_norm/mod.rs has the
// definition. x is [scalars + blades·channels, rows]; rows are adjacent.
//
// A block works on TILE rows, one for each lane; its warps take the channels in turn, and share sums through shared memory, in a fixed order.
#include "clifford/transformer/activation.cuh"
#include "clifford/transformer/norm_launch.cuh"
#include "clifford/transformer/planes_launch.cuh"

using channel_norm_tile::TILE, channel_norm_tile::WARPS, feature_planes::MOST_PLANES;

/// Loads of an array that a thread has under way.
constexpr int DEPTH = 8;

/// The planes grade by grade: their numbers in the features, the scalar part of reverse(blade)·blade, the grade, and whether a plane is the
/// last of its grade.
struct GradedPlanes {
    i32 blades, grades;
    signed char plane[MOST_PLANES], factor[MOST_PLANES], grade[MOST_PLANES], is_last[MOST_PLANES];
};

/// What is computed. Without a norm, `channels_norm` is 0; the gates are numbers of `Activation`.
struct NormOptions {
    double epsilon, gain;
    i32 normalizes, gate, scalar_gate, unused;
};

/// One row of feature planes, or of their gradients.
template <class T>
struct Row {
    const T* at;
    i64 rows, channels, scalars;

    GW_DEVICE Compute<T> scalar(i64 channel) const { return widen(at[channel * rows]); }
    GW_DEVICE i64 place(i32 plane, i64 channel) const { return (scalars + plane * channels + channel) * rows; }
    GW_DEVICE Compute<T> blade(i32 plane, i64 channel) const { return widen(at[place(plane, channel)]); }
};

/// Calls f(number of the plane in GradedPlanes, its elements of these rows) for the planes of a channel, DEPTH of them loaded at a time.
template <int N, class T, class F>
GW_DEVICE void each_plane(const Row<T> (&x)[N], const GradedPlanes& planes, i64 channel, F f) {
    for (int base = 0; base < planes.blades; base += DEPTH) {
        Compute<T> values[DEPTH][N];
#pragma unroll
        for (int k = 0; k < DEPTH; ++k) {
            const int i = base + k < planes.blades ? base + k : 0;
#pragma unroll
            for (int n = 0; n < N; ++n) values[k][n] = x[n].blade(planes.plane[i], channel);
        }
#pragma unroll
        for (int k = 0; k < DEPTH; ++k) {
            if (base + k < planes.blades) f(base + k, values[k]);
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

/// What a row is multiplied by: gain / sqrt(max(mean of the norms, epsilon)), the mean, and mean and inverse deviation of the scalars.
template <class C>
struct Scales {
    C scale = 1, mean = 0, scalar_mean = 0, scalar_inverse = 1;

    template <class T>
    GW_DEVICE Scales(const Row<T>& x, bool there, const GradedPlanes& planes, const NormOptions& options,
                     C (&scratch)[WARPS][TILE]) {
        if (!options.normalizes) return;
        C norms = 0;
        for (i64 channel = threadIdx.y; there && channel < x.channels; channel += WARPS) {
            C form = 0;
            const Row<T> rows[1] = {x};
            each_plane(rows, planes, channel, [&](int i, const C(&value)[1]) {
                form += C(planes.factor[i]) * value[0] * value[0];
                if (!planes.is_last[i]) return;
                norms += form < 0 ? -form : form;
                form = 0;
            });
        }
        mean = shared_sum(norms, scratch) / C(x.channels > 0 ? x.channels : 1);
        const C least = C(options.epsilon);
        // NaN stays NaN.
        scale = C(options.gain) / root(mean < least ? least : mean);
        if (x.scalars == 0) return;
        C sum = 0;
        for (i64 s = threadIdx.y; there && s < x.scalars; s += WARPS) sum += x.scalar(s);
        scalar_mean = shared_sum(sum, scratch) / C(x.scalars);
        C squares = 0;
        for (i64 s = threadIdx.y; there && s < x.scalars; s += WARPS) {
            const C difference = x.scalar(s) - scalar_mean;
            squares += difference * difference;
        }
        scalar_inverse = 1 / root(shared_sum(squares, scratch) / C(x.scalars) + C(1e-5));
    }
};

/// `gains` is [channels, grades] and `scalar_gains` [scalars]; either may be null.
template <class T>
GW_DEVICE void channel_norm(const GradedPlanes& planes, const NormOptions& options, const T* x, const T* gains,
                            const T* scalar_gains, T* out, i64 scalars, i64 channels, i64 rows) {
    using C = Compute<T>;
    __shared__ C scratch[WARPS][TILE];
    for (i64 tile = blockIdx.x; tile * TILE < rows; tile += gridDim.x) {
        const i64 row = tile * TILE + threadIdx.x;
        const bool there = row < rows;
        const Row<T> in{x + row, rows, channels, scalars};
        const Scales<C> by(in, there, planes, options, scratch);
        if (!there) continue;
        for (i64 s = threadIdx.y; s < scalars; s += WARPS) {
            C value = (in.scalar(s) - by.scalar_mean) * by.scalar_inverse;
            if (scalar_gains != nullptr) value *= widen(scalar_gains[s]);
            if (options.scalar_gate != NONE) value = activation(options.scalar_gate, value).value;
            out[s * rows + row] = narrow<T>(value);
        }
        for (i64 channel = threadIdx.y; channel < channels; channel += WARPS) {
            const T* own = gains == nullptr ? nullptr : gains + channel * planes.grades;
            C gate = 1;
            if (options.gate != NONE) {
                const C first = in.blade(0, channel) * by.scale * (own == nullptr ? C(1) : widen(own[0]));
                gate = activation(options.gate, first).value;
            }
            const Row<T> each[1] = {in};
            each_plane(each, planes, channel, [&](int i, const C(&value)[1]) {
                const C factor = by.scale * (own == nullptr ? C(1) : widen(own[planes.grade[i]])) * gate;
                out[in.place(planes.plane[i], channel) + row] = narrow<T>(value[0] * factor);
            });
        }
    }
}

/// What a channel's gate makes of the gradient: the gate, and what is added to the gradient of the gate's argument.
template <class C>
struct Gate {
    C value = 1, added = 0;
    /// Σ gain·x·grad over the planes, after the gate.
    C dot = 0;
    /// The grades whose quadratic forms are above 0, and below.
    u32 above = 0, below = 0;

    /// `rows` are those of x and of the gradient.
    template <class T>
    GW_DEVICE Gate(const Row<T> (&rows)[2], const GradedPlanes& planes, i32 kind, const T* gains, C scale, i64 channel) {
        C form = 0;
        each_plane(rows, planes, channel, [&](int i, const C(&value)[2]) {
            const int grade = planes.grade[i];
            dot += value[0] * value[1] * (gains == nullptr ? C(1) : widen(gains[grade]));
            form += C(planes.factor[i]) * value[0] * value[0];
            if (!planes.is_last[i]) return;
            above |= form > 0 ? 1u << grade : 0u;
            below |= form < 0 ? 1u << grade : 0u;
            form = 0;
        });
        if (kind == NONE) return;
        const C first = rows[0].blade(0, channel) * (gains == nullptr ? C(1) : widen(gains[0]));
        const Jet<C> jet = activation(kind, scale * first);
        value = jet.value;
        added = jet.slope * scale * dot;
        dot = value * dot + added * first;
    }
};

/// The gradient of x, and for each block partial sums over its rows of the gains' gradients, [gridDim.x, channels·grades + scalars]; null
/// without gains. Tiles of a block are added in order.
template <class T>
GW_DEVICE void channel_norm_backward(const GradedPlanes& planes, const NormOptions& options, const T* x, const T* gains,
                                     const T* scalar_gains, const T* grad, T* grad_x, Compute<T>* partial, i64 scalars,
                                     i64 channels, i64 rows) {
    using C = Compute<T>;
    __shared__ C scratch[WARPS][TILE];
    const i64 results = channels * planes.grades + scalars;
    C* own_partial = partial == nullptr ? nullptr : partial + blockIdx.x * results;
    const auto add = [&](i64 place, C value, bool is_first) {
        for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(0xffffffffu, value, offset);
        if (threadIdx.x == 0) own_partial[place] = is_first ? value : own_partial[place] + value;
    };
    bool is_first = true;
    for (i64 tile = blockIdx.x; tile * TILE < rows; tile += gridDim.x, is_first = false) {
        const i64 row = tile * TILE + threadIdx.x;
        const bool there = row < rows;
        // Lanes past the end read the last row, and write nothing.
        const i64 at = there ? row : rows - 1;
        const Row<T> in{x + at, rows, channels, scalars}, upstream{grad + at, rows, channels, scalars};
        const Row<T> both[2] = {in, upstream};
        const Scales<C> by(in, there, planes, options, scratch);
        const auto gains_of = [&](i64 channel) { return gains == nullptr ? nullptr : gains + channel * planes.grades; };

        // The derivative of the scale, by way of the mean of the norms.
        C through_mean = 0;
        if (options.normalizes) {
            C dot = 0;
            for (i64 channel = threadIdx.y; channel < channels; channel += WARPS) {
                dot += Gate<C>(both, planes, options.gate, gains_of(channel), by.scale, channel).dot;
            }
            dot = shared_sum(dot, scratch);
            if (!(by.mean < C(options.epsilon))) through_mean = -dot * by.scale / (by.mean * C(channels));
        }
        for (i64 channel = threadIdx.y; channel < channels; channel += WARPS) {
            const T* own = gains_of(channel);
            const Gate<C> gate(both, planes, options.gate, own, by.scale, channel);
            C of_gain = 0;
            each_plane(both, planes, channel, [&](int i, const C(&value)[2]) {
                const int plane = planes.plane[i], grade = planes.grade[i];
                const C through = value[1] * gate.value + (plane == 0 ? gate.added : C(0));
                of_gain += through * value[0];
                const C factor = by.scale * (own == nullptr ? C(1) : widen(own[grade]));
                // Without a norm nothing goes through the mean.
                const C slope = gate.above >> grade & 1 ? through_mean : gate.below >> grade & 1 ? -through_mean : C(0);
                const C result = through * factor + slope * C(planes.factor[i]) * value[0];
                if (there) grad_x[in.place(plane, channel) + row] = narrow<T>(result);
                if (!planes.is_last[i]) return;
                if (partial != nullptr) add(channel * planes.grades + grade, there ? of_gain * by.scale : C(0), is_first);
                of_gain = 0;
            });
        }
        // Scalars: their layer norm and their gate.
        C mean = 0, along = 0;
        const auto scalar = [&](i64 s, C& normal, C& through) {
            normal = (in.scalar(s) - by.scalar_mean) * by.scalar_inverse;
            const C gain = scalar_gains == nullptr ? C(1) : widen(scalar_gains[s]);
            through = upstream.scalar(s);
            if (options.scalar_gate != NONE) through *= activation(options.scalar_gate, normal * gain).slope;
            return gain;
        };
        if (options.normalizes && scalars > 0) {
            C sum = 0, dot = 0;
            for (i64 s = threadIdx.y; s < scalars; s += WARPS) {
                C normal, through;
                const C gain = scalar(s, normal, through);
                through *= gain;
                sum += through;
                dot += through * normal;
            }
            mean = shared_sum(sum, scratch) / C(scalars);
            along = shared_sum(dot, scratch) / C(scalars);
        }
        for (i64 s = threadIdx.y; s < scalars; s += WARPS) {
            C normal, through;
            const C gain = scalar(s, normal, through);
            const C result = by.scalar_inverse * (through * gain - mean - normal * along);
            if (there) grad_x[s * rows + row] = narrow<T>(result);
            if (partial != nullptr) add(channels * planes.grades + s, there ? through * normal : C(0), is_first);
        }
    }
}

#define GW_KERNELS(T, NAME)                                                                                             \
    extern "C" __global__ void __launch_bounds__(TILE * WARPS, 2) gw_channel_norm_fwd_##NAME(                              \
        const __grid_constant__ GradedPlanes planes, NormOptions options, const T* x, const T* gains, const T* scalar_gains, T* out,            \
        i64 scalars, i64 channels, i64 rows) {                                                                          \
        begin_kernel();                                                                                                 \
        channel_norm<T>(planes, options, x, gains, scalar_gains, out, scalars, channels, rows);                         \
    }                                                                                                                   \
    extern "C" __global__ void __launch_bounds__(TILE * WARPS, sizeof(T) > 4 ? 1 : 2) gw_channel_norm_bwd_##NAME(                              \
        const __grid_constant__ GradedPlanes planes, NormOptions options, const T* x, const T* gains, const T* scalar_gains, const T* grad,     \
        T* grad_x, Compute<T>* partial, i64 scalars, i64 channels, i64 rows) {                                          \
        begin_kernel();                                                                                                 \
        channel_norm_backward<T>(planes, options, x, gains, scalar_gains, grad, grad_x, partial, scalars, channels,     \
                                 rows);                                                                                 \
    }
GW_FOR_DTYPES(GW_KERNELS)
