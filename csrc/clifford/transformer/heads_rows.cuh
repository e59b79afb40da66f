// The rows of a warp, for short heads: a row of one head for each of its threads (heads_short.cu, heads_16.cu).
#pragma once

#include "clifford/transformer/heads.cuh"

namespace short_heads {

/// Loads that a thread has under way.
constexpr int DEPTH = 8;

extern __shared__ __align__(16) unsigned char memory[];

/// The rows of a warp.
template <class T>
struct Rows {
    using C = Compute<T>;
    /// Elements of a row of heads that are read at once where they may be.
    static constexpr int WIDE = sizeof(T) > 4 ? 2 : 4;
    const Heads& sizes;
    int width, pitch, lane;
    i64 g, h, first;
    /// Whether this thread's row is there, and how many of the warp are.
    bool there;
    int count;
    /// The row of this thread, and those of the warp.
    C *own, *all;
    /// Where this thread's row begins in the heads, from the first of the group and head on.
    i64 place;

    /// The warps of a block have heads that follow each other; blockIdx.y counts them by group and head. `strides` are those
    /// of the heads, `bytes` what a warp has of shared memory.
    GW_DEVICE Rows(const Heads& sizes, const HeadStrides& strides, int bytes)
        : sizes(sizes), width(sizes.width()), pitch(heads::pitch(sizes.width())), lane(static_cast<int>(threadIdx.x)) {
        const i64 pair = static_cast<i64>(blockIdx.y) * blockDim.y + threadIdx.y;
        g = pair / sizes.heads;
        h = pair - g * sizes.heads;
        first = static_cast<i64>(blockIdx.x) * LANES;
        const i64 left = pair < sizes.groups * sizes.heads ? sizes.rows() - first : 0;
        count = static_cast<int>(left < LANES ? left : LANES);
        there = lane < count;
        all = reinterpret_cast<C*>(memory + static_cast<i64>(threadIdx.y) * bytes);
        own = all + lane * pitch;
        const i64 row = first + lane, b = row / sizes.items;
        place = b * strides.batch + (row - b * sizes.items) * strides.item;
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

    /// Reads the warp's rows of heads.
    GW_DEVICE void read_heads(const HeadRows<T>& heads) const {
        const T* const source = heads.of(g, h);
        const i64 distances = width | heads.strides.batch | heads.strides.item;
        if (distances % WIDE == 0 && reinterpret_cast<u64>(source) % (WIDE * sizeof(T)) == 0) return read_wide(source);
        each_element([&](int, int, i64 from) { return widen(source[from]); },
                     [&](int r, int e, i64, C value) { all[r * pitch + e] = value; });
    }
    /// The same, WIDE elements in one load.
    GW_DEVICE void read_wide(const T* source) const {
        const int units = width / WIDE;
        int r = lane / units, u = lane - r * units;
        for (int at = 0; at < units; at += DEPTH / 2) {
            C values[DEPTH / 2][WIDE];
            int targets[DEPTH / 2];
#pragma unroll
            for (int k = 0; k < DEPTH / 2; ++k) {
                const bool is_there = at + k < units && r < count;
                const i64 from = __shfl_sync(0xffffffffu, place, r & (LANES - 1)) + u * WIDE;
                load_if<WIDE>(is_there, source + (is_there ? from : 0), values[k]);
                targets[k] = is_there ? r * pitch + u * WIDE : -1;
                u += LANES;
                while (u >= units) {
                    u -= units;
                    ++r;
                }
            }
#pragma unroll
            for (int k = 0; k < DEPTH / 2; ++k) {
                if (targets[k] < 0) continue;
#pragma unroll
                for (int v = 0; v < WIDE; ++v) all[targets[k] + v] = values[k][v];
            }
        }
    }
    /// Writes them to heads of one array.
    GW_DEVICE void write_heads(T* heads, const HeadStrides& strides) const {
        T* const target = heads + g * strides.group + h * strides.head;
        each_element([&](int r, int e, i64) { return all[r * pitch + e]; },
                     [&](int, int, i64 to, C value) { target[to] = narrow<T>(value); });
    }

    /// The same, WIDE elements in one store where they may be.
    GW_DEVICE void write_heads_wide(T* heads, const HeadStrides& strides) const {
        T* const target = heads + g * strides.group + h * strides.head;
        const i64 distances = width | strides.batch | strides.item;
        if (distances % WIDE != 0 || reinterpret_cast<u64>(target) % (WIDE * sizeof(T)) != 0) return write_heads(heads, strides);
        const int units = width / WIDE;
        int r = lane / units, u = lane - r * units;
#pragma unroll 2
        for (int at = 0; at < units; ++at) {
            const i64 to = __shfl_sync(0xffffffffu, place, r & (LANES - 1)) + u * WIDE;
            if (r < count) {
                C values[WIDE];
#pragma unroll
                for (int v = 0; v < WIDE; ++v) values[v] = all[r * pitch + u * WIDE + v];
                store<WIDE>(target + to, values);
            }
            u += LANES;
            while (u >= units) {
                u -= units;
                ++r;
            }
        }
    }

    /// Multiplies the multivectors of the group of queries by the quadratic form.
    GW_DEVICE void turn_queries(const HeadForm& form, C* row) const {
        if (g != sizes.query) return;
        for (int p = 0; p < static_cast<int>(sizes.planes); ++p) {
            for (int c = 0; c < static_cast<int>(sizes.channels); ++c) row[p * sizes.channels + c] *= C(form.factors[p]);
        }
    }
};

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

}  // namespace short_heads
