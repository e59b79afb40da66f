// The norm of channel_norm.cu for 16 planes, without gates: crates/kernels/src/ops/clifford/transformer/channel_norm/mod.rs has the definition.
//
// A block works on TILE rows, one for each lane; its warps take the channels in turn. A thread keeps the planes of a channel, so that each
// element is read once where there are no more channels than warps.
#include "clifford/transformer/norm_launch.cuh"
#include "clifford/transformer/row_sums.cuh"
#include "gradewise/integers.cuh"
#include "gradewise/math.cuh"

using channel_norm_tile::TILE, channel_norm_tile::WARPS;

constexpr int PLANES = 16;

/// The planes grade by grade, in words, which instructions take from where a kernel's arguments are: their numbers in the features, the
/// scalar part of reverse(blade)·blade, the grade, and, for the last plane of a grade, a bit for each of that grade's planes.
struct SixteenPlanes {
    u32 plane[PLANES];
    float factor[PLANES];
    u32 grade[PLANES];
    u32 ends[PLANES];
    u32 grades;
    /// Bytes from a plane to the next.
    u32 step;
    i64 scalars, channels, rows;
    double epsilon, gain;
};

/// The elements of a channel of one row, at whose first plane `base` points.
template <class T>
GW_DEVICE void read(const SixteenPlanes& planes, const T* base, Compute<T> (&values)[PLANES]) {
#pragma unroll
    for (int i = 0; i < PLANES; ++i) {
        const auto* at = reinterpret_cast<const char*>(base) + u64(planes.plane[i]) * planes.step;
        values[i] = widen(*reinterpret_cast<const T*>(at));
    }
}

template <class T>
GW_DEVICE void write(const SixteenPlanes& planes, T* base, int i, Compute<T> value) {
    *reinterpret_cast<T*>(reinterpret_cast<char*>(base) + u64(planes.plane[i]) * planes.step) = narrow<T>(value);
}

/// The sum of the norms of the grades of a channel, and the planes of the grades whose quadratic forms are above 0, and below.
template <class C>
struct Forms {
    C norms = 0;
    u32 above = 0, below = 0;

    GW_DEVICE Forms(const SixteenPlanes& planes, const C (&values)[PLANES]) {
        C form = 0;
#pragma unroll
        for (int i = 0; i < PLANES; ++i) {
            form += C(planes.factor[i]) * values[i] * values[i];
            const u32 ends = planes.ends[i];
            if (ends == 0) continue;
            norms += form < 0 ? -form : form;
            above |= form > 0 ? ends : 0;
            below |= form < 0 ? ends : 0;
            form = 0;
        }
    }
};

/// What a row is multiplied by: gain / sqrt(max(mean of the norms, epsilon)), the mean, and mean and inverse deviation of the scalars.
template <class C>
struct Scales {
    C scale, mean, scalar_mean = 0, scalar_inverse = 1;

    template <class T, int M>
    GW_DEVICE Scales(const SixteenPlanes& planes, const T* own, C norms, C (&scratch)[M][WARPS][TILE]) {
        C sums[2] = {norms, 0};
#pragma unroll 4
        for (i64 s = threadIdx.y; s < planes.scalars; s += WARPS) sums[1] += widen(own[s * planes.rows]);
        row_sums(sums, scratch);
        mean = sums[0] / C(planes.channels);
        const C least = C(planes.epsilon);
        // NaN stays NaN.
        scale = C(planes.gain) / root(mean < least ? least : mean);
        if (planes.scalars == 0) return;
        scalar_mean = sums[1] / C(planes.scalars);
        C squares[1] = {0};
#pragma unroll 4
        for (i64 s = threadIdx.y; s < planes.scalars; s += WARPS) {
            const C difference = widen(own[s * planes.rows]) - scalar_mean;
            squares[0] += difference * difference;
        }
        row_sums(squares, scratch);
        scalar_inverse = 1 / root(squares[0] / C(planes.scalars) + C(1e-5));
    }
};

