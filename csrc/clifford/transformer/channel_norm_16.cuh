// The norm of channel_norm.cu and its gates for 16 planes: crates/kernels/src/ops/clifford/transformer/channel_norm/mod.rs has the definition.
//
// A block has 16 rows (threadIdx.x), 64 bytes of a line of f32, and a thread of each row for every channel (threadIdx.y). A thread loads the
// planes of its channel, its scalars and their gradients before the first barrier, and keeps its share of x in registers: each element is read
// once from memory, and between loads and stores there are only sums. Blocks are small, so that the loads of one go along with the sums and
// stores of others.
//
// Gates without a norm need no sums, so that blocks along y share the channels and scalars of their rows: more blocks, and smaller ones, on a
// multiprocessor, whose loads go along with the stores of others.
//
// There are no loops over tiles or channels. Around them the compiler would keep what the planes' table says in registers, 64 of them.
#pragma once

#include "clifford/transformer/activation.cuh"
#include "clifford/transformer/norm_launch.cuh"
#include "clifford/transformer/sixteen.cuh"
#include "gradewise/integers.cuh"
#include "gradewise/math.cuh"

namespace sixteen_planes {

/// The planes grade by grade, in words, which instructions take from where a kernel's arguments are: the bytes from the first plane of the
/// features to each, and the scalar part of reverse(blade)·blade. The first is the scalar.
struct SixteenPlanes {
    u32 offset[PLANES];
    float factor[PLANES];
    /// All elements are counted by 32 bits.
    u32 scalars, channels, rows;
    /// Whether there is a norm.
    u32 normalizes;
    double epsilon, gain;
    /// Numbers of `Activation`.
    i32 gate, scalar_gate;
};

/// The gains of a channel; ones without.
template <class C, class T>
GW_DEVICE void read_gains(const T* gains, C (&values)[GRADES]) {
#pragma unroll
    for (int grade = 0; grade < GRADES; ++grade) values[grade] = gains == nullptr ? C(1) : widen(gains[grade]);
}

/// A pointer of which the compiler does not know where it is from: else it keeps an address for each plane from one use to the next, in more
/// registers than the elements take.
template <class T>
GW_DEVICE T* opaque(T* pointer) {
    asm volatile("" : "+l"(pointer));
    return pointer;
}

/// COUNT planes from FIRST on of a channel of one row, at whose first plane `base` points.
template <int FIRST, int COUNT, class T>
GW_DEVICE void read(const SixteenPlanes& planes, const T* base, Compute<T> (&values)[COUNT]) {
    const auto* const first = reinterpret_cast<const char*>(opaque(base));
#pragma unroll
    for (int i = 0; i < COUNT; ++i) values[i] = widen(*reinterpret_cast<const T*>(first + planes.offset[FIRST + i]));
}

template <class T>
GW_DEVICE void write(const SixteenPlanes& planes, T* base, int i, Compute<T> value) {
    *reinterpret_cast<T*>(reinterpret_cast<char*>(base) + planes.offset[i]) = narrow<T>(value);
}

/// Scratch of a sum over the threads of a row, for N values at once. Rows of warps begin in different banks for the threads that add them up.
constexpr int PITCH = ROWS + 4;
template <int N, class C, int WARPS>
using Scratch = C[N][WARPS][PITCH];

/// Adds each of N values up over the threads of a row: both of a warp, then over the warps, in the same order everywhere. Of many warps
/// eight threads add up the sums of a row, which costs a barrier; of few each thread does. Each call has scratch of its own.
template <int N, class C, int WARPS>
GW_DEVICE void row_sums(C (&values)[N], Scratch<N, C, WARPS>& scratch) {
    static_assert(2 * ROWS == 32, "a warp has two threads of each row");
    constexpr u32 GROUP = 8, MANY = 8;
    const u32 warp_of_thread = threadIdx.y / 2, warps = blockDim.y / 2;
#pragma unroll
    for (int n = 0; n < N; ++n) {
        values[n] += __shfl_xor_sync(0xffffffffu, values[n], ROWS);
        if (threadIdx.y % 2 == 0) scratch[n][warp_of_thread][threadIdx.x] = values[n];
        values[n] = 0;
    }
    __syncthreads();
    if (warps > MANY) {
        const u32 thread = threadIdx.y * ROWS + threadIdx.x, own = thread % GROUP;
        // Four sums for each warp, so that all threads of a warp have one or none.
        for (u32 task = thread / GROUP; task < N * ROWS; task += warps * 32 / GROUP) {
            C(&parts)[WARPS][PITCH] = scratch[task / ROWS];
            const u32 row = task % ROWS;
            C sum = 0;
            for (u32 warp = own; warp < warps; warp += GROUP) sum += parts[warp][row];
#pragma unroll
            for (u32 offset = GROUP / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
            if (own == 0) parts[0][row] = sum;
        }
        __syncthreads();
#pragma unroll
        for (int n = 0; n < N; ++n) values[n] = scratch[n][0][threadIdx.x];
        return;
    }
#pragma unroll 4
    for (u32 warp = 0; warp < warps; ++warp) {
#pragma unroll
        for (int n = 0; n < N; ++n) values[n] += scratch[n][warp][threadIdx.x];
    }
}

/// A gate's factor of the first of N numbers, and the function of scalars of the others, with their slopes. Functions without branches are
/// computed side by side; of the others there is one body of code for all numbers.
template <int N, class C>
GW_DEVICE void functions(const SixteenPlanes& planes, C (&values)[N], C (&slopes)[N]) {
#pragma unroll
    for (int n = 0; n < N; ++n) slopes[n] = 1;
    if (is_logistic(planes.gate) && is_logistic(planes.scalar_gate)) {
#pragma unroll
        for (int n = 0; n < N; ++n) {
            const Jet<C> jet = logistic(n == 0 ? planes.gate : planes.scalar_gate, values[n]);
            values[n] = jet.value, slopes[n] = jet.slope;
        }
        return;
    }
    const int count = planes.scalar_gate == NONE ? 1 : N;
#pragma unroll 1
    for (int n = 0; n < count; ++n) {
        C value = values[0];
#pragma unroll
        for (int k = 1; k < N; ++k) value = n == k ? values[k] : value;
        const Jet<C> jet = activation(n == 0 ? planes.gate : planes.scalar_gate, value);
#pragma unroll
        for (int k = 0; k < N; ++k) {
            if (n == k) values[k] = jet.value, slopes[k] = jet.slope;
        }
    }
}

/// The sum of the norms of the grades of a channel, and the sign of the quadratic form of each: a bit if it is above 0, another if below.
constexpr u32 BELOW = 1u << GRADES;
template <class C>
struct Forms {
    C norms = 0;
    u32 signs = 0;

    GW_DEVICE Forms(const SixteenPlanes& planes, const C (&values)[PLANES]) {
        C forms[GRADES] = {};
#pragma unroll
        for (int i = 0; i < PLANES; ++i) forms[grade_of(i)] += C(planes.factor[i]) * values[i] * values[i];
#pragma unroll
        for (int grade = 0; grade < GRADES; ++grade) {
            norms += forms[grade] < 0 ? -forms[grade] : forms[grade];
            signs |= forms[grade] > 0 ? 1u << grade : forms[grade] < 0 ? BELOW << grade : 0;
        }
    }
};

/// The number of a thread among those of its row, and how many there are. Without gates they are one block's.
template <bool IS_GATED>
GW_DEVICE u32 thread_of_row() {
    return IS_GATED ? blockIdx.y * blockDim.y + threadIdx.y : threadIdx.y;
}
template <bool IS_GATED>
GW_DEVICE u32 threads_of_row() {
    return IS_GATED ? gridDim.y * blockDim.y : blockDim.y;
}

/// The scalars of a row that a thread has: SCALARS of them kept, others read again by each pass.
template <class T, bool IS_GATED>
struct OwnScalars {
    using C = Compute<T>;
    const T* x;
    u32 rows, count;
    C kept[SCALARS];

    GW_DEVICE OwnScalars(const T* x, u32 rows, u32 count) : x(x), rows(rows), count(count) { keep(x, kept); }

    /// Reads those of the kept numbers from another array.
    GW_DEVICE void keep(const T* from, C (&values)[SCALARS]) const {
#pragma unroll
        for (int k = 0; k < SCALARS; ++k) values[k] = number(k) < count ? widen(from[number(k) * rows]) : C(0);
    }

    GW_DEVICE static u32 number(u32 k) { return thread_of_row<IS_GATED>() + k * threads_of_row<IS_GATED>(); }

    /// Calls f(value) for all of them.
    template <class F>
    GW_DEVICE void each(F f) const {
#pragma unroll
        for (int k = 0; k < SCALARS; ++k) {
            if (number(k) < count) f(kept[k]);
        }
        for (u32 s = number(SCALARS); s < count; s += threads_of_row<IS_GATED>()) f(widen(x[s * rows]));
    }
};

/// What a row is multiplied by: gain / sqrt(max(mean of the norms, epsilon)), the mean, and mean and inverse deviation of the scalars.
template <class C>
struct Scales {
    C scale = 1, mean = 0, scalar_mean = 0, scalar_inverse = 1;

    Scales() = default;
    template <class Scalars, int WARPS>
    GW_DEVICE Scales(const SixteenPlanes& planes, const Scalars& own, C norms, Scratch<2, C, WARPS>& first, Scratch<1, C, WARPS>& second) {
        C sums[2] = {norms, 0};
        own.each([&](C value) { sums[1] += value; });
        row_sums<2>(sums, first);
        mean = quotient(sums[0], C(planes.channels));
        const C least = C(planes.epsilon), count = C(planes.scalars > 0 ? planes.scalars : 1);
        // NaN stays NaN.
        scale = C(planes.gain) / root(mean < least ? least : mean);
        scalar_mean = quotient(sums[1], count);
        C squares[1] = {0};
        own.each([&](C value) { squares[0] += (value - scalar_mean) * (value - scalar_mean); });
        row_sums<1>(squares, second);
        scalar_inverse = inverse_root(quotient(squares[0], count) + C(1e-5));
    }
};

/// The place of a thread.
template <bool IS_GATED>
struct Place {
    u32 row, rows;
    /// Where the lines of the thread's channel begin, from the first line on.
    u32 line;
    /// Threads past the last row read it, and write nothing; threads past the last channel have scalars alone.
    bool has_row, has_channel;

    GW_DEVICE Place(const SixteenPlanes& planes)
        : row(blockIdx.x * ROWS + threadIdx.x), rows(planes.rows), line((planes.scalars + thread_of_row<IS_GATED>()) * planes.rows),
          has_row(row < planes.rows), has_channel(thread_of_row<IS_GATED>() < planes.channels) {}

    GW_DEVICE u32 read() const { return has_row ? row : rows - 1; }
};

/// `gains` is [channels, grades] and `scalar_gains` [scalars]; either may be null.
template <class T, bool IS_GATED>
GW_DEVICE void norm(const SixteenPlanes& planes, const T* __restrict__ x, const T* __restrict__ gains,
                    const T* __restrict__ scalar_gains, T* __restrict__ out) {
    using C = Compute<T>;
    constexpr int WARPS = most(sizeof(T)) / 2;
    __shared__ Scratch<2, C, WARPS> first_scratch;
    __shared__ Scratch<1, C, WARPS> second_scratch;
    const Place<IS_GATED> place(planes);
    const T* const own = x + place.read();
    const OwnScalars<T, IS_GATED> scalars(own, place.rows, planes.scalars);
    C values[PLANES] = {}, norms = 0;
    if (place.has_channel) {
        read<0>(planes, own + place.line, values);
        norms = Forms<C>(planes, values).norms;
    }
    Scales<C> by{};
    if (!IS_GATED || planes.normalizes) by = Scales<C>(planes, scalars, norms, first_scratch, second_scratch);
    if (!place.has_row) return;

    const auto scalar = [&](u32 s, C value) {
        value = (value - by.scalar_mean) * by.scalar_inverse;
        return scalar_gains == nullptr ? value : value * widen(scalar_gains[s]);
    };
    // The gate's argument, then the kept scalars.
    C results[1 + SCALARS] = {}, slopes[1 + SCALARS];
    const T* const gain = gains == nullptr || !place.has_channel ? nullptr : gains + thread_of_row<IS_GATED>() * GRADES;
    results[0] = values[0] * by.scale * (gain == nullptr ? C(1) : widen(gain[0]));
#pragma unroll
    for (int k = 0; k < SCALARS; ++k) {
        const u32 s = scalars.number(k);
        if (s < planes.scalars) results[1 + k] = scalar(s, scalars.kept[k]);
    }
    if constexpr (IS_GATED) functions(planes, results, slopes);
    if (place.has_channel) {
        const C scale = IS_GATED ? by.scale * results[0] : by.scale;
        C factors[GRADES];
        read_gains(gain, factors);
#pragma unroll
        for (int grade = 0; grade < GRADES; ++grade) factors[grade] *= scale;
        T* const target = opaque(out + place.line + place.row);
#pragma unroll
        for (int i = 0; i < PLANES; ++i) write(planes, target, i, values[i] * factors[grade_of(i)]);
    }
#pragma unroll
    for (int k = 0; k < SCALARS; ++k) {
        const u32 s = scalars.number(k);
        if (s < planes.scalars) out[s * place.rows + place.row] = narrow<T>(results[1 + k]);
    }
#pragma unroll 1
    for (u32 s = scalars.number(SCALARS); s < planes.scalars; s += threads_of_row<IS_GATED>()) {
        C value = scalar(s, widen(own[s * place.rows]));
        if (IS_GATED && planes.scalar_gate != NONE) value = activation(planes.scalar_gate, value).value;
        out[s * place.rows + place.row] = narrow<T>(value);
    }
}

/// The gradient of x, and for each block sums over its rows of the gains' gradients, [gridDim.x, channels·grades + scalars]; null without
/// gains.
template <class T, bool IS_GATED>
GW_DEVICE void norm_backward(const SixteenPlanes& planes, const T* __restrict__ x, const T* __restrict__ gains,
                             const T* __restrict__ scalar_gains, const T* __restrict__ grad, T* __restrict__ grad_x,
                             Compute<T>* __restrict__ partial) {
    using C = Compute<T>;
    constexpr int WARPS = most(sizeof(T)) / 2;
    __shared__ Scratch<2, C, WARPS> first_scratch;
    __shared__ Scratch<1, C, WARPS> second_scratch;
    __shared__ Scratch<3, C, WARPS> third_scratch;
    const Place<IS_GATED> place(planes);
    const T* const own = x + place.read();
    const T* const upstream = grad + place.read();
    OwnScalars<T, IS_GATED> scalars(own, place.rows, planes.scalars);
    const T* const gain = gains == nullptr || !place.has_channel ? nullptr : gains + thread_of_row<IS_GATED>() * GRADES;

    // Gradients are read a second time after the sums: registers do not hold both, and the first cache has them.
    C values[PLANES] = {}, norms = 0;
    u32 signs = 0;
    // Σ gain·x·grad over the channels, and over the scalars Σ gain·grad and Σ gain·grad·normal.
    C sums[3] = {0, 0, 0};
    if (place.has_channel) {
        C grads[PLANES], factors[GRADES];
        read_gains(gain, factors);
        read<0>(planes, own + place.line, values);
        read<0>(planes, upstream + place.line, grads);
        const Forms<C> forms(planes, values);
        norms = forms.norms, signs = forms.signs;
        C dots[GRADES] = {};
#pragma unroll
        for (int i = 0; i < PLANES; ++i) dots[grade_of(i)] += values[i] * grads[i];
#pragma unroll
        for (int grade = 0; grade < GRADES; ++grade) sums[0] += factors[grade] * dots[grade];
    }
    // Not before: registers are full.
    C scalar_grads[SCALARS];
    scalars.keep(opaque(upstream), scalar_grads);
    const bool normalizes = !IS_GATED || planes.normalizes;
    Scales<C> by{};
    if (normalizes) by = Scales<C>(planes, scalars, norms, first_scratch, second_scratch);

    const auto scalar_gain = [&](u32 s) { return scalar_gains == nullptr ? C(1) : widen(scalar_gains[s]); };
    // The gate's argument, then the kept scalars; and what is added to the gradient of the gate's argument.
    C results[1 + SCALARS], slopes[1 + SCALARS] = {1, 1, 1}, gate = 1, added = 0;
    const C argument = values[0] * (gain == nullptr ? C(1) : widen(gain[0]));
    results[0] = by.scale * argument;
#pragma unroll
    for (int k = 0; k < SCALARS; ++k) {
        const u32 s = scalars.number(k);
        scalars.kept[k] = (scalars.kept[k] - by.scalar_mean) * by.scalar_inverse;
        results[1 + k] = s < planes.scalars ? scalars.kept[k] * scalar_gain(s) : C(0);
    }
    if constexpr (IS_GATED) {
        functions(planes, results, slopes);
        gate = results[0];
        added = slopes[0] * by.scale * sums[0];
        sums[0] = gate * sums[0] + added * argument;
    }
    // The gradient behind the function of a scalar that is not kept, whose normal value it gives besides.
    const auto scalar = [&](u32 s, C& normal) {
        normal = (widen(own[s * place.rows]) - by.scalar_mean) * by.scalar_inverse;
        const C gradient = widen(upstream[s * place.rows]);
        if (!IS_GATED || planes.scalar_gate == NONE) return gradient;
        return gradient * activation(planes.scalar_gate, normal * scalar_gain(s)).slope;
    };
    const auto add_up = [&](C scaled, C normal) {
        sums[1] += scaled;
        sums[2] += scaled * normal;
    };
#pragma unroll
    for (int k = 0; k < SCALARS; ++k) {
        const u32 s = scalars.number(k);
        scalar_grads[k] *= slopes[1 + k];
        if (s < planes.scalars) add_up(scalar_grads[k] * scalar_gain(s), scalars.kept[k]);
    }
    C through_mean = 0, mean = 0, along = 0;
    if (normalizes) {
#pragma unroll 1
        for (u32 s = scalars.number(SCALARS); s < planes.scalars; s += threads_of_row<IS_GATED>()) {
            C normal;
            const C gradient = scalar(s, normal);
            add_up(gradient * scalar_gain(s), normal);
        }
        row_sums<3>(sums, third_scratch);
        // The derivative of the scale, by way of the mean of the norms.
        through_mean = by.mean < C(planes.epsilon) ? C(0) : -sums[0] * by.scale / (by.mean * C(planes.channels));
        const C count = C(planes.scalars > 0 ? planes.scalars : 1);
        mean = quotient(sums[1], count), along = quotient(sums[2], count);
    }

    // Over the rows of a channel or scalar, whose threads are half of a warp.
    const u32 half = 0xffffu << (threadIdx.y % 2 * ROWS);
    const auto add = [&](u32 result, C value) {
        value = place.has_row ? value : C(0);
#pragma unroll
        for (int offset = ROWS / 2; offset > 0; offset /= 2) value += __shfl_xor_sync(half, value, offset);
        if (threadIdx.x == 0) partial[i64(blockIdx.x) * (planes.channels * GRADES + planes.scalars) + result] = value;
    };
    if (place.has_channel) {
        C factors[GRADES], slopes_of[GRADES], of_gains[GRADES] = {};
        read_gains(gain, factors);
#pragma unroll
        for (int grade = 0; grade < GRADES; ++grade) {
            slopes_of[grade] = signs >> grade & 1 ? through_mean : signs & BELOW << grade ? -through_mean : C(0);
            factors[grade] *= by.scale;
        }
        T* const target = opaque(grad_x + place.line + place.row);
        const auto finish = [&](int i, C upstream) {
            const C through = i == 0 ? upstream * gate + added : upstream * gate;
            of_gains[grade_of(i)] += through * values[i];
            const C result = through * factors[grade_of(i)] + slopes_of[grade_of(i)] * C(planes.factor[i]) * values[i];
            if (place.has_row) write(planes, target, i, result);
        };
        constexpr int HALF = PLANES / 2;
        C grads[HALF];
        read<0>(planes, upstream + place.line, grads);
#pragma unroll
        for (int i = 0; i < HALF; ++i) finish(i, grads[i]);
        read<HALF>(planes, upstream + place.line, grads);
#pragma unroll
        for (int i = 0; i < HALF; ++i) finish(HALF + i, grads[i]);
        if (partial != nullptr) {
#pragma unroll
            for (int grade = 0; grade < GRADES; ++grade) add(thread_of_row<IS_GATED>() * GRADES + grade, of_gains[grade] * by.scale);
        }
    }
    const auto finish = [&](u32 s, C normal, C gradient) {
        const C result = by.scalar_inverse * (gradient * scalar_gain(s) - mean - normal * along);
        if (place.has_row) grad_x[s * place.rows + place.row] = narrow<T>(result);
        if (partial != nullptr) add(planes.channels * GRADES + s, gradient * normal);
    };
#pragma unroll
    for (int k = 0; k < SCALARS; ++k) {
        if (scalars.number(k) < planes.scalars) finish(scalars.number(k), scalars.kept[k], scalar_grads[k]);
    }
#pragma unroll 1
    for (u32 s = scalars.number(SCALARS); s < planes.scalars; s += threads_of_row<IS_GATED>()) {
        C normal;
        const C gradient = scalar(s, normal);
        finish(s, normal, gradient);
    }
}

}  // namespace sixteen_planes
