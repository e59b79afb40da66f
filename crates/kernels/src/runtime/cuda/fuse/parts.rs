//! Which parts of the elements of values are computed from the same parts of others alone, as in a batch of systems that know nothing of each
//! other: stages of a kernel can compute them one after the other, a block its own parts, and only the block has to wait between stages.
//!
//! The elements of an array fall into `parts` parts: element e is in part (e / run) mod parts, where the run is a number of the array's own. Of
//! `[3, nodes, features]` with nodes of one system after those of another, it is the nodes of a system times the features.

use super::{
    pending::Id,
    value::{Function, Groups, Operand},
};
use std::collections::HashMap;

/// What a kernel computes: what it writes, with where, and what each value on the way is computed from.
#[derive(Default)]
pub(super) struct Tree {
    pub roots: Vec<(Id, u64)>,
    pub nodes: HashMap<Id, Node>,
}

/// A value, without the arrays that it holds.
pub(super) struct Node {
    pub function: Function,
    pub operands: Vec<View>,
    pub elements: usize,
}

/// An operand: a view of an array, or of a value that the same kernel computes.
pub(super) struct View {
    pub source: Seen,
    offset: usize,
    sizes: Vec<usize>,
    strides: Vec<usize>,
}

/// What a view shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Seen {
    Value(Id),
    Array(u64),
}

impl View {
    pub fn of(operand: &Operand, producer: Option<Id>) -> Self {
        Self {
            source: producer.map_or(Seen::Array(operand.buffer.pointer()), Seen::Value),
            offset: operand.offset,
            sizes: operand.sizes.to_vec(),
            strides: operand.strides.to_vec(),
        }
    }
}

/// Axes from the innermost on: sizes and strides.
type Pairs = Vec<(usize, usize)>;

/// Takes axes of so many elements together off the inner end. `None` if an axis has a part of them only.
fn take(axes: &mut Pairs, mut elements: usize) -> Option<Pairs> {
    let mut taken = Vec::new();
    while elements > 1 {
        let &(size, stride) = axes.first()?;
        if size <= elements {
            if !elements.is_multiple_of(size) {
                return None;
            }
            axes.remove(0);
            taken.push((size, stride));
            elements /= size;
        } else {
            if !size.is_multiple_of(elements) {
                return None;
            }
            axes[0] = (size / elements, stride * elements);
            taken.push((elements, stride));
            elements = 1;
        }
    }
    Some(taken)
}

/// The run of what a view shows, so that position p of the view, with its own run, shows an element of p's part. `summed` are axes all along
/// which a position reads.
fn through(view: &View, summed: (&[usize], &[usize]), parts: usize, run: usize) -> Option<usize> {
    let pairs = |(sizes, strides): (&[usize], &[usize])| -> Pairs {
        let axes = sizes.iter().copied().zip(strides.iter().copied()).rev();
        axes.filter(|&(size, _)| size != 1).collect()
    };
    let mut axes = pairs((&view.sizes, &view.strides));
    let inner = take(&mut axes, run)?;
    let across = take(&mut axes, parts)?;
    // The parts are one axis of the array.
    let shown = across.first()?.1;
    let mut next = shown;
    for &(size, stride) in &across {
        if stride != next {
            return None;
        }
        next = stride * size;
    }
    if shown == 0 {
        return None;
    }
    let period = shown * parts;
    let (mut last, mut outer) = (view.offset % period, axes);
    for (size, stride) in inner.into_iter().chain(pairs(summed)) {
        if stride.is_multiple_of(period) {
            outer.push((size, stride));
        } else {
            last += size.saturating_sub(1) * stride;
        }
    }
    (last < shown && outer.iter().all(|(_, stride)| stride.is_multiple_of(period))).then_some(shown)
}

/// The runs of arrays that earlier stages of a kernel write.
pub(super) type Runs = HashMap<u64, usize>;

