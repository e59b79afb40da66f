// Normalisation of feature planes over channels, and gates: crates/kernels/src/ops/clifford/transformer/channel_norm/mod.rs has the
// definition. x is [scalars + blades·channels, rows]; rows are adjacent.
//
// A block works on TILE rows, one for each lane; its warps take the channels in turn, and share sums through shared memory, in a fixed order.
#include "gradewise/math.cuh"

constexpr int TILE = 32, WARPS = 16, MOST_BLADES = 32;

/// The planes grade by grade: those of grade k are plane[first[k]], …, plane[first[k + 1] − 1]. `factor` has the scalar part of
/// reverse(blade)·blade for each plane.
struct GradedPlanes {
    i32 blades, grades;
    i32 first[8];
    signed char plane[MOST_BLADES];
    signed char factor[MOST_BLADES];
};

/// What is computed. Without a norm, `channels_norm` is 0; the gates are numbers of `Activation`.
struct NormOptions {
    double epsilon, gain;
    i32 normalizes, gate, scalar_gate, unused;
};

enum Activation { NONE, RELU, SIGMOID, TANH, SILU, GELU, GELU_TANH };

/// A value and a slope.
template <class C>
struct Jet {
    C value, slope;
};

template <class C>
GW_DEVICE Jet<C> activation(i32 kind, C x) {
    switch (kind) {
        case RELU: return {x > 0 ? x : C(0), x > 0 ? C(1) : C(0)};
        case SIGMOID: {
            const C s = sigmoid(x);
            return {s, s * (1 - s)};
        }
        case TANH: {
            const C t = tanh(x);
            return {t, 1 - t * t};
        }
        case SILU: {
            const C s = sigmoid(x);
            return {x * s, s * (1 + x * (1 - s))};
        }
        case GELU: {
            const C p = normal_cdf(x);
            return {x * p, p + x * normal_pdf(x)};
        }
        case GELU_TANH: {
            // Hendrycks and Gimpel 2016, arXiv:1606.08415.
            const C k = C(0.79788456080286536), c = C(0.044715);
            const C t = tanh(k * (x + c * x * x * x));
            return {C(0.5) * x * (1 + t), C(0.5) * (1 + t) + C(0.5) * x * (1 - t * t) * k * (1 + 3 * c * x * x)};
        }
        default: return {C(1), C(0)};
    }
}

/// One row of feature planes, or of their gradients.
template <class T>
struct Row {
    const T* at;
    i64 rows, channels, scalars;

    GW_DEVICE Compute<T> scalar(i64 channel) const { return widen(at[channel * rows]); }
    GW_DEVICE Compute<T> blade(i32 plane, i64 channel) const { return widen(at[(scalars + plane * channels + channel) * rows]); }
};

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
            for (int grade = 0; grade < planes.grades; ++grade) {
                const C form = quadratic(x, planes, grade, channel);
                norms += form < 0 ? -form : form;
            }
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

    template <class T>
    GW_DEVICE static C quadratic(const Row<T>& x, const GradedPlanes& planes, int grade, i64 channel) {
        C form = 0;
#pragma unroll 4
        for (int i = planes.first[grade]; i < planes.first[grade + 1]; ++i) {
            const C value = x.blade(planes.plane[i], channel);
            form += C(planes.factor[planes.plane[i]]) * value * value;
        }
        return form;
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
            for (int grade = 0; grade < planes.grades; ++grade) {
                const C factor = by.scale * (own == nullptr ? C(1) : widen(own[grade])) * gate;
#pragma unroll 4
                for (int i = planes.first[grade]; i < planes.first[grade + 1]; ++i) {
                    const i32 plane = planes.plane[i];
                    out[(scalars + plane * channels + channel) * rows + row] = narrow<T>(in.blade(plane, channel) * factor);
                }
            }
        }
    }
}

/// What a channel's gate makes of the gradient: the gate, and what is added to the gradient of the gate's argument.
template <class C>
struct Gate {
    C value = 1, added = 0;
    /// Σ gain·x·grad over the planes.
    C dot = 0;

    template <class T>
    GW_DEVICE Gate(const Row<T>& x, const Row<T>& grad, const GradedPlanes& planes, i32 kind, const T* gains, C scale,
                   i64 channel) {
        for (int grade = 0; grade < planes.grades; ++grade) {
            C sum = 0;
#pragma unroll 4
            for (int i = planes.first[grade]; i < planes.first[grade + 1]; ++i) {
                sum += x.blade(planes.plane[i], channel) * grad.blade(planes.plane[i], channel);
            }
            dot += sum * (gains == nullptr ? C(1) : widen(gains[grade]));
        }
        if (kind == NONE) return;
        const C first = x.blade(0, channel) * (gains == nullptr ? C(1) : widen(gains[0]));
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
        const Scales<C> by(in, there, planes, options, scratch);
        const auto gains_of = [&](i64 channel) { return gains == nullptr ? nullptr : gains + channel * planes.grades; };

        // The derivative of the scale, by way of the mean of the norms.
        C through_mean = 0;
        if (options.normalizes) {
            C dot = 0;
            for (i64 channel = threadIdx.y; channel < channels; channel += WARPS) {
                dot += Gate<C>(in, upstream, planes, options.gate, gains_of(channel), by.scale, channel).dot;
            }
            dot = shared_sum(dot, scratch);
            if (!(by.mean < C(options.epsilon))) through_mean = -dot * by.scale / (by.mean * C(channels));
        }
        for (i64 channel = threadIdx.y; channel < channels; channel += WARPS) {
            const T* own = gains_of(channel);
            const Gate<C> gate(in, upstream, planes, options.gate, own, by.scale, channel);
            for (int grade = 0; grade < planes.grades; ++grade) {
                C slope = 0;
                if (options.normalizes) {
                    const C form = Scales<C>::quadratic(in, planes, grade, channel);
                    slope = form > 0 ? through_mean : form < 0 ? -through_mean : C(0);
                }
                const C factor = by.scale * (own == nullptr ? C(1) : widen(own[grade]));
                C of_gain = 0;
#pragma unroll 4
                for (int i = planes.first[grade]; i < planes.first[grade + 1]; ++i) {
                    const i32 plane = planes.plane[i];
                    const C value = in.blade(plane, channel);
                    const C through = upstream.blade(plane, channel) * gate.value + (plane == 0 ? gate.added : C(0));
                    of_gain += through * value;
                    const C result = through * factor + slope * C(planes.factor[plane]) * value;
                    if (there) grad_x[(scalars + plane * channels + channel) * rows + row] = narrow<T>(result);
                }
                if (partial != nullptr) add(channel * planes.grades + grade, there ? of_gain * by.scale : C(0), is_first);
            }
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
    extern "C" __global__ void __launch_bounds__(TILE * WARPS, 2) gw_channel_norm_bwd_##NAME(                              \
        const __grid_constant__ GradedPlanes planes, NormOptions options, const T* x, const T* gains, const T* scalar_gains, const T* grad,     \
        T* grad_x, Compute<T>* partial, i64 scalars, i64 channels, i64 rows) {                                          \
        begin_kernel();                                                                                                 \
        channel_norm_backward<T>(planes, options, x, gains, scalar_gains, grad, grad_x, partial, scalars, channels,     \
                                 rows);                                                                                 \
    }
GW_FOR_DTYPES(GW_KERNELS)
