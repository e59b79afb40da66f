// The gradient of split_heads with a norm for 16 planes: csrc/clifford/transformer/heads.cu has the formula.
//
// As heads_short.cu, but the planes of a channel are in registers, in the order of their grades, which are known when compiling. A thread reads
// x along the rows once and keeps it in shared memory, a column for each thread, and writes the gradient from registers.
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

template <class T>
GW_DEVICE void split_backward(const T* x, const HeadRows<T>& grad, T* out, const SixteenLines& planes, const Heads& sizes, double epsilon,
                              double gain) {
    using C = Compute<T>;
    const Rows<T> rows(sizes, grad.strides, shared_16(sizes.width(), sizeof(C)));
    const int channels = static_cast<int>(sizes.channels), scalars = static_cast<int>(sizes.scalars), multivectors = PLANES * channels;
    const i64 count = sizes.rows(), first = sizes.groups * sizes.scalars * sizes.heads;
    const i64 row = rows.first + (rows.there ? rows.lane : 0);
    const auto channel_at = [&](int c) { return (first + sizes.multivector.of(rows.g, c, rows.h)) * count + row; };
    const auto scalar_at = [&](int s) { return sizes.scalar.of(rows.g, s, rows.h) * count + row; };
    C values[PLANES] = {};
    // Warps past the last head read nothing.
    const auto read_channel = [&](int c) {
        if (rows.count <= 0) return;
        const auto* const base = reinterpret_cast<const char*>(x + channel_at(c));
#pragma unroll
        for (int i = 0; i < PLANES; ++i) values[i] = widen(*reinterpret_cast<const T*>(base + planes.offset[i]));
    };
    // Under way while the rows of the gradient are.
    read_channel(0);
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
#pragma unroll
        for (int grade = 0; grade < GRADES; ++grade) {
            const C form = forms[grade].value();
            norms += form < 0 ? -form : form;
        }
        if (c + 1 < channels) read_channel(c + 1);
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
        auto* const base = reinterpret_cast<char*>(out + channel_at(c));
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
        const C value = widen(x[scalar_at(s)]);
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
        out[scalar_at(s)] = narrow<T>(inverse * (slope[multivectors + s] - mean_slope - difference * bend));
    }
}

}  // namespace

#define GW_KERNELS(T, NAME)                                                                                                      \
    extern "C" __global__ void __launch_bounds__(256, sizeof(T) > 4 ? 2 : 3) gw_split_heads_16_bwd_##NAME(                       \
        const T* x, const T* first, const T* second, const T* third, T* out, const __grid_constant__ SixteenLines planes,        \
        GW_PARAMETER Heads sizes, HeadStrides strides, double epsilon, double gain) {                                            \
        begin_kernel();                                                                                                          \
        split_backward<T>(x, HeadRows<T>{{first, second, third}, strides}, out, planes, sizes, epsilon, gain);                   \
    }
GW_FOR_DTYPES(GW_KERNELS)
