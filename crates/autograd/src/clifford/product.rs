//! Weighted and fully connected geometric products.

use super::{
    prelude::*,
    primitives::{broadcast, by_column, gate, index, product_by_table, rms_norm, table_product},
};
use gradewise_core::Shape;
use gradewise_kernels::ops::clifford::{
    fcgp as fcgp_kernel,
    sgp::{self as sgp_kernel, Needs, Operands, Product, ProductGradients, ProductOptions},
    table_product::Table,
};
use std::sync::Arc;

/// The unweighted geometric product of `x` and `y` `[blades, …]`, position by position. The axes after the first are broadcast together, as
/// NumPy aligns them: one multivector `[blades]` multiplies all of `[blades, rows, features]`, `[blades, features]` each row's features.
///
/// ```
/// use gradewise_autograd::{Tensor, clifford::geometric_product};
/// use gradewise_core::{Algebra, Blade, DType, Signature};
/// use gradewise_kernels::Device;
///
/// let plane = Algebra::new(Signature::CL2)?;
/// let x = Tensor::ones([4, 5, 2], DType::F64, &Device::Cpu)?;
/// let e1 = Tensor::from_slice(&[0.0, 1.0, 0.0, 0.0], [4], &Device::Cpu)?.requires_grad();
/// let y = geometric_product(&plane, &x, &e1)?;
/// assert_eq!(y.shape().dims(), [4, 5, 2]);
/// let gradient = y.blade(Blade::SCALAR)?.sum_all()?.backward()?.take(&e1)?;
/// assert_eq!(gradient.to_vec::<f64>()?, [10.0, 10.0, 10.0, -10.0]);
/// # Ok::<(), gradewise_autograd::Error>(())
/// ```
///
/// # Errors
/// Operands whose leading axis is not the blades of `algebra`, or whose other axes do not broadcast.
pub fn geometric_product(algebra: &Algebra, x: &Tensor, y: &Tensor) -> Result<Tensor> {
    require_factors("geometric_product", algebra, x, y)?;
    product_by_table("geometric_product", &Table::geometric(algebra), [("x", x), ("y", y)])
}

/// Refuses factors of a product, position by position, that are not multivectors of the algebra or do not broadcast in their other axes.
fn require_factors(operation: &'static str, algebra: &Algebra, x: &Tensor, y: &Tensor) -> Result<()> {
    let blades = algebra.blade_count();
    if let (Some((&a, x_rest)), Some((&b, y_rest))) = (x.shape().split_first(), y.shape().split_first())
        && (a, b) == (blades, blades)
        && Shape::from(x_rest).broadcast(&Shape::from(y_rest), operation).is_ok()
    {
        return Ok(());
    }
    let message = format!(
        "`x` is {} and `y` is {}, expected [{blades}, …] with axes after the first that broadcast, along which the {blades} blades of {} lie",
        x.shape(),
        y.shape(),
        algebra.signature()
    );
    Err(Error::Argument { operation, message })
}

/// The regressive product of `x` and `y` `[blades, …]`, position by position: dual(x ∨ y) = dual(x) ∧ dual(y), in projective algebras the
/// join of points. It broadcasts as [`geometric_product`] does.
///
/// # Errors
/// As [`geometric_product`].
pub fn regressive_product(algebra: &Algebra, x: &Tensor, y: &Tensor) -> Result<Tensor> {
    require_factors("regressive_product", algebra, x, y)?;
    product_by_table("regressive_product", &Table::regressive(algebra), [("x", x), ("y", y)])
}

/// The product of `x` and `y` `[components, …]` by a table of signed terms, position by position: such as that of multivectors whose blades lie
/// in another order ([`Table::ordered`]). It broadcasts as [`geometric_product`] does.
///
/// # Errors
/// Operands whose other axes do not broadcast, or whose leading axes are not those of the table.
pub fn product_by(table: &Arc<Table>, x: &Tensor, y: &Tensor) -> Result<Tensor> {
    product_by_table("product_by", table, [("x", x), ("y", y)])
}

/// The weighted product `out_j = Σ sign·w[:, path]·x_i·y_k`, with what `options` fuse around it. `x`, `y` and the
/// result are `[blades, batch, features]`, `w` `[features, paths]`; `x` and `y` broadcast as in [`geometric_product`].
///
/// # Errors
/// Shapes, dtypes or devices that do not fit together, named.
pub fn sgp(algebra: &Algebra, x: &Tensor, y: &Tensor, w: &Tensor, options: ProductOptions) -> Result<Tensor> {
    weighted::<false>(algebra, [x, y, w], options)
}

/// The fully connected product `out_j = Σ_paths (Σ ±x_i·y_k)·w[path]`, with what `options` fuse around it. `x` and `y`
/// are `[blades, batch, in]`, `w` `[paths, in, out]`, the result `[blades, batch, out]`; `x` and `y` broadcast as in [`geometric_product`].
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
    weighted::<true>(algebra, [x, y, w], options)
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

