//! Operators on elements of strided views on the host, row by row: divided among threads, compiled for the instruction set; at once or, in a
//! [scope](crate::Device::fused), together with others.

use super::{
    Array,
    layout::{Walk, collapse},
    lazy::{Description, Function, Reads, Source},
};
use crate::{
    Device, Element, Result,
    cpu::{
        simd::{KeepSubnormals, Kernel, Simd, dispatch},
        split,
    },
};
use gradewise_core::{PerAxis, Shape};

/// A function of the elements at the same position of `N` views.
pub(crate) trait Operator<const N: usize>: Send + Sync + 'static {
    /// The type of the operands' elements.
    type In: Element;
    /// The type of the result's.
    type Out: Element;
    /// What is done to a row of the result.
    type Row<'a>: Row<Self::Out, N>;

    /// The rows of operands whose elements are `steps` apart in a row.
    fn rows<'a>(&'a self, operands: [&'a [Self::In]; N], steps: [usize; N]) -> Self::Row<'a>;
}

/// What is done to one row of the result. Implementations are `#[inline(always)]`.
pub(crate) trait Row<T, const N: usize>: Sync {
    /// Writes part of a row, from column `first` on; `offsets` is where the row begins in each operand.
    fn row<const FMA: bool>(&self, offsets: [usize; N], first: usize, out: &mut [T]);
}

/// The operator's value for operands of this shape on the host: computed, or [described](crate::Device::fused).
pub(crate) fn map<O: Operator<N>, const N: usize>(
    operation: &'static str,
    shape: &Shape,
    operands: [&Array; N],
    operator: O,
) -> Result<Array> {
    run(operation, shape, operands, operator, false)
}

/// [`map`] for operators that move or convert numbers: subnormal numbers stay what they are.
pub(crate) fn map_exact<O: Operator<N>, const N: usize>(
    operation: &'static str,
    shape: &Shape,
    operands: [&Array; N],
    operator: O,
) -> Result<Array> {
    run(operation, shape, operands, operator, true)
}

fn run<O: Operator<N>, const N: usize>(
    operation: &'static str,
    shape: &Shape,
    operands: [&Array; N],
    operator: O,
    is_exact: bool,
) -> Result<Array> {
    let (sizes, strides) = collapse(shape, operands.map(Array::strides));
    if Array::describes(shape.elements(), &operands) {
        let offsets = operands.map(Array::offset);
        let function = Box::new(Mapped { sizes, strides, offsets, operator });
        return Array::waiting(Description {
            operation,
            dtype: O::Out::DTYPE,
            shape,
            operands: &operands.map(|operand| (operand, Reads::Same)),
            parts: 0,
            is_exact,
            function,
        });
    }
    let mut sources: [&[O::In]; N] = [&[]; N];
    for (source, operand) in sources.iter_mut().zip(operands) {
        *source = operand.strided_slice::<O::In>(operation)?.0;
    }
    Array::build(shape, &Device::Cpu, |out: &mut [O::Out]| {
        split::for_chunks(out, chunk(&sizes), |first, out| {
            // Threads of the pool count subnormal numbers as zero, and operators that compute do so on all threads.
            let _exact = is_exact.then(KeepSubnormals::enter);
            part(&operator, (&sizes, &strides), ([0; N], sources), first, out);
        });
    })
}

fn steps<const N: usize>(strides: &[PerAxis; N]) -> [usize; N] {
    std::array::from_fn(|operand| strides[operand].last().copied().unwrap_or(0))
}

/// An operator and its operands' layouts, axes merged, for a part of its elements at a time.
struct Mapped<O, const N: usize> {
    sizes: PerAxis,
    strides: [PerAxis; N],
    offsets: [usize; N],
    operator: O,
}

