//! Joining arrays along an axis on the host.

use super::copy_into;
use crate::{
    Array, Device, Element, Result,
    array::{
        layout::{Walk, collapse},
        lazy::{Description, Function, Reads, Source, is_recording},
    },
    cpu::split,
};
use gradewise_core::{PerAxis, Shape};
use std::marker::PhantomData;

/// A new array with each of these arrays at its position along `axis`, and zeros elsewhere. The arrays have its other sizes, and fit without
/// overlapping.
pub(crate) fn join<T: Element>(
    operation: &'static str,
    shape: &Shape,
    axis: usize,
    places: &[(&Array, usize)],
) -> Result<Array> {
    let outer: usize = shape[..axis].iter().product();
    let inner: usize = shape[axis + 1..].iter().product();
    let filled: usize = places.iter().map(|(array, _)| array.dims()[axis]).sum();
    let found: Vec<_> = places.iter().filter(|(array, _)| array.elements() > 0).collect();
    let waits = |array: &Array| array.waits_on_host();
    let waiting = found.iter().filter(|(array, _)| waits(array)).count();
    let local = found.iter().filter(|(array, _)| array.is_local(Reads::Part)).count();
    if is_recording() && shape.elements() > 0 && waiting > 0 && local == waiting {
        let part = |&&(array, start): &&(&Array, usize)| {
            let (sizes, [strides]) = collapse(array.dims(), [array.strides()]);
            let columns = array.dims()[axis] * inner;
            Part { sizes, strides, offset: array.offset(), start: start * inner, columns }
        };
        let parts = found.iter().map(part).collect();
        let (row, has_gaps) = (shape[axis] * inner, filled < shape[axis]);
        let operands: Vec<_> = found.iter().map(|&&(array, _)| (array, Reads::Part)).collect();
        return Array::waiting(Description {
            operation,
            dtype: T::DTYPE,
            shape,
            operands: &operands,
            parts: outer,
            is_exact: true,
            function: Box::new(Joined::<T> { row, parts, has_gaps, element: PhantomData }),
        });
    }
    let strides = shape.contiguous_strides();
    let sources =
        found.iter().map(|(array, _)| array.strided_slice::<T>(operation)).collect::<Result<Vec<_>>>()?;
    Array::build(shape, &Device::Cpu, |out: &mut [T]| {
        if filled < shape[axis] {
            split::for_chunks(out, split::CHUNK, |_, chunk| chunk.fill(T::default()));
        }
        for ((array, start), source) in found.iter().zip(sources) {
            copy_into(array.dims(), source, (&mut out[start * strides[axis]..], &strides));
        }
    })
}

/// An operand of [`Joined`]: its layout, axes merged, and the columns of a row that come from it.
struct Part {
    sizes: PerAxis,
    strides: PerAxis,
    offset: usize,
    start: usize,
    columns: usize,
}

/// Rows of `row` elements whose columns come from the operands.
struct Joined<T> {
    row: usize,
    parts: Vec<Part>,
    has_gaps: bool,
    element: PhantomData<T>,
}

impl<T: Element> Function for Joined<T> {
    fn compute(&self, sources: &[Source<'_>], first: usize, out: &mut [u8]) {
        let out: &mut [T] = bytemuck::cast_slice_mut(out);
        if self.has_gaps {
            out.fill(T::default());
        }
        let first = first / self.row;
        for (part, source) in self.parts.iter().zip(sources) {
            let elements: &[T] = source.elements();
            let (length, outer) =
                part.sizes.split_last().map_or((1, &part.sizes[..]), |(&length, outer)| (length, outer));
            let step = part.strides.last().copied().unwrap_or(0);
            // Pieces of a row of the operand that are in one row of the result: both lengths are products of the last sizes.
            let piece = length.min(part.columns);
            let walk = Walk { sizes: outer, strides: [&part.strides[..]] };
            let mut position = first * part.columns;
            let mut offsets = walk.offsets(position / length);
            let [mut start] = offsets.next().unwrap_or_default();
            for row in out.chunks_exact_mut(self.row) {
                for target in row[part.start..part.start + part.columns].chunks_exact_mut(piece) {
                    let from = part.offset + start + position % length * step - source.start;
                    super::copy_row(&elements[from..], step, target, 1, piece);
                    position += piece;
                    if position.is_multiple_of(length) {
                        [start] = offsets.next().unwrap_or_default();
                    }
                }
            }
        }
    }
}
