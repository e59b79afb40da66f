//! The weights of a steerable kernel's network.

use super::prelude::*;

/// The weights of one layer of the kernel network: the fully connected product of x with a normalised linear image of itself, plus a
/// linear map of x, divided by √2.
#[derive(Clone, Debug)]
pub struct SteerableLayerWeights {
    /// Of the product, `[out, in, paths]`.
    pub product: Tensor,
    /// Of the linear map to the right factor, `[in, in, grades]`.
    pub right: Tensor,
    /// Of the right factor's normalisation, `[1, in, grades]`.
    pub right_norm: Tensor,
    /// Of the linear map that is added, `[out, in, grades]`.
    pub linear: Tensor,
    /// Its bias, `[1, out, bias blades]`; none for no blades.
    pub bias: Option<Tensor>,
    /// Of the normalisation after the layer, `[1, out, grades]`; the last layer has none.
    pub norm: Option<Tensor>,
}

/// A steerable kernel: its sizes and its weights.
#[derive(Clone, Debug)]
pub struct SteerableKernel {
    /// Taps along each axis: odd, for the kernel to be centred.
    pub size: usize,
    /// Channels in and out.
    pub inputs: usize,
    /// Channels out.
    pub outputs: usize,
    /// Blades that biases are added to; only the scalar keeps the kernel equivariant.
    pub bias_blades: Vec<usize>,
    /// The width of the scalar shell that enters the network, `[1, 1, 1]`.
    pub position_width: Tensor,
    /// The widths of the shells that mask its output, before 0.4 is added, `[out, in, grades]`.
    pub widths: Tensor,
    /// Of the kernel head, `[out, in, paths]`.
    pub head: Tensor,
    /// The layers of the network, two at least.
    pub layers: Vec<SteerableLayerWeights>,
}

impl SteerableKernel {
    /// The same with all weights converted.
    pub(super) fn in_dtype(&self, dtype: DType) -> Result<Self> {
        let cast = |tensor: &Tensor| tensor.cast(dtype);
        let optional = |tensor: &Option<Tensor>| tensor.as_ref().map(cast).transpose();
        let layer = |layer: &SteerableLayerWeights| -> Result<SteerableLayerWeights> {
            Ok(SteerableLayerWeights {
                product: cast(&layer.product)?,
                right: cast(&layer.right)?,
                right_norm: cast(&layer.right_norm)?,
                linear: cast(&layer.linear)?,
                bias: optional(&layer.bias)?,
                norm: optional(&layer.norm)?,
            })
        };
        Ok(Self {
            bias_blades: self.bias_blades.clone(),
            position_width: cast(&self.position_width)?,
            widths: cast(&self.widths)?,
            head: cast(&self.head)?,
            layers: self.layers.iter().map(layer).collect::<Result<_>>()?,
            ..*self
        })
    }
}