/// `gains` is [channels, grades] and `scalar_gains` [scalars]; either may be null.
template <class T>
GW_DEVICE void norm(const SixteenPlanes& planes, const T* __restrict__ x, const T* __restrict__ gains,
                    const T* __restrict__ scalar_gains, T* __restrict__ out) {
    using C = Compute<T>;
    __shared__ C scratch[2][WARPS][TILE];
    const i64 rows = planes.rows, first = planes.scalars * rows;
    const bool kept = planes.channels <= WARPS;
    for (i64 tile = blockIdx.x; tile * TILE < rows; tile += gridDim.x) {
        const i64 row = tile * TILE + threadIdx.x;
        const bool there = row < rows;
        // Lanes past the end read the last row, and write nothing.
        const T* const own = x + (there ? row : rows - 1);
        C values[PLANES], norms = 0;
        for (i64 channel = threadIdx.y; channel < planes.channels; channel += WARPS) {
            read(planes, own + first + channel * rows, values);
            norms += Forms<C>(planes, values).norms;
        }
        const Scales<C> by(planes, own, norms, scratch);
        if (!there) continue;
        for (i64 channel = threadIdx.y; channel < planes.channels; channel += WARPS) {
            const T* gain = gains == nullptr ? nullptr : gains + channel * planes.grades;
            if (!kept) read(planes, own + first + channel * rows, values);
#pragma unroll
            for (int i = 0; i < PLANES; ++i) {
                const C factor = gain == nullptr ? by.scale : by.scale * widen(gain[planes.grade[i]]);
                write(planes, out + first + channel * rows + row, i, values[i] * factor);
            }
        }
#pragma unroll 4
        for (i64 s = threadIdx.y; s < planes.scalars; s += WARPS) {
            C value = (widen(own[s * rows]) - by.scalar_mean) * by.scalar_inverse;
            if (scalar_gains != nullptr) value *= widen(scalar_gains[s]);
            out[s * rows + row] = narrow<T>(value);
        }
    }
}

