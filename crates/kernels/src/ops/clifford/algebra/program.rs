//! Products as small programs over blades.
//!
//! A product is a sum of terms `±a_i·b_k` for each result blade. The terms of one result that share a weight form a
//! [`Group`], so that the weight is applied once per group; within a group the positive terms come first, so that no
//! sign is ever multiplied. The gradients of a product are products of the same kind with the roles of the blades
//! permuted, hence one interpreter serves all of them.

use crate::runtime::growing::Growing;
use gradewise_core::{Algebra, Signature};
use std::{collections::BTreeMap, ops::Range, sync::Arc};

/// Terms of one result blade that share a weight: a range of [`Program::pairs`], positive terms before `split`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Group {
    pub result: u16,
    pub path: u16,
    pub start: u32,
    pub split: u32,
    pub end: u32,
}

/// Computes results from two operands: `result = Σ_groups weight[path]·Σ ±a_i·b_k`.
#[derive(Debug)]
pub(crate) struct Program {
    /// Blade pairs (a, b), grouped.
    pub pairs: Vec<(u16, u16)>,
    /// Groups, ordered by `order`.
    pub groups: Vec<Group>,
    /// For each result (ordered by result) or each path (ordered by path), its range of groups.
    pub spans: Vec<Range<u32>>,
}

/// One term of a trilinear form Σ sign·w[path]·a·b·result.
#[derive(Clone, Copy)]
struct Entry {
    a: u16,
    b: u16,
    result: u16,
    path: u16,
    sign: i8,
}

impl Program {
    fn build(entries: impl Iterator<Item = Entry>, spans: usize, key: impl Fn(&Entry) -> usize) -> Self {
        let mut grouped: BTreeMap<(usize, u16, u16), Vec<Entry>> = BTreeMap::new();
        for entry in entries {
            grouped.entry((key(&entry), entry.path, entry.result)).or_default().push(entry);
        }
        let mut program = Self { pairs: Vec::new(), groups: Vec::new(), spans: vec![0..0; spans] };
        for ((span, path, result), mut terms) in grouped {
            terms.sort_by_key(|term| (-term.sign, term.a, term.b));
            let start = program.pairs.len() as u32;
            let positive = terms.iter().filter(|term| term.sign > 0).count() as u32;
            program.pairs.extend(terms.iter().map(|term| (term.a, term.b)));
            let group = program.groups.len() as u32;
            let range = &mut program.spans[span];
            *range = if range.start == range.end { group..group + 1 } else { range.start..group + 1 };
            program.groups.push(Group {
                result,
                path,
                start,
                split: start + positive,
                end: program.pairs.len() as u32,
            });
        }
        program
    }

    /// The groups of one span (a result blade, or a path).
    pub fn span(&self, index: usize) -> &[Group] {
        let range = &self.spans[index];
        &self.groups[range.start as usize..range.end as usize]
    }
}

/// The programs of the geometric product of one signature, forward and backward, and its per-blade constants.
#[derive(Debug)]
pub(crate) struct Programs {
    pub signature: Signature,
    pub blades: usize,
    pub paths: usize,
    /// (x, y) → out, by out.
    pub forward: Program,
    /// (∂out, y) → ∂x, by x.
    pub grad_left: Program,
    /// (∂out, x) → ∂y, by y.
    pub grad_right: Program,
    /// (x, y) → out as in `forward`, ordered by path: what the weights multiply.
    pub by_path: Program,
    pub grades: Vec<u8>,
    pub blades_of_grade: Vec<Range<usize>>,
    /// Diagonal of the quadratic form.
    pub metric: Vec<i8>,
}

impl Programs {
    /// The programs of `algebra`, derived once per process and signature.
    pub fn of(algebra: &Algebra) -> Arc<Self> {
        static KNOWN: Growing<Signature, Arc<Programs>> = Growing::new();
        KNOWN.get_or_make(algebra.signature(), || Arc::new(Self::derive(algebra)))
    }

    fn derive(algebra: &Algebra) -> Self {
        let blades = algebra.blade_count();
        let paths = algebra.paths().len();
        let entries = |permute: fn(u16, u16, u16) -> (u16, u16, u16)| {
            algebra.terms().iter().map(move |term| {
                let (a, b, result) = permute(term.left, term.right, term.out);
                Entry { a, b, result, path: term.path, sign: term.sign }
            })
        };
        let by_result = |entry: &Entry| usize::from(entry.result);
        Self {
            signature: algebra.signature(),
            blades,
            paths,
            forward: Program::build(entries(|l, r, o| (l, r, o)), blades, by_result),
            grad_left: Program::build(entries(|l, r, o| (o, r, l)), blades, by_result),
            grad_right: Program::build(entries(|l, r, o| (o, l, r)), blades, by_result),
            by_path: Program::build(entries(|l, r, o| (l, r, o)), paths, |entry| usize::from(entry.path)),
            grades: algebra.grades().to_vec(),
            blades_of_grade: (0..algebra.grade_count()).map(|g| algebra.blades_of_grade(g)).collect(),
            metric: algebra.squared_norms().to_vec(),
        }
    }
}
