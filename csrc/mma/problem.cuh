// The problem that a launch of a tile product computes.
#pragma once

#include "gradewise/types.cuh"
#include "mma/tiles_launch.cuh"

/// C[z] = alpha·Σ_segments A[a]·B[b] (+ bias) (+ what C held), with C[z] m×n, each A m×k, each B k×n.
///
/// One launch computes all z. The segments of z are numbered starts[z] to before starts[z + 1], or there is one, z, if `starts` is
/// null. Segment s reads A at a + a_index[s]·a_stride and B at b + b_index[s]·b_stride; a null index stands for s itself. Sums over
/// the blades of a grade, sums over the paths of a result, and broadcast batches are all expressed this way.
///
/// A is stored m×k (or k×m if the kernel transposes it) with rows `lda` apart, B k×n (or n×k) with rows `ldb` apart, C row-major
/// and contiguous. With splits > 1, the sum over segments and k is cut into that many stretches; stretch i of z is written to
/// partial[i, z, m, n] in compute precision instead.
struct Problem {
    const void* a;
    const void* b;
    void* c;
    const void* bias;
    const i32* starts;
    const i32* a_index;
    const i32* b_index;
    i64 m, n, k;
    i64 lda, ldb;
    i64 a_stride, b_stride, c_stride;
    double alpha;
    /// The bias [n] is added at z from bias_first to before bias_last.
    i32 bias_first, bias_last;
    i32 splits;
    i32 accumulate;
    /// Whether 16-byte loads of A and B are aligned everywhere.
    i32 a_aligned, b_aligned;
};

/// The part of a problem that one block computes. The grid is linear: column tiles, row tiles, stretches, z.
template <class T>
struct Part {
    const Problem& problem;
    i64 z, row, column;
    /// The first segment, and steps of `step` along k per segment.
    i64 first, steps_per_segment;
    int step;
    /// This block's steps, counted over all segments of z.
    i64 begin, end;
    i64 split, count;

    GW_DEVICE Part(const Problem& p, int tile_m, int tile_n, int step) : problem(p), step(step) {
        // Adjacent blocks share rows of A, which is the larger operand.
        const u32 rows = static_cast<u32>((p.m + tile_m - 1) / tile_m), columns = static_cast<u32>((p.n + tile_n - 1) / tile_n);
        const u32 layer = blockIdx.x / columns / rows;
        column = static_cast<i64>(blockIdx.x % columns) * tile_n;
        row = static_cast<i64>(blockIdx.x / columns % rows) * tile_m;
        split = layer % p.splits;
        z = layer / p.splits;
        count = gridDim.x / columns / rows / p.splits;
        first = p.starts == nullptr ? z : p.starts[z];
        const i64 segments = p.starts == nullptr ? 1 : p.starts[z + 1] - first;
        steps_per_segment = (p.k + step - 1) / step;
        const i64 total = segments * steps_per_segment;
        const i64 share = (total + p.splits - 1) / p.splits;
        begin = split * share;
        if (begin > total) begin = total;
        end = begin + share < total ? begin + share : total;
    }

    /// The operands of the next step: the segment's matrices, and the position along k.
    struct Cursor {
        const T *a, *b;
        i64 segment, depth;
    };

    /// The cursor of the block's first step; null pointers if it has none.
    GW_DEVICE Cursor start() const {
        if (begin == end) return {};
        const i64 segment = begin / steps_per_segment;
        return {a(segment), b(segment), segment, begin % steps_per_segment * step};
    }

    /// Moves to the next step. There must be one.
    GW_DEVICE void advance(Cursor& cursor) const {
        cursor.depth += step;
        if (cursor.depth < problem.k) return;
        cursor.depth = 0;
        ++cursor.segment;
        cursor.a = a(cursor.segment);
        cursor.b = b(cursor.segment);
    }

    GW_DEVICE const T* a(i64 segment) const {
        const i64 at = p_index(problem.a_index, first + segment);
        return static_cast<const T*>(problem.a) + at * problem.a_stride;
    }

    GW_DEVICE const T* b(i64 segment) const {
        const i64 at = p_index(problem.b_index, first + segment);
        return static_cast<const T*>(problem.b) + at * problem.b_stride;
    }

    /// Writes two adjacent elements of a row, the first in an even column.
    GW_DEVICE void write_pair(i64 i, i64 j, Compute<T> first, Compute<T> second) const {
        using C = Compute<T>;
        const Problem& p = problem;
        const bool plain = p.splits == 1 && p.bias == nullptr && !p.accumulate;
        T* target = static_cast<T*>(p.c) + z * p.c_stride + i * p.n + j;
        const bool aligned = p.n % 2 == 0 && reinterpret_cast<u64>(p.c) % (2 * sizeof(T)) == 0;
        if (plain && aligned && i < p.m && j < p.n) {
            const C values[2] = {first * C(p.alpha), second * C(p.alpha)};
            store<2>(target, values);
        } else {
            write(i, j, first);
            write(i, j + 1, second);
        }
    }

    /// Writes one element of the result.
    GW_DEVICE void write(i64 i, i64 j, Compute<T> sum) const {
        using C = Compute<T>;
        const Problem& p = problem;
        if (i >= p.m || j >= p.n) return;
        const i64 at = i * p.n + j;
        C value = sum * C(p.alpha);
        if (p.splits > 1) {
            static_cast<C*>(p.c)[(split * count + z) * p.m * p.n + at] = value;
            return;
        }
        if (p.bias != nullptr && z >= p.bias_first && z < p.bias_last) value += widen(static_cast<const T*>(p.bias)[j]);
        T* target = static_cast<T*>(p.c) + z * p.c_stride + at;
        if (p.accumulate) value += widen(*target);
        *target = narrow<T>(value);
    }

  private:
    GW_DEVICE static i64 p_index(const i32* index, i64 segment) { return index == nullptr ? segment : index[segment]; }
};
