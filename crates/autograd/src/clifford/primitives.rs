//! The primitives from which fused operators are re-expressed.

use super::prelude::*;
use crate::{
    Attributes, Formula,
    formula::{At, Scalar},
};
use gradewise_core::Shape;
use gradewise_kernels::{
    Index,
    ops::clifford::table_product::{self, Table, TableTerm},
};
use std::sync::Arc;

/// Added to a divisor that may vanish.
pub(super) const EPSILON: f64 = 1e-6;
/// Added to q² under the fourth root, so that the norm has a derivative where q = 0.
const SMOOTHING: f64 = 1e-16;

/// A bilinear product by a table. Its gradients are products of the same kind, so it is differentiable to any order.
#[derive(Serialize, Deserialize)]
pub(crate) struct TableProduct {
    #[serde(flatten, with = "attributes::table")]
    table: Arc<Table>,
}

impl Operation for TableProduct {
    const NAME: &'static str = "table_product";
    const RULE: Rule = Rule::Short;
    const DERIVATIVE: Derivative = Derivative::Differentiable;
    const OPERANDS: &'static [Operand] = &[Operand::rows("x"), Operand::rows("y")];

    fn samples(sizes: &Sizes) -> Result<Vec<Sample<Self>>> {
        let tables = [
            Table::geometric(&sizes.algebra),
            Table::regressive(&sizes.algebra),
            Table::by_path(&sizes.algebra).0,
        ];
        let sample = |table| Sample::new(TableProduct { table }, [features(sizes), features(sizes)]);
        Ok(tables.map(sample).into())
    }

    fn output_axes(&self) -> Option<Vec<Axis>> {
        let [_, rows, features] = Axis::all_of(0);
        Some(vec![Axis::Size(self.table.out), rows, features])
    }

    fn forward(&self, inputs: &[Array]) -> Result<Forward> {
        Ok(table_product::forward(&self.table, &inputs[0], &inputs[1])?.into())
    }

    fn backward(&self, context: &BackwardContext<'_>, grad: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let [a, b] = [&context.inputs[0], &context.inputs[1]];
        Ok(vec![
            context.when_needed(0, || table_product(&self.table.grad_a(), grad, b))?,
            context.when_needed(1, || table_product(&self.table.grad_b(), grad, a))?,
        ])
    }

    /// The first loop goes over the terms of the table.
    fn formula(&self, inputs: &[&[usize]], _: &[usize]) -> Option<Formula> {
        let rest = inputs.first()?.get(1..)?;
        let terms: Vec<TableTerm> = self.table.terms().collect();
        let at = |component: fn(&TableTerm) -> u16| {
            let list: Arc<[usize]> = terms.iter().map(|term| usize::from(component(term))).collect();
            let mut at = At::counters(1 + rest.len());
            at[0] = At::listed(0, &list);
            at
        };
        let signs = Scalar::Listed(0, terms.iter().map(|term| f64::from(term.sign)).collect());
        let product = Scalar::Load(0, at(|term| term.a)).mul(Scalar::Load(1, at(|term| term.b)));
        let sizes = std::iter::once(terms.len()).chain(rest.iter().copied()).collect();
        Some(Formula::sum(sizes, at(|term| term.out), product.mul(signs)))
    }
}

/// The table of the operation `table_product` with these attributes.
///
/// # Errors
/// Attributes of something else.
pub fn table_of(attributes: &Attributes) -> Result<Arc<Table>> {
    Ok(attributes.read::<TableProduct>(TableProduct::NAME)?.table)
}

/// `out[o] = Σ ±a[i]·b[k]` by a table.
pub(crate) fn table_product(table: &Arc<Table>, a: &Tensor, b: &Tensor) -> Result<Tensor> {
    Tensor::apply(TableProduct { table: Arc::clone(table) }, &[a, b])
}

/// Factors `[…]` whose axes after the first are broadcast together, NumPy's rule applied to these axes alone: `[8, rows, features]` with
/// `[8, features]`, `[8, 1, features]` or `[8]`. The first axis, of components, is each factor's own. Factors that do not fit are as they
/// were, for the check of the product to name them. Their elements are repeated by a view, of which the kernels make a copy; gradients are
/// summed over the repeated axes.
pub(super) fn broadcast(x: &Tensor, y: &Tensor) -> Result<(Tensor, Tensor)> {
    let unchanged = || (x.clone(), y.clone());
    let (Some((&a, x_rest)), Some((&b, y_rest))) = (x.shape().split_first(), y.shape().split_first()) else {
        return Ok(unchanged());
    };
    if x_rest == y_rest {
        return Ok(unchanged());
    }
    let Ok(rest) = Shape::from(x_rest).broadcast(&Shape::from(y_rest), "product") else {
        return Ok(unchanged());
    };
    let spread = |factor: &Tensor, components: usize, own: &[usize]| -> Result<Tensor> {
        let mut whole = vec![components];
        whole.extend_from_slice(&rest);
        if own == rest.dims() {
            return Ok(factor.clone());
        }
        let mut aligned = vec![1; whole.len()];
        aligned[0] = components;
        aligned[whole.len() - own.len()..].copy_from_slice(own);
        factor.reshape(aligned)?.broadcast_to(&whole.into())
    };
    Ok((spread(x, a, x_rest)?, spread(y, b, y_rest)?))
}

