// The convolution of fields, as its kernels see it: which position of one field meets which position of the other under each tap.
#pragma once

#include "gradewise/types.cuh"

/// One field, the source, is read at the taps around each position of another, the target.
///
/// The target is [target blades, sample, extents[0..3], groups · out_channels], the source [source blades, sample, source_extents[0..3],
/// groups · channels]; fields of fewer axes have leading extents of 1. A row is a position of the target over all samples. The sum over
/// source blade, tap and channel has one flat index of `depth` = blades · taps · channels terms, channels innermost.
///
/// With `adjoint` 0, target position p and tap t meet source position p·stride + t·dilation − before. With `adjoint` 1, they meet
/// (p + before − t·dilation)/stride, where that is whole: the roles of the fields are exchanged.
struct FieldProblem {
    const void* source;
    /// The other operand: in the gradient of the kernel, the target; otherwise the kernel [groups, target blades · out_channels,
    /// depth].
    const void* other;
    void* out;
    i64 rows;
    /// Elements of one blade of the source.
    i64 source_plane;
    i64 depth;
    /// Target blades · out_channels, of one group.
    i32 columns;
    i32 channels, out_channels, groups, source_blades;
    i32 taps[3], extents[3], source_extents[3], stride[3], dilation[3], before[3];
    i32 adjoint;
    /// Number of stretches that the kernel's gradient cuts its sum over rows into.
    i32 splits;
};

/// A place on the flat axis of the sum: source blade, tap, channel.
struct Term {
    i32 blade, tap[3], channel;

    GW_DEVICE Term(const FieldProblem& p, i64 k) {
        const u32 per_blade = static_cast<u32>(p.taps[0]) * p.taps[1] * p.taps[2] * p.channels;
        blade = static_cast<i32>(k / per_blade);
        u32 rest = static_cast<u32>(k - static_cast<i64>(blade) * per_blade);
        channel = rest % p.channels;
        rest /= p.channels;
        tap[2] = rest % p.taps[2];
        rest /= p.taps[2];
        tap[1] = rest % p.taps[1];
        tap[0] = rest / p.taps[1];
    }

    /// Advances by `step` terms. Returns whether the tap is still the same.
    GW_DEVICE bool advance(const FieldProblem& p, i32 step) {
        channel += step;
        if (channel < p.channels) return true;
        do {
            channel -= p.channels;
            if (++tap[2] < p.taps[2]) continue;
            tap[2] = 0;
            if (++tap[1] < p.taps[1]) continue;
            tap[1] = 0;
            if (++tap[0] < p.taps[0]) continue;
            tap[0] = 0;
            ++blade;
        } while (channel >= p.channels);
        return false;
    }
};

/// A row of the target: its sample, and along each axis the source position of tap 0 (times the stride, if adjoint).
struct Row {
    i32 sample, at[3];

    /// Rows past the end meet no source position.
    GW_DEVICE Row(const FieldProblem& p, i64 row) {
        if (row >= p.rows) {
            sample = 0;
            at[0] = at[1] = at[2] = -(1 << 30);
            return;
        }
        u32 rest = static_cast<u32>(row);
#pragma unroll
        for (int axis = 2; axis >= 0; --axis) {
            const i32 position = rest % p.extents[axis];
            rest /= p.extents[axis];
            at[axis] = p.adjoint ? position + p.before[axis] : position * p.stride[axis] - p.before[axis];
        }
        sample = rest;
    }

    GW_DEVICE Row() : sample(0), at{0, 0, 0} {}

    /// Returns whether a source position meets this row at the term's tap; `offset` is then that element of the source, for channel
    /// 0 of group 0.
    GW_DEVICE bool meets(const FieldProblem& p, const Term& term, i64& offset) const {
        i64 index = sample;
#pragma unroll
        for (int axis = 0; axis < 3; ++axis) {
            const i32 shift = term.tap[axis] * p.dilation[axis];
            i32 position = p.adjoint ? at[axis] - shift : at[axis] + shift;
            if (p.adjoint && p.stride[axis] > 1) {
                if (position < 0 || position % p.stride[axis] != 0) return false;
                position /= p.stride[axis];
            }
            if (static_cast<u32>(position) >= static_cast<u32>(p.source_extents[axis])) return false;
            index = index * p.source_extents[axis] + position;
        }
        offset = index * p.channels * p.groups + term.blade * p.source_plane;
        return term.blade < p.source_blades;
    }
};

/// The offset of element (blade · out_channels + channel) of a group in the target, at row 0.
GW_DEVICE i64 target_offset(const FieldProblem& p, i32 group, i32 column) {
    const i32 blade = column / p.out_channels, channel = column - blade * p.out_channels;
    return (blade * p.rows * p.groups + group) * p.out_channels + channel;
}

/// The index of row (blade · out_channels + channel) of a group in the kernel's gradient [target blades, groups · out_channels,
/// depth].
GW_DEVICE i64 gradient_row(const FieldProblem& p, i32 group, i32 column) {
    const i32 blade = column / p.out_channels, channel = column - blade * p.out_channels;
    return ((static_cast<i64>(blade) * p.groups + group) * p.out_channels + channel) * p.depth;
}
