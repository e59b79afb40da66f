// Short heads: split_heads and merge_heads where a warp's share of shared memory holds a row of a head for each of its threads.
//
// A warp has 32 rows of one head. Its threads read and write planes along the rows, each into a row of its own in shared memory, with which it
// computes alone; the rows of a head follow each other in memory, where the warp reads and writes them as one. Nothing waits for other warps.
// csrc/clifford/transformer/heads.cu has longer heads.
#include "clifford/transformer/heads.cuh"

namespace {

using short_heads::LANES;
/// Loads that a thread has under way.
constexpr int DEPTH = 8;

extern __shared__ __align__(16) unsigned char memory[];

/// The rows of a warp.
template <class T>
struct Rows {
    using C = Compute<T>;
    const Heads& sizes;
    int width, pitch, lane;
    i64 g, h, first;
    /// Whether this thread's row is there, and how many of the warp are.
    bool there;
    int count;
    /// The row of this thread, and those of the warp.
    C *own, *all;
    /// Where this thread's row begins in the heads.
    i64 place;

    /// The warps of a block have heads that follow each other; blockIdx.y counts them by group and head. `tiles` rows for each thread.
    GW_DEVICE Rows(const Heads& sizes, int tiles)
        : sizes(sizes), width(sizes.width()), pitch(heads::pitch(sizes.width())), lane(static_cast<int>(threadIdx.x)) {
        const i64 pair = static_cast<i64>(blockIdx.y) * blockDim.y + threadIdx.y;
        g = pair / sizes.heads;
        h = pair - g * sizes.heads;
        first = static_cast<i64>(blockIdx.x) * LANES;
        const i64 left = pair < sizes.groups * sizes.heads ? sizes.rows() - first : 0;
        count = static_cast<int>(left < LANES ? left : LANES);
        there = lane < count;
        all = reinterpret_cast<C*>(memory) + static_cast<i64>(threadIdx.y) * tiles * LANES * pitch;
        own = all + lane * pitch;
        const i64 row = first + lane, b = row / sizes.items;
        place = (((g * sizes.batch + b) * sizes.heads + h) * sizes.items + (row - b * sizes.items)) * width;
    }

    /// A row of the other tile.
    GW_DEVICE C* other() const { return own + LANES * pitch; }

    /// Calls f(element, where its line begins in the planes) for the elements of a head.
    template <class F>
    GW_DEVICE void each_line(F f) const {
        const i64 rows = sizes.rows(), plane = sizes.groups * sizes.channels * sizes.heads * rows;
        const i64 scalars = sizes.groups * sizes.scalars * sizes.heads * rows;
        const int channels = static_cast<int>(sizes.channels), planes = static_cast<int>(sizes.planes);
        for (int c = 0; c < channels; ++c) {
            const i64 line = scalars + sizes.multivector.of(g, c, h) * rows;
#pragma unroll 8
            for (int p = 0; p < planes; ++p) f(p * channels + c, line + p * plane);
        }
        const int multivectors = planes * channels;
#pragma unroll 4
        for (int s = 0; s < static_cast<int>(sizes.scalars); ++s) f(multivectors + s, sizes.scalar.of(g, s, h) * rows);
    }

    GW_DEVICE void read_planes(const T* planes, C* row) const {
        each_line([&](int e, i64 line) { row[e] = element_if(there, planes + (there ? line + first + lane : 0)); });
    }
    GW_DEVICE void write_planes(T* planes, const C* row) const {
        each_line([&](int e, i64 line) {
            if (there) planes[line + first + lane] = narrow<T>(row[e]);
        });
    }

    /// Calls f(row, element, its place in the heads) for the elements of the warp's rows that this thread has, DEPTH at a time: first `load`
    /// for all of them, so that what it reads is under way together.
    template <class Load, class F>
    GW_DEVICE void each_element(Load load, F f) const {
        int r = lane / width, e = lane - r * width;
        for (int at = 0; at < width; at += DEPTH) {
            C values[DEPTH];
            int rows[DEPTH], elements[DEPTH];
            i64 places[DEPTH];
#pragma unroll
            for (int k = 0; k < DEPTH; ++k) {
                rows[k] = at + k < width && r < count ? r : -1;
                elements[k] = e;
                places[k] = __shfl_sync(0xffffffffu, place, r & (LANES - 1)) + e;
                values[k] = rows[k] < 0 ? C(0) : load(r, e, places[k]);
                e += LANES;
                while (e >= width) {
                    e -= width;
                    ++r;
                }
            }
#pragma unroll
            for (int k = 0; k < DEPTH; ++k) {
                if (rows[k] >= 0) f(rows[k], elements[k], places[k], values[k]);
            }
        }
    }

