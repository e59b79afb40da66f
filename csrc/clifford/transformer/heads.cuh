// Sizes of the heads of an attention, and the quadratic form that their norm takes (split_heads, merge_heads).
#pragma once

#include "clifford/transformer/heads_launch.cuh"
#include "clifford/pointwise/square_sum.cuh"
#include "gradewise/math.cuh"
#include "gradewise/strided.cuh"

/// Added to the variance of a head's scalars.
constexpr double HEAD_SCALAR_EPSILON = 1e-5;

/// The line of channel c of head h in group g is group·g + channel·c + head·h, counted from the first of its plane or of the scalars.
struct HeadLines {
    i64 group, channel, head;

    GW_DEVICE i64 of(i64 g, i64 c, i64 h) const { return group * g + channel * c + head * h; }
};

struct Heads {
    i64 groups, batch, heads, items;
    /// Of one head: planes, channels of each, scalars.
    i64 planes, channels, scalars;
    HeadLines multivector, scalar;
    /// Rows of a tile, a power of two.
    i64 tile;
    /// The group that is multiplied by the quadratic form, or -1.
    i64 query;
    /// Grades of the planes; 0 where nothing reads the quadratic form.
    i64 grades;

    GW_DEVICE i64 rows() const { return batch * items; }
    GW_DEVICE int multivectors() const { return static_cast<int>(planes * channels); }
    GW_DEVICE int width() const { return static_cast<int>(planes * channels + scalars); }
};

/// The strides of `HeadRows`.
struct HeadStrides {
    i64 group, batch, head, item;
};

/// Of heads in one array, one row behind the other.
GW_DEVICE HeadStrides together(const Heads& sizes) {
    const i64 item = sizes.width(), head = item * sizes.items, batch = head * sizes.heads;
    return {batch * sizes.batch, batch, head, item};
}

/// Where a kernel reads heads: the rows of each group in an array of their own, of any strides in elements but that a row is in one piece.
template <class T>
struct HeadRows {
    const T* groups[3];
    /// That of groups is 0 where each has an array.
    HeadStrides strides;

    GW_DEVICE const T* of(i64 g, i64 h) const {
        const T* const own = strides.group != 0 || g == 0 ? groups[0] + g * strides.group : g == 1 ? groups[1] : groups[2];
        return own + h * strides.head;
    }
};

/// The quadratic form: the factor of each plane (-1, 0 or 1), then where the list of each grade begins and one past the last, then the
/// planes by grade.
struct HeadForm {
    const i32* factors;
    const u32 *first, *list;

    GW_DEVICE HeadForm(const u32* words, const Heads& sizes)
        : factors(reinterpret_cast<const i32*>(words)), first(words + sizes.planes), list(first + sizes.grades + 1) {}
};

/// The quadratic form of a grade of one channel: Σ factor·x² over its planes.
template <class C>
GW_DEVICE C quadratic_form(const HeadForm& form, i64 grade, const C* x, int channels) {
    SquareSum<C> sum;
    for (u32 i = form.first[grade]; i < form.first[grade + 1]; ++i) {
        const u32 p = form.list[i];
        sum.add(C(form.factors[p]), x[p * channels]);
    }
    return sum.value();
}

template <class C>
GW_DEVICE C inverse_deviation(C squares, i64 scalars) {
    return C(1) / root(squares / C(scalars) + C(HEAD_SCALAR_EPSILON));
}
