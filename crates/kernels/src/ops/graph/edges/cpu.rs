//! Messages on graphs, on the host.
//!
//! Sums run in the dtype of their terms and in the order of the edges, so the results are bitwise equal to those of the operations
//! (`index_select`, `segment_sum`, …) that these fuse.

use crate::{Element, array::index::Groups, cpu::split};

/// Rows of `size` adjacent elements that start `pitch` elements apart.
#[derive(Clone, Copy)]
pub(super) struct Rows<'a, T> {
    pub data: &'a [T],
    pub size: usize,
    pub pitch: usize,
}

impl<'a, T> Rows<'a, T> {
    fn row(&self, index: usize) -> &'a [T] {
        &self.data[index * self.pitch..][..self.size]
    }
}

/// Sizes of a graph.
#[derive(Clone, Copy)]
pub(super) struct Graph {
    pub nodes: usize,
    pub edges: usize,
}

/// Calls `work(row, out, scratch)` for each row of `width` elements; `scratch` has as many.
fn for_rows<T: Element>(out: &mut [T], width: usize, work: impl Fn(usize, &mut [T], &mut [T]) + Sync) {
    if width == 0 {
        return;
    }
    split::for_chunks(out, split::rows_per_chunk(width) * width, |start, out| {
        let mut scratch = vec![T::zero(); width];
        for (row, out) in out.chunks_exact_mut(width).enumerate() {
            work(start / width + row, out, &mut scratch);
        }
    });
}

/// `h` per node, `attributes` per edge, `ends` the receivers and the senders.
pub(super) fn difference<T: Element>(
    h: Rows<'_, T>,
    attributes: Rows<'_, T>,
    nodes: usize,
    [receivers, senders]: [&[u32]; 2],
    out: &mut [T],
) {
    let edges = receivers.len();
    for_rows(out, h.size + attributes.size, |row, out, _| {
        let (block, edge) = (row / edges, row % edges);
        let node = |index: u32| h.row(block * nodes + index as usize);
        let (differences, rest) = out.split_at_mut(h.size);
        let pairs = node(receivers[edge]).iter().zip(node(senders[edge]));
        for (out, (&receiver, &sender)) in differences.iter_mut().zip(pairs) {
            *out = receiver - sender;
        }
        rest.copy_from_slice(attributes.row(row));
    });
}

/// Adds the rows of a segment's members to `out` and returns the number of members. Position 0 of `groups` is row `first`.
fn add_members<T: Element>(
    x: Rows<'_, T>,
    groups: &Groups,
    segment: usize,
    first: usize,
    out: &mut [T],
) -> usize {
    let members = groups.starts[segment] as usize..groups.starts[segment + 1] as usize;
    for &position in &groups.order[members.clone()] {
        for (out, &value) in out.iter_mut().zip(x.row(first + position as usize)) {
            *out += value;
        }
    }
    members.len()
}

/// `x` per edge; `ends` the edges that arrive at each node and those that leave it.
pub(super) fn net_inflow<T: Element>(
    x: Rows<'_, T>,
    graph: Graph,
    [arriving, leaving]: [&Groups; 2],
    out: &mut [T],
) {
    for_rows(out, x.size, |row, out, left| {
        let (first, node) = (row / graph.nodes * graph.edges, row % graph.nodes);
        out.fill(T::zero());
        left.fill(T::zero());
        add_members(x, arriving, node, first, out);
        add_members(x, leaving, node, first, left);
        for (out, left) in out.iter_mut().zip(left) {
            *out -= *left;
        }
    });
}

/// `h` per node, `messages` per edge.
pub(super) fn concat_mean<T: Element>(
    h: Rows<'_, T>,
    messages: Rows<'_, T>,
    graph: Graph,
    arriving: &Groups,
    out: &mut [T],
) {
    for_rows(out, h.size + messages.size, |row, out, _| {
        let (own, mean) = out.split_at_mut(h.size);
        own.copy_from_slice(h.row(row));
        mean.fill(T::zero());
        let (first, node) = (row / graph.nodes * graph.edges, row % graph.nodes);
        let members = add_members(messages, arriving, node, first, mean);
        let share = reciprocal::<T>(members);
        for mean in mean {
            *mean *= share;
        }
    });
}

/// `x` per segment; `segments` that of each position.
pub(super) fn spread<T: Element>(
    x: Rows<'_, T>,
    bound: usize,
    segments: &[u32],
    groups: &Groups,
    out: &mut [T],
) {
    let count = segments.len();
    for_rows(out, x.size, |row, out, _| {
        let (block, segment) = (row / count, segments[row % count] as usize);
        let share = reciprocal::<T>((groups.starts[segment + 1] - groups.starts[segment]) as usize);
        for (out, &value) in out.iter_mut().zip(x.row(block * bound + segment)) {
            *out = value * share;
        }
    });
}

/// 1 / count, or 1 for a count of 0, as in [`Index::reciprocal_counts`](crate::Index::reciprocal_counts).
fn reciprocal<T: Element>(count: usize) -> T {
    T::narrow(1.0 / count.max(1) as f64)
}
