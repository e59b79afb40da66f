//! Strided copies on the host.

use crate::array::layout::{Walk, collapse};
use crate::{Element, cpu::split};

/// Side of the square tiles in which transposed data is read, so that the cache lines of a tile's rows are all in L1.
const TILE: usize = 16;

/// Copies the elements of one strided view to the positions of another of the same sizes. Positions of the target are
/// distinct and its strides those of a part of a row-major array; both slices begin at the view's first element.
pub(crate) fn copy_into<T: Element>(
    sizes: &[usize],
    (source, source_strides): (&[T], &[usize]),
    (target, target_strides): (&mut [T], &[usize]),
) {
    if sizes.contains(&0) {
        return;
    }
    let (sizes, [from, to]) = collapse(sizes, [source_strides, target_strides]);
    let Some((&columns, outer)) = sizes.split_last() else {
        target[0] = source[0];
        return;
    };
    let (from_step, to_step) = (from[from.len() - 1], to[to.len() - 1]);
    if let ([outer @ .., rows], true) = (outer, from_step != 1 && to_step == 1)
        && from[outer.len()] == 1
        && from_step != 0
    {
        let walk = Walk { sizes: outer, strides: [&from, &to] };
        let row_step = to[outer.len()];
        for [from, to] in walk.offsets(0).take(walk.len()) {
            transpose((*rows, columns), &source[from..], from_step, &mut target[to..], row_step);
        }
        return;
    }
    let walk = Walk { sizes: outer, strides: [&from, &to] };
    if let [leading, ..] = to[..]
        && leading * sizes[0] >= split::PARALLEL
        && !outer.is_empty()
        && walk.len() * columns >= split::PARALLEL
    {
        // The leading axis divides the target into separate stretches.
        let inner = walk.len() / sizes[0];
        let rows = split::rows_per_chunk(inner * columns);
        let end = target.len().min(leading * sizes[0]);
        split::for_chunks(&mut target[..end], leading * rows, |start, target| {
            let first = start / leading;
            let count = rows.min(sizes[0] - first) * inner;
            for [from, to] in walk.offsets(first * inner).take(count) {
                copy_row(&source[from..], from_step, &mut target[to - start..], to_step, columns);
            }
        });
    } else {
        for [from, to] in walk.offsets(0).take(walk.len()) {
            copy_row(&source[from..], from_step, &mut target[to..], to_step, columns);
        }
    }
}

#[inline(always)]
pub(super) fn copy_row<T: Element>(source: &[T], from: usize, target: &mut [T], to: usize, columns: usize) {
    match (from, to) {
        (1, 1) => target[..columns].copy_from_slice(&source[..columns]),
        (0, 1) => target[..columns].fill(source[0]),
        (_, 1) => {
            for (column, target) in target[..columns].iter_mut().enumerate() {
                *target = source[column * from];
            }
        }
        _ => {
            for column in 0..columns {
                target[column * to] = source[column * from];
            }
        }
    }
}

/// `target[r·row_step + c] = source[r + c·step]`.
fn transpose<T: Element>(
    (rows, columns): (usize, usize),
    source: &[T],
    step: usize,
    target: &mut [T],
    row_step: usize,
) {
    for row in (0..rows).step_by(TILE) {
        for column in (0..columns).step_by(TILE) {
            for r in row..rows.min(row + TILE) {
                for c in column..columns.min(column + TILE) {
                    target[r * row_step + c] = source[r + c * step];
                }
            }
        }
    }
}