/// The gradient of x, and for each block partial sums over its rows of the gains' gradients, [gridDim.x, channels·grades + scalars]; null
/// without gains. Tiles of a block are added in order.
template <class T>
GW_DEVICE void norm_backward(const SixteenPlanes& planes, const T* __restrict__ x, const T* __restrict__ gains,
                             const T* __restrict__ scalar_gains, const T* __restrict__ grad, T* __restrict__ grad_x,
                             Compute<T>* __restrict__ partial) {
    using C = Compute<T>;
    __shared__ C scratch[3][WARPS][TILE];
    const i64 rows = planes.rows, first = planes.scalars * rows, lines = planes.channels * planes.grades;
    C* const own_partial = partial == nullptr ? nullptr : partial + blockIdx.x * (lines + planes.scalars);
    const bool kept = planes.channels <= WARPS;
    bool is_first = true;
    const auto add = [&](i64 place, C value) {
        for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(0xffffffffu, value, offset);
        if (threadIdx.x == 0) own_partial[place] = is_first ? value : own_partial[place] + value;
    };
    for (i64 tile = blockIdx.x; tile * TILE < rows; tile += gridDim.x, is_first = false) {
        const i64 row = tile * TILE + threadIdx.x;
        const bool there = row < rows;
        // Lanes past the end read the last row, and write nothing.
        const i64 at = there ? row : rows - 1;
        const T* const own = x + at;
        const T* const upstream = grad + at;
        C values[PLANES], through[PLANES], norms = 0;
        // Σ gain·x·grad over the planes, and over the scalars Σ gain·grad and Σ gain·grad·normal.
        C sums[3] = {0, 0, 0};
        u32 above = 0, below = 0;
        const auto take = [&](i64 channel, const T* gain) {
            read(planes, own + first + channel * rows, values);
            read(planes, upstream + first + channel * rows, through);
            if (gain == nullptr) return;
#pragma unroll
            for (int i = 0; i < PLANES; ++i) through[i] *= widen(gain[planes.grade[i]]);
        };
        const auto gain_of = [&](i64 channel) { return gains == nullptr ? nullptr : gains + channel * planes.grades; };
        for (i64 channel = threadIdx.y; channel < planes.channels; channel += WARPS) {
            take(channel, gain_of(channel));
            const Forms<C> forms(planes, values);
            norms += forms.norms;
            above = forms.above, below = forms.below;
#pragma unroll
            for (int i = 0; i < PLANES; ++i) sums[0] += values[i] * through[i];
        }
        const Scales<C> by(planes, own, norms, scratch);
        const auto scalar = [&](i64 s, C& normal, C& gradient) {
            normal = (widen(own[s * rows]) - by.scalar_mean) * by.scalar_inverse;
            gradient = widen(upstream[s * rows]);
            return gradient * (scalar_gains == nullptr ? C(1) : widen(scalar_gains[s]));
        };
#pragma unroll 2
        for (i64 s = threadIdx.y; s < planes.scalars; s += WARPS) {
            C normal, gradient;
            const C scaled = scalar(s, normal, gradient);
            sums[1] += scaled;
            sums[2] += scaled * normal;
        }
        row_sums(sums, scratch);
        // The derivative of the scale, by way of the mean of the norms.
        const C through_mean = by.mean < C(planes.epsilon) ? C(0) : -sums[0] * by.scale / (by.mean * C(planes.channels));
        for (i64 channel = threadIdx.y; channel < planes.channels; channel += WARPS) {
            const T* gain = gain_of(channel);
            if (!kept) {
                take(channel, gain);
                const Forms<C> forms(planes, values);
                above = forms.above, below = forms.below;
            }
            C of_gain = 0;
#pragma unroll
            for (int i = 0; i < PLANES; ++i) {
                const C slope = above >> i & 1 ? through_mean : below >> i & 1 ? -through_mean : C(0);
                const C result = through[i] * by.scale + slope * C(planes.factor[i]) * values[i];
                if (there) write(planes, grad_x + first + channel * rows + row, i, result);
            }
            if (partial == nullptr) continue;
            // Without the gains again, which may be 0.
            if (gain != nullptr) read(planes, upstream + first + channel * rows, through);
#pragma unroll
            for (int i = 0; i < PLANES; ++i) {
                of_gain += through[i] * values[i];
                if (planes.ends[i] == 0) continue;
                add(channel * planes.grades + planes.grade[i], there ? of_gain * by.scale : C(0));
                of_gain = 0;
            }
        }
        const C mean = sums[1] / C(planes.scalars > 0 ? planes.scalars : 1), along = sums[2] / C(planes.scalars > 0 ? planes.scalars : 1);
#pragma unroll 2
        for (i64 s = threadIdx.y; s < planes.scalars; s += WARPS) {
            C normal, gradient;
            const C scaled = scalar(s, normal, gradient);
            if (there) grad_x[s * rows + row] = narrow<T>(by.scalar_inverse * (scaled - mean - normal * along));
            if (partial != nullptr) add(lines + s, there ? gradient * normal : C(0));
        }
    }
}

#define GW_KERNELS(T, NAME)                                                                                                       \
    extern "C" __global__ void __launch_bounds__(TILE * WARPS, 1) gw_channel_norm_16_fwd_##NAME(                                  \
        const __grid_constant__ SixteenPlanes planes, const T* x, const T* gains, const T* scalar_gains, T* out) {                \
        begin_kernel();                                                                                                           \
        norm<T>(planes, x, gains, scalar_gains, out);                                                                             \
    }                                                                                                                             \
    extern "C" __global__ void __launch_bounds__(TILE * WARPS, 1) gw_channel_norm_16_bwd_##NAME(                                  \
        const __grid_constant__ SixteenPlanes planes, const T* x, const T* gains, const T* scalar_gains, const T* grad,          \
        T* grad_x, Compute<T>* partial) {                                                                                         \
        begin_kernel();                                                                                                           \
        norm_backward<T>(planes, x, gains, scalar_gains, grad, grad_x, partial);                                                  \
    }
// Sixteen planes of two arrays in double precision would fill all registers.
GW_KERNELS(float, f32)
GW_KERNELS(bf16, bf16)
GW_KERNELS(f16, f16)
