//! The layer of the Flash-Clifford family as one operator.

use super::{
    Bias,
    linear::mv_linear,
    prelude::*,
    product::{fcgp, sgp},
};
use gradewise_kernels::ops::clifford::{
    clifford_layer::{self as kernel, Gradients, Kept, Needs, Operands, Options, Output},
    sgp::{Product, ProductOptions},
};

/// Operands of [`clifford_layer`].
pub type CliffordLayer<'a> = Operands<'a, Tensor>;

/// What [`clifford_layer`] does besides.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LayerOptions {
    /// Whether the product is fully connected.
    pub fully_connected: bool,
    /// Gate and norm.
    pub product: ProductOptions,
    /// Whether the mapped input is computed again for the gradients instead of being kept: an array of the size of the input less
    /// memory between the passes, for one matrix product more.
    pub recompute: bool,
}

/// `y = mv_linear(x) + bias`, then `norm(product(gate(x), gate(y), w))`, with the gradients through both paths of `x` added where
/// they are computed.
///
/// # Errors
/// Shapes, dtypes or devices that do not fit together, named.
pub fn clifford_layer(
    algebra: &Algebra,
    operands: &CliffordLayer<'_>,
    options: LayerOptions,
) -> Result<Tensor> {
    let CliffordLayer { x, linear, bias, w } = *operands;
    let LayerOptions { fully_connected, product, recompute } = options;
    let (algebra, kind) = (algebra.clone(), bias.map(|(_, kind)| kind));
    let mut inputs = vec![x, linear, w];
    inputs.extend(bias.map(|(bias, _)| bias));
    match fully_connected {
        true => Tensor::apply(Layer::<true> { algebra, bias: kind, product, recompute }, &inputs),
        false => Tensor::apply(Layer::<false> { algebra, bias: kind, product, recompute }, &inputs),
    }
}

/// Inputs: x, the matrices, the product weights, and the bias if there is one.
#[derive(Serialize, Deserialize)]
pub(crate) struct Layer<const FULL: bool> {
    #[serde(with = "attributes::algebra")]
    algebra: Algebra,
    #[serde(with = "attributes::bias")]
    bias: Option<Bias>,
    #[serde(with = "attributes::product")]
    product: ProductOptions,
    recompute: bool,
}

impl<const FULL: bool> Layer<FULL> {
    fn operands<'a>(&self, inputs: &'a [Array]) -> Operands<'a> {
        let bias = inputs.get(3).zip(self.bias);
        Operands { x: &inputs[0], linear: &inputs[1], bias, w: &inputs[2] }
    }

    fn options(&self) -> Options {
        Options { fully_connected: FULL, product: self.product }
    }
}

impl<const FULL: bool> Operation for Layer<FULL> {
    const NAME: &'static str = if FULL { "fc_clifford_layer" } else { "clifford_layer" };
    const RULE: Rule = Rule::Short;
    const DERIVATIVE: Derivative = Derivative::Reexpressed;
    const OPERANDS: &'static [Operand] = &[
        Operand::rows("x"),
        Operand::parameter("linear"),
        Operand::parameter("weight"),
        Operand::parameter("bias").optional(),
    ];
    const SAVED: &'static [SavedArray] =
        &[INVERSE_RMS, SavedArray { name: "mapped", is_wide: false, needs_kernels: false }];
    const HAS_MATRIX_PRODUCTS: bool = true;

    fn samples(sizes: &Sizes) -> Result<Vec<Sample<Self>>> {
        let count = sizes.features;
        let weights = match FULL {
            true => Input::normal([sizes.algebra.paths().len(), count, count]),
            false => path_weights(sizes),
        };
        let sample = |(bias, gate, normalize, recompute): (Option<Bias>, bool, bool, bool)| {
            let product = ProductOptions { gate, normalize };
            let operation = Layer { algebra: sizes.algebra.clone(), bias, product, recompute };
            let mut inputs = vec![features(sizes), matrices(sizes, count, count), weights.clone()];
            inputs.extend(bias.map(|_| Input::normal([count])));
            Sample::new(operation, inputs)
        };
        Ok([
            (Some(Bias::AllBlades), true, true, false),
            (Some(Bias::Scalar), true, false, true),
            (None, false, false, false),
        ]
        .map(sample)
        .into())
    }

    fn output_axes(&self) -> Option<Vec<Axis>> {
        Some(if FULL { Axis::columns_of(2) } else { Axis::all_of(0) }.into())
    }

    fn saved_axes(&self) -> Vec<Option<Vec<Axis>>> {
        let inverse_rms = self.product.normalize.then(|| by_grade_and_row(&self.algebra));
        vec![inverse_rms, (!self.recompute).then(|| Axis::all_of(0).into())]
    }

    fn reads_output(&self) -> bool {
        self.product.normalize
    }

    fn forward(&self, inputs: &[Array]) -> Result<Forward> {
        let Output { product, y } = kernel::forward(&self.algebra, &self.operands(inputs), self.options())?;
        let kept = (!self.recompute).then_some(y);
        Ok(Forward { output: product.output, saved: product.inverse_rms.into_iter().chain(kept).collect() })
    }

    fn backward(&self, context: &BackwardContext<'_>, grad: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let (inputs, normalize) = (context.arrays(), self.product.normalize);
        let inverse_rms = context.saved.first().filter(|_| normalize).cloned();
        let y = context.saved.get(usize::from(normalize));
        let product = Product { output: context.output.array().clone(), inverse_rms };
        let needs = Needs {
            x: context.needs(0),
            linear: context.needs(1),
            w: context.needs(2),
            bias: context.needs(3),
        };
        let (operands, kept) = (self.operands(inputs), Kept { product: &product, y });
        let Gradients { x, linear, bias, w } =
            kernel::backward(&self.algebra, &operands, self.options(), kept, grad.array(), needs)?;
        Ok(constants([x, linear, w].into_iter().chain(self.bias.map(|_| bias))))
    }

    fn reexpress(&self, inputs: &[Tensor]) -> Result<Tensor> {
        let x = &inputs[0];
        let y = mv_linear(&self.algebra, x, &inputs[1], inputs.get(3).zip(self.bias))?;
        let product = if FULL { fcgp } else { sgp };
        product(&self.algebra, x, &y, &inputs[2], self.product)
    }

    fn cost(&self, inputs: &[&[usize]]) -> Cost {
        let [x, matrices, weights, ..] = inputs else { return Cost::default() };
        let linear = cost::linear(x, matrices);
        match FULL {
            true => Cost { matrix_flops: linear + cost::full(&self.algebra, x, weights), element_flops: 0 },
            false => Cost { matrix_flops: linear, element_flops: cost::terms(&self.algebra, x) },
        }
    }
}
