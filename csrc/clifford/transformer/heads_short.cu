// Short heads: split_heads and merge_heads where a warp's share of shared memory holds a row of a head for each of its threads.
//
// A warp has 32 rows of one head. Its threads read and write planes along the rows, each into a row of its own in shared memory, with which it
// computes alone; the rows of a head follow each other in memory, where the warp reads and writes them as one. Nothing waits for other warps.
// csrc/clifford/transformer/heads.cu has longer heads.
#include "clifford/transformer/heads_rows.cuh"

namespace {

using namespace short_heads;

/// Σ |q| over grades and channels of a row.
template <class C>
GW_DEVICE C norms_of_row(const HeadForm& form, const Heads& sizes, const C* row) {
    C sum = 0;
    for (int c = 0; c < static_cast<int>(sizes.channels); ++c) {
        for (i64 grade = 0; grade < sizes.grades; ++grade) {
            const C q = quadratic_form(form, grade, row + c, static_cast<int>(sizes.channels));
            sum += q < C(0) ? -q : q;
        }
    }
    return sum;
}

template <class T>
GW_DEVICE void split(const T* x, T* heads, const u32* words, const Heads& sizes, i32 is_normed, double epsilon, double gain) {
    using C = Compute<T>;
    const HeadStrides strides = together(sizes);
    const Rows<T> rows(sizes, strides, shared(1, sizes.width(), sizeof(C)));
    const HeadForm form(words, sizes);
    rows.read_planes(x, rows.own);
    if (is_normed) {
        const C norm = norms_of_row(form, sizes, rows.own) / C(sizes.channels), least = C(epsilon);
        const C scale = C(gain) / root(norm < least ? least : norm);
        const Spread<C> spread(sizes, rows.own);
        for (int e = 0; e < sizes.multivectors(); ++e) rows.own[e] *= scale;
        for (int e = sizes.multivectors(); e < rows.width; ++e) rows.own[e] = (rows.own[e] - spread.mean) * spread.inverse;
    }
    rows.turn_queries(form, rows.own);
    __syncwarp();
    rows.write_heads(heads, strides);
}

template <class T>
GW_DEVICE void merge(const HeadRows<T>& heads, T* planes, const u32* words, const Heads& sizes) {
    const Rows<T> rows(sizes, heads.strides, shared(1, sizes.width(), sizeof(Compute<T>)));
    rows.read_heads(heads);
    __syncwarp();
    rows.turn_queries(HeadForm(words, sizes), rows.own);
    rows.write_planes(planes, rows.own);
}

/// The gradient of `split` with a norm; csrc/clifford/transformer/heads.cu has the formula.
template <class T>
GW_DEVICE void split_backward(const T* x, const HeadRows<T>& grad, T* out, const u32* words, const Heads& sizes, double epsilon, double gain) {
    using C = Compute<T>;
    const Rows<T> rows(sizes, grad.strides, shared(2, sizes.width(), sizeof(C)));
    const HeadForm form(words, sizes);
    rows.read_heads(grad);
    C* const row = rows.other();
    rows.read_planes(x, row);
    __syncwarp();
    C* const slope = rows.own;
    if (rows.there) {
        rows.turn_queries(form, slope);
        const int multivectors = sizes.multivectors(), channels = static_cast<int>(sizes.channels);
        const C norm = norms_of_row(form, sizes, row) / C(sizes.channels), least = C(epsilon), clamped = norm < least ? least : norm;
        const C scale = C(gain) / root(clamped);
        C along = 0;
        for (int e = 0; e < multivectors; ++e) along += slope[e] * row[e];
        const C pull = norm < least ? C(0) : scale * along / (C(sizes.channels) * clamped);
        for (int c = 0; c < channels; ++c) {
            for (i64 grade = 0; grade < sizes.grades; ++grade) {
                const C q = quadratic_form(form, grade, row + c, channels);
                const C sign = q > C(0) ? pull : q < C(0) ? -pull : C(0);
                for (u32 i = form.first[grade]; i < form.first[grade + 1]; ++i) {
                    const int p = static_cast<int>(form.list[i]), e = p * channels + c;
                    slope[e] = scale * slope[e] - sign * C(form.factors[p]) * row[e];
                }
            }
        }
        if (sizes.scalars > 0) {
            const Spread<C> spread(sizes, row);
            C sum = 0, products = 0;
            for (int e = multivectors; e < rows.width; ++e) {
                sum += slope[e];
                products += slope[e] * (row[e] - spread.mean);
            }
            const C mean = sum / C(sizes.scalars), bend = products / C(sizes.scalars) * spread.inverse * spread.inverse;
            for (int e = multivectors; e < rows.width; ++e) {
                slope[e] = spread.inverse * (slope[e] - mean - (row[e] - spread.mean) * bend);
            }
        }
    }
    rows.write_planes(out, slope);
}

}  // namespace

/// Blocks that a multiprocessor is to have at once. From compute capability 10.0 on the compiler needs more than the 80 registers of three.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
#define GW_BLOCKS 2
#else
#define GW_BLOCKS 4
#endif

#define GW_KERNELS(T, NAME)                                                                                                    \
    extern "C" __global__ void __launch_bounds__(256, GW_BLOCKS) gw_split_heads_short_fwd_##NAME(                              \
        const T* x, T* heads, const u32* form, GW_PARAMETER Heads sizes, i32 is_normed, double epsilon, double gain) {         \
        begin_kernel();                                                                                                        \
        split<T>(x, heads, form, sizes, is_normed, epsilon, gain);                                                             \
    }                                                                                                                          \
    extern "C" __global__ void __launch_bounds__(256, GW_BLOCKS) gw_split_heads_short_bwd_##NAME(                              \
        const T* x, const T* first, const T* second, const T* third, T* out, const u32* form, GW_PARAMETER Heads sizes,        \
        HeadStrides strides, double epsilon, double gain) {                                                                    \
        begin_kernel();                                                                                                        \
        split_backward<T>(x, HeadRows<T>{{first, second, third}, strides}, out, form, sizes, epsilon, gain);                   \
    }                                                                                                                          \
    extern "C" __global__ void __launch_bounds__(256, GW_BLOCKS) gw_merge_heads_short_##NAME(                                  \
        const T* first, const T* second, const T* third, T* planes, const u32* form, GW_PARAMETER Heads sizes,                 \
        HeadStrides strides) {                                                                                                 \
        begin_kernel();                                                                                                        \
        merge<T>(HeadRows<T>{{first, second, third}, strides}, planes, form, sizes);                                           \
    }
GW_FOR_DTYPES(GW_KERNELS)
