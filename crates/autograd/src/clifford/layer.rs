//! The layer of the Flash-Clifford family as one operator.

use super::{
    Bias, bias_name,
    linear::mv_linear,
    of_algebra,
    product::{fcgp, sgp},
};
use crate::{Attributes, BackwardContext, Function, Result, Tensor};
use gradewise_core::Algebra;
use gradewise_kernels::{
    Array,
    ops::clifford::{
        clifford_layer::{self as kernel, Gradients, Operands, Options, Output},
        sgp::{Product, ProductOptions},
    },
};

/// Operands of [`clifford_layer`].
#[derive(Clone, Copy, Debug)]
pub struct CliffordLayer<'a> {
    /// The input `[blades, batch, features]`.
    pub x: &'a Tensor,
    /// Matrices `[grades, features, features]` of the linear map.
    pub linear: &'a Tensor,
    /// Bias `[features]` of the linear map.
    pub bias: Option<(&'a Tensor, Bias)>,
    /// Product weights: `[features, paths]`, or `[paths, features, out]` if the product is fully connected.
    pub w: &'a Tensor,
}

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
    let function = Layer { algebra: algebra.clone(), options, bias: bias.map(|(_, bias)| bias) };
    let mut inputs = vec![x, linear, w];
    inputs.extend(bias.map(|(bias, _)| bias));
    Tensor::apply(function, &inputs)
}

struct Layer {
    algebra: Algebra,
    options: LayerOptions,
    bias: Option<Bias>,
}

impl Layer {
    fn operands<'a>(&self, inputs: &'a [Array]) -> Operands<'a> {
        let bias = inputs.get(3).zip(self.bias);
        Operands { x: &inputs[0], linear: &inputs[1], bias, w: &inputs[2] }
    }

    fn options(&self) -> Options {
        Options { fully_connected: self.options.fully_connected, product: self.options.product }
    }
}

impl Function for Layer {
    fn name(&self) -> &'static str {
        if self.options.fully_connected { "fc_clifford_layer" } else { "clifford_layer" }
    }

    fn attributes(&self) -> Attributes {
        of_algebra(&self.algebra)
            .with("bias", bias_name(self.bias))
            .with("gate", self.options.product.gate)
            .with("normalize", self.options.product.normalize)
            .with("recompute", self.options.recompute)
    }

    fn forward(&self, inputs: &[Array]) -> Result<(Array, Vec<Array>)> {
        let Output { product, y } = kernel::forward(&self.algebra, &self.operands(inputs), self.options())?;
        let kept = (!self.options.recompute).then_some(y);
        Ok((product.output, product.inverse_rms.into_iter().chain(kept).collect()))
    }

    fn backward(&self, context: &BackwardContext<'_>, grad: &Array) -> Result<Vec<Option<Array>>> {
        let normalize = self.options.product.normalize;
        let inverse_rms = context.saved().first().filter(|_| normalize).cloned();
        let y = context.saved().get(usize::from(normalize));
        let product = Product { output: context.output().clone(), inverse_rms };
        let operands = self.operands(context.inputs());
        let needs = [context.needs(0), context.needs(1), context.needs(3), context.needs(2)];
        let Gradients { x, linear, bias, w } =
            kernel::backward(&self.algebra, &operands, self.options(), (&product, y), grad, needs)?;
        let mut gradients = vec![x, linear, w];
        if self.bias.is_some() {
            gradients.push(bias);
        }
        Ok(gradients)
    }

    fn reexpress(&self, inputs: &[Tensor]) -> Result<Tensor> {
        let x = &inputs[0];
        let y = mv_linear(&self.algebra, x, &inputs[1], inputs.get(3).zip(self.bias))?;
        let product = if self.options.fully_connected { fcgp } else { sgp };
        product(&self.algebra, x, &y, &inputs[2], self.options.product)
    }
}