/// The product by a table that callers know as `operation`, of factors that they know by these names, whose axes after the first are
/// broadcast together.
///
/// # Errors
/// Shapes, dtypes or devices of the factors that do not fit together, by those names.
pub(super) fn product_by_table(
    operation: &'static str,
    table: &Arc<Table>,
    factors: [(&'static str, &Tensor); 2],
) -> Result<Tensor> {
    let [(first, a), (second, b)] = factors;
    let (a, b) = broadcast(a, b)?;
    table_product::check(operation, table, [(first, a.array()), (second, b.array())])?;
    table_product(table, &a, &b)
}

/// The grade of each blade, as an index.
pub(super) fn grade_index(algebra: &Algebra, device: &Device) -> Result<Index> {
    let grades: Vec<usize> = algebra.grades().iter().map(|&grade| usize::from(grade)).collect();
    Ok(Index::constant(&grades, algebra.grade_count(), device)?)
}

/// Indices that an algebra has, as an [`Index`].
pub(super) fn index(values: &[u32], bound: usize, device: &Device) -> Result<Index> {
    let values: Vec<usize> = values.iter().map(|&value| value as usize).collect();
    Ok(Index::constant(&values, bound, device)?)
}

/// x·Φ(x₀) with Φ(t) = ½(1 + erf(t/√2)).
pub(super) fn gate(x: &Tensor) -> Result<Tensor> {
    let scalar = x.slice(0, 0..1)?.mul_scalar(std::f64::consts::FRAC_1_SQRT_2)?;
    x.mul(&scalar.erf()?.add_scalar(1.0)?.mul_scalar(0.5)?)
}

/// The diagonal of the quadratic form, `[blades, 1, 1]`.
fn metric(algebra: &Algebra, like: &Tensor) -> Result<Tensor> {
    let diagonal: Vec<f64> = algebra.squared_norms().iter().map(|&m| f64::from(m)).collect();
    let shape = [diagonal.len(), 1, 1];
    Ok(Tensor::new(Array::constant(&diagonal, shape, like.dtype(), &like.device())?))
}

/// q(x⁽ᵏ⁾) of each grade: `[blades, batch, features]` → `[grades, batch, features]`.
pub(super) fn quadratic_by_grade(algebra: &Algebra, x: &Tensor) -> Result<Tensor> {
    let grades = grade_index(algebra, &x.device())?;
    x.square()?.mul(&metric(algebra, x)?)?.segment_sum(0, &grades)
}

/// q(x) of the whole multivector: `[1, batch, features]`.
pub(super) fn quadratic(algebra: &Algebra, x: &Tensor) -> Result<Tensor> {
    x.square()?.mul(&metric(algebra, x)?)?.sum(&[0], true)
}

/// (q² + 1e-16)^¼, as the product of (min(|q|, t)² + 1e-16)^¼ and √(max(|q|, t)/t), so that the square of a large q, which overflows, is
/// not formed. The summand is nothing beside t². No q that occurs is t, where both factors would have a derivative.
pub(crate) fn smooth_norm(q: &Tensor) -> Result<Tensor> {
    const T: f64 = 12_345.678_912_345_6;
    let small = q.clamp(-T, T)?.square()?.add_scalar(SMOOTHING)?.sqrt()?.sqrt()?;
    small.mul(&q.abs()?.clamp(T, f64::INFINITY)?.sqrt()?.mul_scalar(T.sqrt().recip())?)
}

/// A parameter `[features, columns]` as `[columns, 1, features]`, to broadcast against `[…, batch, features]`.
pub(super) fn by_column(parameter: &Tensor) -> Result<Tensor> {
    let (features, columns) = (parameter.shape()[0], parameter.shape()[1]);
    parameter.transpose(0, 1)?.reshape([columns, 1, features])
}

/// o / √(mean over features of Σ_blades-of-grade o² + 1e-6), per batch row and grade.
pub(super) fn rms_norm(algebra: &Algebra, o: &Tensor) -> Result<Tensor> {
    let grades = grade_index(algebra, &o.device())?;
    let mean_square = o.square()?.segment_sum(0, &grades)?.mean(&[2], true)?;
    o.div(&mean_square.add_scalar(EPSILON)?.sqrt()?.index_select(0, &grades)?)
}