    /// Reads the warp's rows of the heads.
    GW_DEVICE void read_heads(const T* heads) const {
        each_element([&](int, int, i64 from) { return widen(heads[from]); },
                     [&](int r, int e, i64, C value) { all[r * pitch + e] = value; });
    }
    GW_DEVICE void write_heads(T* heads) const {
        each_element([&](int r, int e, i64) { return all[r * pitch + e]; },
                     [&](int, int, i64 to, C value) { heads[to] = narrow<T>(value); });
    }

    /// Multiplies the multivectors of the group of queries by the quadratic form.
    GW_DEVICE void turn_queries(const HeadForm& form, C* row) const {
        if (g != sizes.query) return;
        for (int p = 0; p < static_cast<int>(sizes.planes); ++p) {
            for (int c = 0; c < static_cast<int>(sizes.channels); ++c) row[p * sizes.channels + c] *= C(form.factors[p]);
        }
    }
};

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

/// Mean and inverse deviation of the scalars of a row.
template <class C>
struct Spread {
    C mean = 0, inverse = 1;

    GW_DEVICE Spread(const Heads& sizes, const C* row) {
        if (sizes.scalars == 0) return;
        const int begin = sizes.multivectors(), end = sizes.width();
        C sum = 0, squares = 0;
        for (int e = begin; e < end; ++e) sum += row[e];
        mean = sum / C(sizes.scalars);
        for (int e = begin; e < end; ++e) squares += (row[e] - mean) * (row[e] - mean);
        inverse = inverse_deviation(squares, sizes.scalars);
    }
};

template <class T>
GW_DEVICE void split(const T* x, T* heads, const u32* words, const Heads& sizes, i32 is_normed, double epsilon, double gain) {
    using C = Compute<T>;
    const Rows<T> rows(sizes, 1);
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
    rows.write_heads(heads);
}

template <class T>
GW_DEVICE void merge(const T* heads, T* planes, const u32* words, const Heads& sizes) {
    const Rows<T> rows(sizes, 1);
    rows.read_heads(heads);
    __syncwarp();
    rows.turn_queries(HeadForm(words, sizes), rows.own);
    rows.write_planes(planes, rows.own);
}

/// The gradient of `split` with a norm; csrc/clifford/transformer/heads.cu has the formula.
template <class T>
GW_DEVICE void split_backward(const T* x, const T* grad, T* out, const u32* words, const Heads& sizes, double epsilon, double gain) {
    using C = Compute<T>;
    const Rows<T> rows(sizes, 2);
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

#define GW_KERNELS(T, NAME)                                                                                                    \
    extern "C" __global__ void __launch_bounds__(256, 4) gw_split_heads_short_fwd_##NAME(                                      \
        const T* x, T* heads, const u32* form, GW_PARAMETER Heads sizes, i32 is_normed, double epsilon, double gain) {         \
        begin_kernel();                                                                                                        \
        split<T>(x, heads, form, sizes, is_normed, epsilon, gain);                                                             \
    }                                                                                                                          \
    extern "C" __global__ void __launch_bounds__(256, 4) gw_split_heads_short_bwd_##NAME(                                      \
        const T* x, const T* grad, T* out, const u32* form, GW_PARAMETER Heads sizes, double epsilon, double gain) {           \
        begin_kernel();                                                                                                        \
        split_backward<T>(x, grad, out, form, sizes, epsilon, gain);                                                           \
    }                                                                                                                          \
    extern "C" __global__ void __launch_bounds__(256, 4) gw_merge_heads_short_##NAME(                                          \
        const T* heads, T* planes, const u32* form, GW_PARAMETER Heads sizes) {                                                \
        begin_kernel();                                                                                                        \
        merge<T>(heads, planes, form, sizes);                                                                                  \
    }
GW_FOR_DTYPES(GW_KERNELS)
