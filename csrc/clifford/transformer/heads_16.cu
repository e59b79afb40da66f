// split_heads with a norm for 16 planes, and its gradient: csrc/clifford/transformer/heads.cu has the formula.
//
// As heads_short.cu, but the planes of a channel are in registers, in the order of their grades, which are known when compiling. Forward
// they go to the thread's row in shared memory and are scaled there. For the gradient a thread reads x along the rows once and keeps it in
// shared memory, a column for each thread, and writes the gradient from registers.
#include "clifford/transformer/heads_rows.cuh"
#include "clifford/transformer/sixteen.cuh"

namespace {

using namespace short_heads;

/// The planes by grade: in the features bytes from the first of the channel, in a row of a head elements from the first, and the scalar part of
/// reverse(blade)·blade.
struct SixteenLines {
    u32 offset[PLANES], element[PLANES];
    float factor[PLANES];
};

/// The lines of a thread's head in the planes.
template <class T>
struct Lines {
    const SixteenLines& planes;
    const Heads& sizes;
    i64 g, h, count, row, first;

    GW_DEVICE Lines(const SixteenLines& planes, const Heads& sizes, const Rows<T>& rows)
        : planes(planes), sizes(sizes), g(rows.g), h(rows.h), count(sizes.rows()), row(rows.first + (rows.there ? rows.lane : 0)),
          first(sizes.groups * sizes.scalars * sizes.heads) {}

    /// Places in the planes.
    GW_DEVICE i64 channel(int c) const { return (first + sizes.multivector.of(g, c, h)) * count + row; }
    GW_DEVICE i64 scalar(int s) const { return sizes.scalar.of(g, s, h) * count + row; }

