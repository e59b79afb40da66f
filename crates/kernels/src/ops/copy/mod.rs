//! Strided copies: from a view to adjacent elements.

use crate::{Array, Element, Result, element::with_element};

mod layout;
pub(crate) use layout::collapse;

/// Side of the square tiles in which transposed data is read, so that the cache lines of a tile's rows are all in L1.
const TILE: usize = 16;

/// A contiguous copy of a view, in storage of its own.
pub(crate) fn contiguous(array: &Array) -> Result<Array> {
    with_element!(array.dtype(), "contiguous", T => {
        let storage = array.storage_slice::<T>("contiguous")?;
        Array::build(array.shape(), &array.device(), |out: &mut [T]| {
            gather_into(storage, array.offset(), array.dims(), array.strides(), out);
        })
    })
}

/// Writes the elements of a strided view, in row-major order, to `out`.
pub(crate) fn gather_into<T: Element>(
    storage: &[T],
    offset: usize,
    sizes: &[usize],
    strides: &[usize],
    out: &mut [T],
) {
    if out.is_empty() {
        return;
    }
    let (sizes, [strides]) = collapse(sizes, [strides]);
    match (sizes.as_slice(), strides.as_slice()) {
        ([outer @ .., rows, columns], [outer_strides @ .., 1, step]) if *step > 1 => {
            let mut blocks = out.chunks_exact_mut(rows * columns);
            layout::for_each_offset(outer, [outer_strides], |[start]| {
                if let Some(out) = blocks.next() {
                    transpose(&storage[offset + start..], *rows, *columns, *step, out);
                }
            });
        }
        ([outer @ .., columns], [outer_strides @ .., step]) => {
            let mut rows = out.chunks_exact_mut(*columns);
            layout::for_each_offset(outer, [outer_strides], |[start]| {
                if let Some(row) = rows.next() {
                    gather_row(&storage[offset + start..], *step, row);
                }
            });
        }
        _ => out[0] = storage[offset],
    }
}

fn gather_row<T: Element>(storage: &[T], step: usize, row: &mut [T]) {
    match step {
        0 => row.fill(storage[0]),
        1 => row.copy_from_slice(&storage[..row.len()]),
        _ => {
            for (out, &value) in row.iter_mut().zip(storage.iter().step_by(step)) {
                *out = value;
            }
        }
    }
}

/// `out[r, c] = storage[r + c·step]`.
fn transpose<T: Element>(storage: &[T], rows: usize, columns: usize, step: usize, out: &mut [T]) {
    for row in (0..rows).step_by(TILE) {
        for column in (0..columns).step_by(TILE) {
            for r in row..rows.min(row + TILE) {
                for c in column..columns.min(column + TILE) {
                    out[r * columns + c] = storage[r + c * step];
                }
            }
        }
    }
}
