//! Products whose metric is an input, with a gradient of its own.

use super::{
    prelude::*,
    primitives::{by_column, index, product_by_table},
};
use crate::composed::composed;
use gradewise_core::{MAX_DIMENSION, Signature};
use gradewise_kernels::ops::clifford::table_product::{Table, TableTerm};
use std::sync::{Arc, OnceLock};

/// The geometric product of `x` and `y` `[2ⁿ, …]`, position by position, of generators that square to the entries of `metric` `[n]` and
/// anticommute: e_A·e_B = ±(Π_{i∈A∩B} λ_i) e_{A△B}. With entries 1, −1 and 0 it is the product of the algebra of that signature, with zeros
/// alone the outer product. Gradients go to the metric, too (metric learning of Ali et al. 2024, PMLR 251). The axes after the first are
/// broadcast as in [`geometric_product`](super::geometric_product).
///
/// A product of a metric commutes with the isometries of *that* metric. One that is learned has other isometries after each step, so that
/// a network of such products is not O(n)-equivariant, unless all entries stay equal.
///
/// # Errors
/// A metric of another shape than `[n]`; operands that do not have 2ⁿ blades or differ in shape, dtype or device, named.
pub fn metric_product(metric: &Tensor, x: &Tensor, y: &Tensor) -> Result<Tensor> {
    let overlaps = Overlaps::of(metric)?;
    let pairs = product_by_table(NAME, &overlaps.table, [("x", x), ("y", y)])?;
    let mut shape = vec![overlaps.shared.len()];
    shape.resize(pairs.shape().rank().max(1), 1);
    let coefficients = overlaps.coefficients(metric)?.reshape(shape)?;
    overlaps.sum(&pairs.mul(&coefficients)?)
}

/// As [`sgp`](super::sgp) without what may be fused around it, in a metric that is an input: `out_j = Σ ±w[:, path]·λ·x_i·y_k`. `x`, `y` and
/// the result are `[2ⁿ, batch, features]`, `w` `[features, paths]` with the grade paths of Cl(n,0), `metric` `[n]`.
///
/// # Errors
/// As [`metric_product`].
pub fn metric_sgp(metric: &Tensor, x: &Tensor, y: &Tensor, w: &Tensor) -> Result<Tensor> {
    let overlaps = Overlaps::of(metric)?;
    let pairs = product_by_table("metric_sgp", &overlaps.table, [("x", x), ("y", y)])?;
    let algebra = euclidean(metric)?;
    let (expected, actual) = (algebra.paths().len(), w.shape());
    if actual.rank() != 2 || actual[1] != expected {
        let message =
            format!("`w` is {actual}, expected [features, {expected}], a weight for each grade path");
        return Err(Error::Argument { operation: "metric_sgp", message });
    }
    let paths = index(&overlaps.paths, expected, &w.device())?;
    let coefficients = overlaps.coefficients(metric)?.reshape([overlaps.shared.len(), 1, 1])?;
    let weights = by_column(w)?.index_select(0, &paths)?.mul(&coefficients)?;
    overlaps.sum(&pairs.mul(&weights)?)
}

composed!(
    /// Inputs: the metric and both factors.
    MetricProduct, "metric_product", Short, ["metric", "x", "y"],
    |sizes| {
        let inputs = vec![entries(sizes), features(sizes), features(sizes)];
        if has_generators(sizes) { inputs } else { Vec::new() }
    },
    |inputs| metric_product(&inputs[0], &inputs[1], &inputs[2])
);

composed!(
    /// Inputs: the metric, both factors and the weights.
    MetricSgp, "metric_sgp", Short, ["metric", "x", "y", "weight"],
    |sizes| {
        let paths = Algebra::new(Signature::new(sizes.algebra.dimension() as u8, 0, 0))?.paths().len();
        let weights = Input::normal([sizes.features, paths]);
        let inputs = vec![entries(sizes), features(sizes), features(sizes), weights];
        if has_generators(sizes) { inputs } else { Vec::new() }
    },
    |inputs| metric_sgp(&inputs[0], &inputs[1], &inputs[2], &inputs[3])
);

/// Whether there is a generator to learn the square of.
fn has_generators(sizes: &Sizes) -> bool {
    sizes.algebra.dimension() > 0
}

/// A metric with an entry for each generator of the algebra that samples are made for.
fn entries(sizes: &Sizes) -> Input {
    Input::normal([sizes.algebra.dimension()])
}

const NAME: &str = "metric_product";

/// The geometric product of Cl(n,0) resolved by grade path, shared generators and result.
struct Overlaps {
    table: Arc<Table>,
    blades: usize,
    /// The grade path, the set of shared generators and the blade of each result of the table.
    paths: Vec<u32>,
    shared: Vec<u32>,
    outs: Vec<u32>,
}

/// The algebra with as many generators as the metric has entries.
fn euclidean(metric: &Tensor) -> Result<Algebra> {
    match metric.shape().dims() {
        &[n] if (1..=MAX_DIMENSION).contains(&n) => Ok(Algebra::new(Signature::new(n as u8, 0, 0))?),
        _ => {
            let message = format!(
                "the metric is {}, expected [n] with n from 1 to {MAX_DIMENSION}, an entry for each generator",
                metric.shape()
            );
            Err(Error::Argument { operation: NAME, message })
        }
    }
}

impl Overlaps {
    fn of(metric: &Tensor) -> Result<&'static Self> {
        static KNOWN: [OnceLock<Overlaps>; MAX_DIMENSION + 1] =
            [const { OnceLock::new() }; MAX_DIMENSION + 1];
        let algebra = euclidean(metric)?;
        Ok(KNOWN[algebra.dimension()].get_or_init(|| Self::new(&algebra)))
    }

    fn new(algebra: &Algebra) -> Self {
        let shared =
            |left: u16, right: u16| algebra.mask(usize::from(left)) & algebra.mask(usize::from(right));
        let key = |term: &gradewise_core::Term| (term.path, shared(term.left, term.right), term.out);
        let mut keys: Vec<(u16, u16, u16)> = algebra.terms().iter().map(key).collect();
        keys.sort_unstable();
        keys.dedup();
        let terms = algebra.terms().iter().filter_map(|term| {
            let out = keys.binary_search(&key(term)).ok()?;
            Some(TableTerm { a: term.left, b: term.right, out: out as u16, sign: term.sign })
        });
        let blades = algebra.blade_count();
        let table = Arc::new(Table::new(blades, blades, keys.len(), terms));
        let column = |of: fn(&(u16, u16, u16)) -> u16| keys.iter().map(|key| u32::from(of(key))).collect();
        Self {
            table,
            blades,
            paths: column(|key| key.0),
            shared: column(|key| key.1),
            outs: column(|key| key.2),
        }
    }

    /// Π λ_i over the generators that the factors of each result share.
    fn coefficients(&self, metric: &Tensor) -> Result<Tensor> {
        // Of every set of generators, as bits: without and with one more at a time.
        let mut sets = Tensor::ones([1], metric.dtype(), &metric.device())?;
        for generator in 0..metric.shape()[0] {
            let with = sets.mul(&metric.slice(0, generator..generator + 1)?)?;
            sets = crate::concat(&[&sets, &with], 0)?;
        }
        sets.index_select(0, &index(&self.shared, self.blades, &metric.device())?)
    }

    /// Results of one blade together.
    fn sum(&self, pairs: &Tensor) -> Result<Tensor> {
        pairs.segment_sum(0, &index(&self.outs, self.blades, &pairs.device())?)
    }
}