impl Tree {
    /// Runs with which what the kernel writes may fall into `parts` parts.
    pub fn candidates(&self, parts: usize, runs: &Runs) -> Vec<usize> {
        let mut found = Vec::new();
        for node in self.nodes.values() {
            let known = node.operands.iter().filter_map(|view| match view.source {
                Seen::Array(address) => runs.get(&address).copied(),
                Seen::Value(_) => None,
            });
            found.extend(known);
            found.extend(node.function.run_of_result(parts));
        }
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Whether all that the kernel writes falls into `parts` parts with this run, each computed from the same part alone of arrays that are in
    /// `runs`.
    pub fn falls_apart(&self, parts: usize, run: usize, runs: &Runs) -> bool {
        let mut check = Check { tree: self, parts, runs, known: HashMap::new() };
        self.roots.iter().all(|&(id, _)| check.value(id, Some(run)))
    }

    /// The parts into which most indices of edges and segments fall, with how many there are.
    pub fn count_parts(&self, counts: &mut HashMap<usize, usize>) {
        for node in self.nodes.values() {
            if let Some(parts) = node.function.parts() {
                *counts.entry(parts).or_insert(0) += 1;
            }
        }
    }
}

impl Function {
    /// The parts of its indices, if it has some that fall apart.
    fn parts(&self) -> Option<usize> {
        let parts = match *self {
            Self::Select { parts, .. } | Self::Difference { parts, .. } => parts,
            Self::SegmentSum { groups: Groups { parts, .. }, .. } => parts,
            Self::NetInflow { arriving: Groups { parts, .. }, .. } => parts,
            _ => 1,
        };
        (parts > 1).then_some(parts)
    }

    /// The run of a result that is indexed by part.
    fn run_of_result(&self, parts: usize) -> Option<usize> {
        if !self.parts()?.is_multiple_of(parts) {
            return None;
        }
        match *self {
            Self::Select { count, inner, .. } => Some(count / parts * inner),
            Self::Difference { edges, features, .. } => Some(edges / parts * features),
            Self::SegmentSum { segments, inner, .. } => Some(segments / parts * inner),
            Self::NetInflow { nodes, features, .. } => Some(nodes / parts * features),
            _ => None,
        }
    }

    /// The run of its operand, where the result is indexed by part.
    fn run_of_operand(&self, parts: usize) -> usize {
        match *self {
            Self::Select { bound, inner, .. } => bound / parts * inner,
            Self::Difference { nodes, features, .. } => nodes / parts * features,
            Self::SegmentSum { count, inner, .. } => count / parts * inner,
            Self::NetInflow { edges, features, .. } => edges / parts * features,
            _ => 0,
        }
    }
}

/// Looks whether a part follows from the same part.
struct Check<'a> {
    tree: &'a Tree,
    parts: usize,
    runs: &'a Runs,
    known: HashMap<(Id, Option<usize>), bool>,
}

