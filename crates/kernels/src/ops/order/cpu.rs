//! Order on the host.

use super::Order;
use crate::Element;
use rayon::prelude::*;
use std::cmp::Ordering;

/// Numbers by size, and NaN after them.
fn compare<T: Element>(a: T, b: T) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

/// Each row with the positions of its elements, in order.
pub(super) fn sorted<T: Element>(x: &[T], size: usize, order: Order) -> Vec<(T, u32)> {
    let mut pairs: Vec<(T, u32)> =
        x.iter().enumerate().map(|(at, &value)| (value, (at % size) as u32)).collect();
    let sort = |row: &mut [(T, u32)]| match order {
        Order::Ascending => row.sort_by(|a, b| compare(a.0, b.0)),
        Order::Descending => row.sort_by(|a, b| compare(b.0, a.0)),
    };
    pairs.par_chunks_mut(size.max(1)).for_each(sort);
    pairs
}

/// The position of the greatest or least element of each row, NaN before all.
pub(super) fn extremum<T: Element>(x: &[T], size: usize, greatest: bool, out: &mut [u32]) {
    for (out, row) in out.iter_mut().zip(x.chunks_exact(size)) {
        let mut best = 0;
        for (position, &value) in row.iter().enumerate().skip(1) {
            let beats = if greatest { value > row[best] } else { value < row[best] };
            if beats || (value.is_nan() && !row[best].is_nan()) {
                best = position;
            }
        }
        *out = best as u32;
    }
}
