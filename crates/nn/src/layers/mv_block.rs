//! A block of the equivariant networks.

use super::{Layer, MvLayerNorm, MvLinear, MvSilu, SteerableProduct};
use crate::{
    Builder, DeepClone, Module, Placement, Result,
    error::{at_least_one, in_layer_of},
};
use gradewise_autograd::{
    Tensor,
    clifford::{self, MvBlock as Operands},
};
use gradewise_core::{Algebra, Signature};

/// mv_linear → mv_silu → steerable product with its linear map → mv_layer_norm (Ruhe et al. 2023, arXiv:2305.11141), fused into one
/// operator where the device has a kernel for it.
///
/// Parameters: those of [`MvLinear`], [`MvSilu`], [`SteerableProduct`] and [`MvLayerNorm`] under `0`, `1`, `2` and `3`.
#[derive(Debug, Module, DeepClone)]
pub struct MvBlock {
    #[module(skip)]
    algebra: Algebra,
    #[module(rename = "0")]
    linear: MvLinear,
    #[module(rename = "1")]
    silu: MvSilu,
    #[module(rename = "2")]
    product: SteerableProduct,
    #[module(rename = "3")]
    norm: MvLayerNorm,
}

/// Settings of an [`MvBlock`] from `inputs` to `outputs` features over the algebra of `signature`.
#[derive(Clone, Copy, Debug, Builder)]
pub struct MvBlockBuilder {
    inputs: usize,
    outputs: usize,
    signature: Signature,
}

impl MvBlockBuilder {
    /// Draws the parameters.
    ///
    /// # Errors
    /// More generators than are supported, a dtype the device does not serve, or no memory.
    pub fn init<R: rand::Rng + ?Sized>(
        self,
        placement: impl Into<Placement>,
        rng: &mut R,
    ) -> Result<MvBlock> {
        at_least_one("MvBlock", &[("inputs", self.inputs), ("outputs", self.outputs)])?;
        let (placement, Self { inputs, outputs, signature }) = (placement.into(), self);
        Ok(MvBlock {
            algebra: Algebra::new(signature)?,
            linear: MvLinear::new(inputs, outputs, signature).init(&placement, rng)?,
            silu: MvSilu::new(outputs, signature).init(&placement)?,
            product: SteerableProduct::new(outputs, signature).init(&placement, rng)?,
            norm: MvLayerNorm::new(outputs, signature).init(&placement)?,
        })
    }
}

impl MvBlock {
    /// The layers in order.
    pub fn layers(&self) -> [&dyn Layer; 4] {
        [&self.linear, &self.silu, &self.product, &self.norm]
    }
}

impl Layer for MvBlock {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        in_layer_of("MvBlock::forward", x, || self.run(x, None))
    }
}

impl MvBlock {
    /// `residual + self(x)`, with the addition fused into the operator.
    ///
    /// # Errors
    /// As [`forward`](Layer::forward); a residual of another shape than the result's.
    pub fn forward_residual(&self, x: &Tensor, residual: &Tensor) -> Result<Tensor> {
        in_layer_of("MvBlock::forward_residual", x, || self.run(x, Some(residual)))
    }

    fn run(&self, x: &Tensor, residual: Option<&Tensor>) -> Result<Tensor> {
        let (Some(bias), Some(left)) = (self.linear.bias(), self.product.linear_left()) else {
            let output = self.layers().into_iter().try_fold(x.clone(), |x, layer| layer.forward(&x))?;
            return match residual {
                Some(residual) => Ok(residual.add(&output)?),
                None => Ok(output),
            };
        };
        let Some(left_bias) = left.bias() else { unreachable!("the left map of a product has a bias") };
        let (slope, shift) = self.silu.parameters();
        let [linear, bias, slope, shift] = [self.linear.weight(), bias, slope, shift].map(|p| p.tensor());
        let [right, left, left_bias] =
            [self.product.linear_right().weight(), left.weight(), left_bias].map(|p| p.tensor());
        let [normalization, product, gain] =
            [self.product.normalization().a(), self.product.weight(), self.norm.a()].map(|p| p.tensor());
        let operands = Operands {
            x,
            linear: (&linear, &bias),
            silu: (&slope, &shift),
            right: &right,
            normalization: &normalization,
            product: &product,
            left: (&left, &left_bias),
            gain: &gain,
            residual,
        };
        Ok(clifford::mv_block(&self.algebra, &operands)?)
    }
}