impl Check<'_> {
    /// Whether the elements of a value with this run follow from the same parts; without a run, from no array that an earlier stage writes.
    fn value(&mut self, id: Id, run: Option<usize>) -> bool {
        if let Some(&known) = self.known.get(&(id, run)) {
            return known;
        }
        let node = &self.tree.nodes[&id];
        let follows = match run {
            None => node.operands.iter().all(|view| self.source(view, None)),
            Some(run) => node.elements.is_multiple_of(self.parts * run) && self.operands(node, run),
        };
        self.known.insert((id, run), follows);
        follows
    }

    fn source(&mut self, view: &View, run: Option<usize>) -> bool {
        match view.source {
            Seen::Value(id) => self.value(id, run),
            Seen::Array(address) => match self.runs.get(&address) {
                None => true,
                Some(&written) => run == Some(written),
            },
        }
    }

    /// An operand of whose view a position is in the part that this run says.
    fn operand(&mut self, view: &View, run: usize) -> bool {
        let shown = through(view, (&[], &[]), self.parts, run);
        self.source(view, shown)
    }

    fn operands(&mut self, node: &Node, run: usize) -> bool {
        let (parts, first) = (self.parts, node.operands.first());
        match &node.function {
            Function::Constant { .. } => true,
            Function::Unary { .. }
            | Function::Binary { .. }
            | Function::Choose
            | Function::Sum
            | Function::Copy
            | Function::Cast => node.operands.iter().all(|view| self.operand(view, run)),
            Function::Reduce { kept, reduced, .. } => first.is_some_and(|view| {
                let kept = View {
                    source: view.source,
                    offset: view.offset,
                    sizes: kept.sizes.to_vec(),
                    strides: kept.strides.to_vec(),
                };
                let shown = through(&kept, (&reduced.sizes, &reduced.strides), parts, run);
                self.source(view, shown)
            }),
            Function::Join { row, parts: columns } => {
                node.operands.iter().zip(columns).filter(|(_, columns)| columns.count > 0).all(
                    |(view, columns)| {
                        if run.is_multiple_of(*row) {
                            return self.operand(view, run / row * columns.count);
                        }
                        let period = run * parts;
                        let is_whole =
                            [*row, columns.start, columns.count].iter().all(|n| n.is_multiple_of(period));
                        if is_whole { self.operand(view, run) } else { self.source(view, None) }
                    },
                )
            }
            function @ (Function::Select { inner, .. } | Function::SegmentSum { inner, .. }) => first
                .is_some_and(|view| {
                    if function.run_of_result(parts) == Some(run) {
                        return self.operand(view, function.run_of_operand(parts));
                    }
                    if inner.is_multiple_of(run * parts) {
                        return self.operand(view, run);
                    }
                    self.source(view, None)
                }),
            function @ (Function::Difference { .. } | Function::NetInflow { .. }) => {
                first.is_some_and(|view| {
                    let by_part = function.run_of_result(parts) == Some(run);
                    if by_part {
                        self.operand(view, function.run_of_operand(parts))
                    } else {
                        self.source(view, None)
                    }
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn view(offset: usize, axes: &[(usize, usize)]) -> View {
        let (sizes, strides) = axes.iter().copied().unzip();
        View { source: Seen::Array(0), offset, sizes, strides }
    }

    /// The element at a position of a view.
    fn element(view: &View, mut position: usize) -> usize {
        let mut element = view.offset;
        for (&size, &stride) in view.sizes.iter().zip(&view.strides).rev() {
            element += position % size * stride;
            position /= size;
        }
        element
    }

    proptest! {
        /// Views of arrays `[outer, parts, inner, features]`: axes in any order, some broadcast, some cut.
        #[test]
        fn a_position_shows_its_own_part(
            sizes in prop::array::uniform4(1usize..5),
            order in Just([0, 1, 2, 3]).prop_shuffle(),
            cuts in prop::array::uniform4(0usize..3),
            is_broadcast in prop::array::uniform4(prop::bool::weighted(0.15)),
            parts in 2usize..5,
        ) {
            let [outer, _, inner, features] = sizes;
            let sizes = [outer, parts, inner, features];
            let strides = [parts * inner * features, inner * features, features, 1];
            let (mut axes, mut offset) = (Vec::new(), 0);
            for axis in order {
                let cut = cuts[axis].min(sizes[axis] - 1);
                offset += cut * strides[axis];
                let stride = if is_broadcast[axis] { 0 } else { strides[axis] };
                axes.push((sizes[axis] - cut, stride));
            }
            let view = view(offset, &axes);
            let elements: usize = view.sizes.iter().product();
            for run in (1..=elements / parts).filter(|run| elements.is_multiple_of(run * parts)) {
                if let Some(shown) = through(&view, (&[], &[]), parts, run) {
                    for position in 0..elements {
                        let part = element(&view, position) / shown % parts;
                        prop_assert_eq!(part, position / run % parts);
                    }
                }
            }
        }
    }

    #[test]
    fn views_of_a_batch_are_followed() {
        // [3, 20 nodes of 5 systems, 4 features]: itself, turned to [20, 3, 4], its first four features of eight, a broadcast of one.
        let (nodes, run) = (20, 16);
        assert_eq!(through(&view(0, &[(240, 1)]), (&[], &[]), 5, run), Some(16));
        assert_eq!(through(&view(0, &[(nodes, 4), (3, 80), (4, 1)]), (&[], &[]), 5, 48), Some(16));
        assert_eq!(through(&view(0, &[(3, 160), (nodes, 8), (4, 1)]), (&[], &[]), 5, run), Some(32));
        assert_eq!(through(&view(0, &[(3, 0), (80, 1)]), (&[], &[]), 5, run), Some(16));
        assert_eq!(through(&view(0, &[(60, 1), (4, 0)]), (&[], &[]), 5, run), Some(4));
        // Summed over the first axis; one node for all; nodes of other systems.
        assert_eq!(through(&view(0, &[(80, 1)]), (&[3], &[80]), 5, run), Some(16));
        assert_eq!(through(&view(0, &[(3, 4), (nodes, 0), (4, 1)]), (&[], &[]), 5, run), None);
        assert_eq!(through(&view(4, &[(3, 100), (nodes, 4), (4, 1)]), (&[], &[]), 5, run), None);
    }
}
