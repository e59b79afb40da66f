//! Weighted and fully connected geometric products.

use super::{
    of_algebra,
    primitives::{by_column, gate, index, rms_norm, table_product},
};
use crate::{Attributes, BackwardContext, Function, Result, Tensor};
use gradewise_core::Algebra;
use gradewise_kernels::{
    Array,
    ops::clifford::{
        fcgp as fcgp_kernel,
        sgp::{self as sgp_kernel, Product, ProductGradients, ProductOptions},
        table_product::Table,
    },
};

/// The unweighted geometric product of `x` and `y` `[blades, …]`, position by position.
///
/// # Errors
/// Operands of different shapes, or whose leading axis is not the blades of `algebra`.
pub fn geometric_product(algebra: &Algebra, x: &Tensor, y: &Tensor) -> Result<Tensor> {
    table_product(&Table::geometric(algebra), x, y)
}

/// The regressive product of `x` and `y` `[blades, …]`, position by position: dual(x ∨ y) = dual(x) ∧ dual(y), in projective algebras the
/// join of points.
///
/// # Errors
/// As [`geometric_product`].
pub fn regressive_product(algebra: &Algebra, x: &Tensor, y: &Tensor) -> Result<Tensor> {
    table_product(&Table::regressive(algebra), x, y)
}

/// The weighted product `out_j = Σ sign·w[:, path]·x_i·y_k`, with what `options` fuse around it. `x`, `y` and the
/// result are `[blades, batch, features]`, `w` `[features, paths]`.
///
/// # Errors
/// Shapes, dtypes or devices that do not fit together, named.
pub fn sgp(algebra: &Algebra, x: &Tensor, y: &Tensor, w: &Tensor, options: ProductOptions) -> Result<Tensor> {
    Tensor::apply(Weighted { algebra: algebra.clone(), options, kind: Kind::Diagonal }, &[x, y, w])
}

/// The fully connected product `out_j = Σ_paths (Σ ±x_i·y_k)·w[path]`, with what `options` fuse around it. `x` and `y`
/// are `[blades, batch, in]`, `w` `[paths, in, out]`, the result `[blades, batch, out]`.
///
/// # Errors
/// Shapes, dtypes or devices that do not fit together, named.
pub fn fcgp(
    algebra: &Algebra,
    x: &Tensor,
    y: &Tensor,
    w: &Tensor,
    options: ProductOptions,
) -> Result<Tensor> {
    Tensor::apply(Weighted { algebra: algebra.clone(), options, kind: Kind::Full }, &[x, y, w])
}

/// norm(sgp(gate(x), gate(y), w)); without the norm if `normalize` is false.
///
/// # Errors
/// As [`sgp`].
pub fn gelu_sgp_norm(
    algebra: &Algebra,
    x: &Tensor,
    y: &Tensor,
    w: &Tensor,
    normalize: bool,
) -> Result<Tensor> {
    sgp(algebra, x, y, w, ProductOptions { gate: true, normalize })
}

/// norm(fcgp(gate(x), gate(y), w)); without the norm if `normalize` is false.
///
/// # Errors
/// As [`fcgp`].
pub fn gelu_fcgp_norm(
    algebra: &Algebra,
    x: &Tensor,
    y: &Tensor,
    w: &Tensor,
    normalize: bool,
) -> Result<Tensor> {
    fcgp(algebra, x, y, w, ProductOptions { gate: true, normalize })
}

enum Kind {
    /// A weight per feature and path.
    Diagonal,
    /// A matrix per path.
    Full,
}

struct Weighted {
    algebra: Algebra,
    options: ProductOptions,
    kind: Kind,
}

impl Function for Weighted {
    fn name(&self) -> &'static str {
        match (&self.kind, self.options) {
            (Kind::Diagonal, ProductOptions { gate: true, .. }) => "gelu_sgp_norm",
            (Kind::Diagonal, _) => "sgp",
            (Kind::Full, ProductOptions { gate: true, .. }) => "gelu_fcgp_norm",
            (Kind::Full, _) => "fcgp",
        }
    }

    fn attributes(&self) -> Attributes {
        of_algebra(&self.algebra).with("gate", self.options.gate).with("normalize", self.options.normalize)
    }

    fn forward(&self, inputs: &[Array]) -> Result<(Array, Vec<Array>)> {
        let forward = match self.kind {
            Kind::Diagonal => sgp_kernel::forward,
            Kind::Full => fcgp_kernel::forward,
        };
        let product = forward(&self.algebra, &inputs[0], &inputs[1], &inputs[2], self.options)?;
        Ok((product.output, product.inverse_rms.into_iter().collect()))
    }

    fn backward(&self, context: &BackwardContext<'_>, grad: &Array) -> Result<Vec<Option<Array>>> {
        let backward = match self.kind {
            Kind::Diagonal => sgp_kernel::backward,
            Kind::Full => fcgp_kernel::backward,
        };
        let inputs = context.inputs();
        let product =
            Product { output: context.output().clone(), inverse_rms: context.saved().first().cloned() };
        let needs = [context.needs(0), context.needs(1), context.needs(2)];
        let operands = (&inputs[0], &inputs[1], &inputs[2]);
        let ProductGradients { x, y, weights, .. } =
            backward(&self.algebra, operands, self.options, &product, grad, needs)?;
        Ok(vec![x, y, weights])
    }

    fn reexpress(&self, inputs: &[Tensor]) -> Result<Tensor> {
        let (mut x, mut y) = (inputs[0].clone(), inputs[1].clone());
        if self.options.gate {
            (x, y) = (gate(&x)?, gate(&y)?);
        }
        let device = x.device();
        let (table, paths, outs) = Table::by_path(&self.algebra);
        let pairs = table_product(&table, &x, &y)?;
        let paths = index(&paths, self.algebra.paths().len(), &device)?;
        let weighted = match self.kind {
            Kind::Diagonal => pairs.mul(&by_column(&inputs[2])?.index_select(0, &paths)?)?,
            Kind::Full => pairs.matmul(&inputs[2].index_select(0, &paths)?)?,
        };
        let outs = index(&outs, self.algebra.blade_count(), &device)?;
        let product = weighted.segment_sum(0, &outs)?;
        if self.options.normalize { rms_norm(&self.algebra, &product) } else { Ok(product) }
    }
}