    GW_DEVICE void read(const T* x, int c, Compute<T> (&values)[PLANES]) const {
        const auto* const base = reinterpret_cast<const char*>(x + channel(c));
#pragma unroll
        for (int i = 0; i < PLANES; ++i) values[i] = widen(*reinterpret_cast<const T*>(base + planes.offset[i]));
    }
};

/// The sum of the norms of the grades.
template <class C>
GW_DEVICE C sum_of_norms(const SquareSum<C> (&forms)[GRADES]) {
    C norms = 0;
#pragma unroll
    for (int grade = 0; grade < GRADES; ++grade) {
        const C form = forms[grade].value();
        norms += form < 0 ? -form : form;
    }
    return norms;
}

template <class T>
GW_DEVICE void split(const T* x, T* heads, const SixteenLines& planes, const Heads& sizes, double epsilon, double gain) {
    using C = Compute<T>;
    const HeadStrides strides = together(sizes);
    const Rows<T> rows(sizes, strides, shared(1, sizes.width(), sizeof(C)));
    if (rows.count <= 0) return;
    const Lines<T> lines(planes, sizes, rows);
    const int channels = static_cast<int>(sizes.channels), scalars = static_cast<int>(sizes.scalars), multivectors = PLANES * channels;
    C* const own = rows.own;
    C norms = 0;
#pragma unroll 1
    for (int c = 0; c < channels; ++c) {
        C values[PLANES];
        lines.read(x, c, values);
        SquareSum<C> forms[GRADES];
#pragma unroll
        for (int i = 0; i < PLANES; ++i) {
            forms[grade_of(i)].add(C(planes.factor[i]), values[i]);
            own[planes.element[i] + c] = values[i];
        }
        norms += sum_of_norms(forms);
    }
    C sum = 0;
#pragma unroll 4
    for (int s = 0; s < scalars; ++s) {
        const C value = widen(x[lines.scalar(s)]);
        own[multivectors + s] = value;
        sum += value;
    }
    const C norm = norms / C(channels), least = C(epsilon);
    const C scale = C(gain) / root(norm < least ? least : norm);
    const bool is_query = rows.g == sizes.query;
#pragma unroll 1
    for (int c = 0; c < channels; ++c) {
#pragma unroll
        for (int i = 0; i < PLANES; ++i) own[planes.element[i] + c] *= is_query ? scale * C(planes.factor[i]) : scale;
    }
    if (scalars > 0) {
        const C mean = sum / C(scalars);
        C squares = 0;
        for (int s = multivectors; s < multivectors + scalars; ++s) squares += (own[s] - mean) * (own[s] - mean);
        const C inverse = inverse_deviation(squares, scalars);
        for (int s = multivectors; s < multivectors + scalars; ++s) own[s] = (own[s] - mean) * inverse;
    }
    __syncwarp();
    rows.write_heads_wide(heads, strides);
}

template <class T>
GW_DEVICE void split_backward(const T* x, const HeadRows<T>& grad, T* out, const SixteenLines& planes, const Heads& sizes, double epsilon,
                              double gain) {
    using C = Compute<T>;
    const Rows<T> rows(sizes, grad.strides, shared_16(sizes.width(), sizeof(C)));
    const int channels = static_cast<int>(sizes.channels), scalars = static_cast<int>(sizes.scalars), multivectors = PLANES * channels;
    const Lines<T> lines(planes, sizes, rows);
    C values[PLANES] = {};
    // Under way while the rows of the gradient are. Warps past the last head read nothing.
    if (rows.count > 0) lines.read(x, 0, values);
    rows.read_heads(grad);
    __syncwarp();
    if (rows.count <= 0) return;

    // The elements of x, each thread's own LANES apart.
    C* const kept = rows.all + LANES * rows.pitch + rows.lane;
    const C* const slope = rows.own;
    const bool is_query = rows.g == sizes.query;
    const auto turned = [&](int i, int c) {
        const C upstream = slope[planes.element[i] + c];
        return is_query ? upstream * C(planes.factor[i]) : upstream;
    };
    C norms = 0, along = 0;
#pragma unroll 1
    for (int c = 0; c < channels; ++c) {
        SquareSum<C> forms[GRADES];
#pragma unroll
        for (int i = 0; i < PLANES; ++i) {
            forms[grade_of(i)].add(C(planes.factor[i]), values[i]);
            along += turned(i, c) * values[i];
            kept[(planes.element[i] + c) * LANES] = values[i];
        }
        norms += sum_of_norms(forms);
        if (c + 1 < channels) lines.read(x, c + 1, values);
    }
    const C norm = norms / C(channels), least = C(epsilon), clamped = norm < least ? least : norm;
    const C scale = C(gain) / root(clamped);
    const C pull = norm < least ? C(0) : scale * along / (C(channels) * clamped);
#pragma unroll 1
    for (int c = 0; c < channels; ++c) {
        SquareSum<C> forms[GRADES];
#pragma unroll
        for (int i = 0; i < PLANES; ++i) {
            values[i] = kept[(planes.element[i] + c) * LANES];
            forms[grade_of(i)].add(C(planes.factor[i]), values[i]);
        }
        C pulls[GRADES];
#pragma unroll
        for (int grade = 0; grade < GRADES; ++grade) {
            const C form = forms[grade].value();
            pulls[grade] = form > 0 ? pull : form < 0 ? -pull : C(0);
        }
        auto* const base = reinterpret_cast<char*>(out + lines.channel(c));
#pragma unroll
        for (int i = 0; i < PLANES; ++i) {
            const C result = scale * turned(i, c) - pulls[grade_of(i)] * C(planes.factor[i]) * values[i];
            if (rows.there) *reinterpret_cast<T*>(base + planes.offset[i]) = narrow<T>(result);
        }
    }
    if (scalars == 0) return;
    C sum = 0, slopes = 0;
#pragma unroll 4
    for (int s = 0; s < scalars; ++s) {
        const C value = widen(x[lines.scalar(s)]);
        kept[(multivectors + s) * LANES] = value;
        sum += value;
        slopes += slope[multivectors + s];
    }
    const C mean = sum / C(scalars), mean_slope = slopes / C(scalars);
    C squares = 0, products = 0;
    for (int s = 0; s < scalars; ++s) {
        const C difference = kept[(multivectors + s) * LANES] - mean;
        squares += difference * difference;
        products += slope[multivectors + s] * difference;
    }
    const C inverse = inverse_deviation(squares, scalars), bend = products / C(scalars) * inverse * inverse;
    if (!rows.there) return;
#pragma unroll 4
    for (int s = 0; s < scalars; ++s) {
        const C difference = kept[(multivectors + s) * LANES] - mean;
        out[lines.scalar(s)] = narrow<T>(inverse * (slope[multivectors + s] - mean_slope - difference * bend));
    }
}

}  // namespace

#define GW_KERNELS(T, NAME)                                                                                                      \
    extern "C" __global__ void __launch_bounds__(256, sizeof(T) > 4 ? 2 : 4) gw_split_heads_16_fwd_##NAME(                       \
        const T* x, T* heads, const __grid_constant__ SixteenLines planes, GW_PARAMETER Heads sizes, double epsilon,             \
        double gain) {                                                                                                           \
        begin_kernel();                                                                                                          \
        split<T>(x, heads, planes, sizes, epsilon, gain);                                                                        \
    }                                                                                                                            \
    extern "C" __global__ void __launch_bounds__(256, sizeof(T) > 4 ? 2 : 3) gw_split_heads_16_bwd_##NAME(                       \
        const T* x, const T* first, const T* second, const T* third, T* out, const __grid_constant__ SixteenLines planes,        \
        GW_PARAMETER Heads sizes, HeadStrides strides, double epsilon, double gain) {                                            \
        begin_kernel();                                                                                                          \
        split_backward<T>(x, HeadRows<T>{{first, second, third}, strides}, out, planes, sizes, epsilon, gain);                   \
    }
GW_FOR_DTYPES(GW_KERNELS)
