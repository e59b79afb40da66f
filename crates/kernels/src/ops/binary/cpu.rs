//! Elementwise functions of two arrays on the host.

use super::{Function, Operands};
use crate::{
    Element,
    ops::{copy::Walk, split},
};

pub(super) fn run<T: Element>(operands: &Operands<'_, T>, function: &impl Function, out: &mut [T]) {
    let &Operands { sizes, left: (left, left_strides), right: (right, right_strides) } = operands;
    let Some((&columns, outer)) = sizes.split_last() else {
        if let [out, ..] = out {
            *out = function.call(left[0], right[0]);
        }
        return;
    };
    let step = (left_strides[outer.len()], right_strides[outer.len()]);
    let walk = Walk { sizes: outer, strides: [left_strides, right_strides] };
    rows(&walk, columns, out, |[a, b], first, out| {
        let (a, b) = (&left[a + first * step.0..], &right[b + first * step.1..]);
        row(function, (a, step.0), (b, step.1), out);
    });
}

/// Calls `work(offsets, first column, part of the row)` for every part of every row of `out`.
fn rows<T: Element, const N: usize>(
    walk: &Walk<'_, N>,
    columns: usize,
    out: &mut [T],
    work: impl Fn([usize; N], usize, &mut [T]) + Sync,
) {
    if out.is_empty() {
        return;
    }
    if walk.sizes.is_empty() {
        let arch = pulp::Arch::new();
        split::for_chunks(out, split::CHUNK, |start, part| {
            arch.dispatch(|| work([0; N], start, part));
        });
        return;
    }
    let rows = split::rows_per_chunk(columns);
    let arch = pulp::Arch::new();
    split::for_chunks(out, rows * columns, |start, part| {
        arch.dispatch(|| {
            let mut parts = part.chunks_exact_mut(columns);
            walk.visit(start / columns, parts.len(), |offsets| {
                if let Some(part) = parts.next() {
                    work(offsets, 0, part);
                }
            });
        });
    });
}

#[inline(always)]
fn row<T: Element>(
    function: &impl Function,
    (a, a_step): (&[T], usize),
    (b, b_step): (&[T], usize),
    out: &mut [T],
) {
    let length = out.len();
    match (a_step, b_step) {
        (1, 1) => {
            for ((out, &a), &b) in out.iter_mut().zip(&a[..length]).zip(&b[..length]) {
                *out = function.call(a, b);
            }
        }
        (1, 0) => {
            let b = b[0];
            for (out, &a) in out.iter_mut().zip(&a[..length]) {
                *out = function.call(a, b);
            }
        }
        (0, 1) => {
            let a = a[0];
            for (out, &b) in out.iter_mut().zip(&b[..length]) {
                *out = function.call(a, b);
            }
        }
        _ => {
            for (column, out) in out.iter_mut().enumerate() {
                *out = function.call(a[column * a_step], b[column * b_step]);
            }
        }
    }
}

/// `out += right`.
pub(super) fn accumulate<T: Element>(sizes: &[usize], (right, strides): (&[T], &[usize]), out: &mut [T]) {
    let Some((&columns, outer)) = sizes.split_last() else {
        if let [out, ..] = out {
            *out += right[0];
        }
        return;
    };
    let step = strides[outer.len()];
    let walk = Walk { sizes: outer, strides: [strides] };
    rows(&walk, columns, out, |[offset], first, out| {
        let right = &right[offset + first * step..];
        match step {
            1 => {
                let length = out.len();
                for (out, &b) in out.iter_mut().zip(&right[..length]) {
                    *out += b;
                }
            }
            _ => {
                for (column, out) in out.iter_mut().enumerate() {
                    *out += right[column * step];
                }
            }
        }
    });
}
