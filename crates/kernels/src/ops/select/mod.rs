//! Choosing between two arrays, element by element.

use crate::{
    Array, Element, Result,
    element::with_element,
    ops::{
        copy::{Walk, collapse, view},
        split,
    },
};

/// `a` where `mask` is not 0 (NaN is not), `b` elsewhere; all three broadcast together.
///
/// Nothing of the value not chosen shows in the result, not even a NaN.
///
/// # Errors
/// If the shapes cannot be broadcast together, or dtypes or devices differ.
pub fn select(mask: &Array, a: &Array, b: &Array) -> Result<Array> {
    const NAME: &str = "select";
    a.require_like(mask, NAME, "a")?;
    b.require_like(mask, NAME, "b")?;
    let shape = mask.shape().broadcast(&a.shape().broadcast(b.shape(), NAME)?, NAME)?;
    let [mask, a, b] = [mask.broadcast_to(&shape)?, a.broadcast_to(&shape)?, b.broadcast_to(&shape)?];
    let own = shape.contiguous_strides();
    let (sizes, [m, s, t, _]) = collapse(&shape, [mask.strides(), a.strides(), b.strides(), &own]);
    with_element!(a.dtype(), NAME, T => {
        let sources = (view::<T>(&mask, NAME)?.0, view::<T>(&a, NAME)?.0, view::<T>(&b, NAME)?.0);
        Array::build(&shape, &a.device(), |out: &mut [T]| run(&sizes, [&m, &s, &t], sources, out))
    })
}

fn run<T: Element>(sizes: &[usize], strides: [&[usize]; 3], (mask, a, b): (&[T], &[T], &[T]), out: &mut [T]) {
    let (columns, outer) = sizes.split_last().map_or((1, sizes), |(&columns, outer)| (columns, outer));
    let [m_step, s_step, t_step] = strides.map(|strides| strides.last().copied().unwrap_or(0));
    let row = |[m, s, t]: [usize; 3], first: usize, out: &mut [T]| {
        for (column, out) in (first..).zip(out) {
            let chosen = mask[m + column * m_step] != T::zero();
            *out = if chosen { a[s + column * s_step] } else { b[t + column * t_step] };
        }
    };
    if outer.is_empty() {
        split::for_chunks(out, split::CHUNK, |start, out| row([0; 3], start, out));
        return;
    }
    let walk = Walk { sizes: outer, strides };
    split::for_chunks(out, split::rows_per_chunk(columns) * columns, |start, out| {
        let mut rows = out.chunks_exact_mut(columns.max(1));
        walk.visit(start / columns.max(1), rows.len(), |offsets| {
            if let Some(out) = rows.next() {
                row(offsets, 0, out);
            }
        });
    });
}
