//! The arithmetic of operations on multivectors, from the sizes of their operands.

use gradewise_core::Algebra;
use std::collections::BTreeSet;

fn product(sizes: &[usize]) -> u64 {
    sizes.iter().map(|&size| size as u64).product()
}

/// Two operations for each multiply-add of a grade-wise map of `x` `[blades, batch, in]` by `[grades, in, out]`, or by one matrix
/// `[in, out]` for all grades.
pub(super) fn linear(x: &[usize], matrices: &[usize]) -> u64 {
    let (&[blades, batch, _], [.., inputs, outputs]) = (x, matrices) else { return 0 };
    2 * product(&[blades, batch, *inputs, *outputs])
}

/// Two for each multiply-add of a fully connected product with weights `[paths, in, out]`.
pub(super) fn full(algebra: &Algebra, x: &[usize], weights: &[usize]) -> u64 {
    let (&[_, batch, _], [.., inputs, outputs]) = (x, weights) else { return 0 };
    let pairs: BTreeSet<_> = algebra.terms().iter().map(|term| (term.path, term.out)).collect();
    2 * product(&[pairs.len(), batch, *inputs, *outputs])
}

/// Three for each term of a weighted product: weight, x·y, sum.
pub(super) fn terms(algebra: &Algebra, x: &[usize]) -> u64 {
    let &[_, batch, features] = x else { return 0 };
    3 * product(&[algebra.terms().len(), batch, features])
}