impl<O: Operator<N>, const N: usize> Function for Mapped<O, N> {
    fn compute(&self, sources: &[Source<'_>], first: usize, out: &mut [u8]) {
        // Sources begin where the positions from `first` on lead to, or before: only the sum of base and offset is a position.
        let bases = std::array::from_fn(|n| self.offsets[n].wrapping_sub(sources[n].start));
        let sources = std::array::from_fn(|n| sources[n].elements());
        let layout = (&self.sizes[..], &self.strides);
        part(&self.operator, layout, (bases, sources), first, bytemuck::cast_slice_mut(out));
    }
}

/// Rows shorter than this are gathered to tiles of several, where an operator has several operands: a loop takes longer to begin and to end
/// than to compute so few elements.
const SHORT: usize = 32;

/// Elements of a tile of short rows.
const TILE: usize = 512;

/// The positions from `first` on, of which `out` has room for some.
fn part<O: Operator<N>, const N: usize>(
    operator: &O,
    (sizes, strides): (&[usize], &[PerAxis; N]),
    (bases, sources): ([usize; N], [&[O::In]; N]),
    first: usize,
    out: &mut [O::Out],
) {
    let row = operator.rows(sources, steps(strides));
    let by_row = |first: usize, out: &mut [O::Out]| {
        let strides = std::array::from_fn(|n| &strides[n][..]);
        stretch(sizes, strides, bases, &row, first, out);
    };
    let [outer @ .., columns] = sizes else { return by_row(first, out) };
    let columns = *columns;
    if N < 2 || outer.is_empty() || columns >= SHORT || out.len() < 4 * columns {
        return by_row(first, out);
    }
    // Parts of a row at both ends, and whole ones.
    let (start, rest) = out.split_at_mut((columns - first % columns) % columns);
    let first = first + start.len();
    let (tiles, end) = rest.split_at_mut(rest.len() / columns * columns);
    by_row(first - start.len(), start);
    by_row(first + tiles.len(), end);
    let rows = TILE / columns;
    let walks: [Walk<'_, 1>; N] = std::array::from_fn(|n| Walk { sizes: outer, strides: [&strides[n][..]] });
    let mut starts: [_; N] = std::array::from_fn(|n| walks[n].offsets(first / columns));
    // An operand whose rows follow each other is read where it is.
    let is_dense: [bool; N] = std::array::from_fn(|n| collapse(sizes, [&strides[n]]).1[0][..] == [1]);
    let is_repeated: [bool; N] =
        std::array::from_fn(|n| strides[n][..outer.len()].iter().all(|&stride| stride == 0));
    let mut gathered: [Vec<O::In>; N] = std::array::from_fn(|_| Vec::new());
    for (number, out) in tiles.chunks_mut(rows * columns).enumerate() {
        let position = first + number * rows * columns;
        for n in (0..N).filter(|&n| !is_dense[n]) {
            if is_repeated[n] && number > 0 {
                continue;
            }
            let (tile, step) = (&mut gathered[n], strides[n][outer.len()]);
            tile.clear();
            for [start] in starts[n].by_ref().take(out.len() / columns) {
                let row = &sources[n][start.wrapping_add(bases[n])..];
                match step {
                    0 => tile.resize(tile.len() + columns, row[0]),
                    1 => tile.extend_from_slice(&row[..columns]),
                    _ => tile.extend((0..columns).map(|column| row[column * step])),
                }
            }
        }
        let dense = std::array::from_fn(|n| {
            if is_dense[n] { &sources[n][position.wrapping_add(bases[n])..] } else { &gathered[n][..] }
        });
        stretch(&[out.len()], [&[1]; N], [0; N], &operator.rows(dense, [1; N]), 0, out);
    }
}

/// Runs `row` on every row of the contiguous `out`. `sizes` and the operands' `strides` have their axes merged.
pub(crate) fn for_rows<T: Send, const N: usize>(
    sizes: &[usize],
    strides: [&[usize]; N],
    row: &impl Row<T, N>,
    out: &mut [T],
) {
    split::for_chunks(out, chunk(sizes), |first, out| stretch(sizes, strides, [0; N], row, first, out));
}

/// Elements that a thread takes at a time: whole rows, if there are several.
fn chunk(sizes: &[usize]) -> usize {
    match sizes {
        [] | [_] => split::CHUNK,
        [.., columns] => split::rows_per_chunk(*columns) * columns,
    }
}

/// The positions from `first` on, of which `out` has room for some. Offsets begin at `bases`, modulo 2⁶⁴.
fn stretch<T, const N: usize>(
    sizes: &[usize],
    strides: [&[usize]; N],
    bases: [usize; N],
    row: &impl Row<T, N>,
    first: usize,
    out: &mut [T],
) {
    let (columns, sizes) = sizes.split_last().map_or((1, sizes), |(&columns, outer)| (columns, outer));
    dispatch(Stretch { walk: Walk { sizes, strides }, columns, bases, first, row, out });
}

struct Stretch<'a, T, R, const N: usize> {
    walk: Walk<'a, N>,
    columns: usize,
    bases: [usize; N],
    first: usize,
    row: &'a R,
    out: &'a mut [T],
}

impl<T, R: Row<T, N>, const N: usize> Kernel for Stretch<'_, T, R, N> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd, const FMA: bool>(self, _: S) {
        if self.columns == 0 {
            return;
        }
        // The first row and the last may be parts of one.
        let mut column = self.first % self.columns;
        let mut offsets = self.walk.offsets(self.first / self.columns);
        let mut rest = self.out;
        while !rest.is_empty() {
            let (out, others) = rest.split_at_mut((self.columns - column).min(rest.len()));
            let Some(mut starts) = offsets.next() else { return };
            for (start, base) in starts.iter_mut().zip(self.bases) {
                *start = start.wrapping_add(base);
            }
            self.row.row::<FMA>(starts, column, out);
            (column, rest) = (0, others);
        }
    }
}