/// Applies the product that the options name.
fn weighted<const FULL: bool>(
    algebra: &Algebra,
    [x, y, w]: [&Tensor; 3],
    options: ProductOptions,
) -> Result<Tensor> {
    let (algebra, normalize) = (algebra.clone(), options.normalize);
    let (x, y) = broadcast(x, y)?;
    let operands = [&x, &y, w];
    match options.gate {
        true => Tensor::apply(Weighted::<FULL, true> { algebra, normalize }, &operands),
        false => Tensor::apply(Weighted::<FULL, false> { algebra, normalize }, &operands),
    }
}

/// A weighted product. `FULL`: a matrix for each path instead of a weight for each feature and path. `GATE`: both factors are gated.
/// Inputs: x, y and the weights.
#[derive(Serialize, Deserialize)]
pub(crate) struct Weighted<const FULL: bool, const GATE: bool> {
    #[serde(with = "attributes::algebra")]
    algebra: Algebra,
    normalize: bool,
}

impl<const FULL: bool, const GATE: bool> Weighted<FULL, GATE> {
    fn options(&self) -> ProductOptions {
        ProductOptions { gate: GATE, normalize: self.normalize }
    }
}

impl<const FULL: bool, const GATE: bool> Operation for Weighted<FULL, GATE> {
    const NAME: &'static str = match (FULL, GATE) {
        (false, false) => "sgp",
        (false, true) => "gelu_sgp_norm",
        (true, false) => "fcgp",
        (true, true) => "gelu_fcgp_norm",
    };
    const RULE: Rule = Rule::Short;
    const DERIVATIVE: Derivative = Derivative::Reexpressed;
    const OPERANDS: &'static [Operand] =
        &[Operand::rows("x"), Operand::rows("y"), Operand::parameter("weight")];
    const SAVED: &'static [SavedArray] = &[INVERSE_RMS];
    const HAS_MATRIX_PRODUCTS: bool = FULL;

    fn samples(sizes: &Sizes) -> Result<Vec<Sample<Self>>> {
        let weights = match FULL {
            true => Input::normal([sizes.algebra.paths().len(), sizes.features, sizes.features + 1]),
            false => path_weights(sizes),
        };
        let sample = |normalize| {
            let operation = Weighted { algebra: sizes.algebra.clone(), normalize };
            Sample::new(operation, [features(sizes), features(sizes), weights.clone()])
        };
        Ok([false, true].map(sample).into())
    }

    fn output_axes(&self) -> Option<Vec<Axis>> {
        Some(if FULL { Axis::columns_of(2) } else { Axis::all_of(0) }.into())
    }

    fn saved_axes(&self) -> Vec<Option<Vec<Axis>>> {
        vec![self.normalize.then(|| by_grade_and_row(&self.algebra))]
    }

    fn reads_output(&self) -> bool {
        self.normalize
    }

    fn forward(&self, inputs: &[Array]) -> Result<Forward> {
        let forward = if FULL { fcgp_kernel::forward } else { sgp_kernel::forward };
        let operands = Operands { x: &inputs[0], y: &inputs[1], w: &inputs[2] };
        let Product { output, inverse_rms } = forward(&self.algebra, &operands, self.options())?;
        Ok(Forward { output, saved: inverse_rms.into_iter().collect() })
    }

    fn backward(&self, context: &BackwardContext<'_>, grad: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let backward = if FULL { fcgp_kernel::backward } else { sgp_kernel::backward };
        let inputs = context.arrays();
        let product =
            Product { output: context.output.array().clone(), inverse_rms: context.saved.first().cloned() };
        let needs = Needs { x: context.needs(0), y: context.needs(1), w: context.needs(2) };
        let operands = Operands { x: &inputs[0], y: &inputs[1], w: &inputs[2] };
        let ProductGradients { x, y, w, .. } =
            backward(&self.algebra, &operands, self.options(), &product, grad.array(), needs)?;
        Ok(constants([x, y, w]))
    }

    fn reexpress(&self, inputs: &[Tensor]) -> Result<Tensor> {
        let (mut x, mut y) = (inputs[0].clone(), inputs[1].clone());
        if GATE {
            (x, y) = (gate(&x)?, gate(&y)?);
        }
        let device = x.device();
        let (table, paths, outs) = Table::by_path(&self.algebra);
        let pairs = table_product(&table, &x, &y)?;
        let paths = index(&paths, self.algebra.paths().len(), &device)?;
        let weighted = match FULL {
            true => pairs.matmul(&inputs[2].index_select(0, &paths)?)?,
            false => pairs.mul(&by_column(&inputs[2])?.index_select(0, &paths)?)?,
        };
        let outs = index(&outs, self.algebra.blade_count(), &device)?;
        let product = weighted.segment_sum(0, &outs)?;
        if self.normalize { rms_norm(&self.algebra, &product) } else { Ok(product) }
    }

    fn cost(&self, inputs: &[&[usize]]) -> Cost {
        let [x, _, weights] = inputs else { return Cost::default() };
        match FULL {
            true => Cost { matrix_flops: cost::full(&self.algebra, x, weights), element_flops: 0 },
            false => Cost { matrix_flops: 0, element_flops: cost::terms(&self.algebra, x) },
        }
    }
}
