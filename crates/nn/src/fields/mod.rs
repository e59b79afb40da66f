//! Networks on multivector fields `[blades, batch, *space, channels]` over grids of 1 to 3 axes.
//!
//! The layers are those of Brandstetter et al. 2022 (arXiv:2209.04934), Ruhe et al. 2023 (arXiv:2302.06594) and Zhdanov et al. 2024
//! (arXiv:2402.14730), and the models are those that these works train on fluids and electromagnetic fields. Parameters have the names and
//! the shapes of the published implementations, so that their weights load; `docs/fields.md` says which physical field goes to which blade.

mod batch_norm;
mod conv;
mod convert;
mod fluid;
mod g3;
mod gate;
mod isometry;
mod linear;
mod norm;
mod plain;
mod resnet;
mod spectral;
mod steerable;
mod steerable_resnet;
mod unet;

pub use batch_norm::{CliffordBatchNorm, CliffordBatchNormBuilder};
pub use conv::{CliffordConv, CliffordConvBuilder, FieldBias};
pub use convert::{field_from_channels_first, field_to_channels_first};
pub use fluid::{FieldBlock, FieldNet, FieldNetConfig};
pub use g3::{G3Conv, G3ConvBuilder, G3Gate, G3ResNet, G3ResNetConfig};
pub use gate::{GateArgument, MvAct, MvActBuilder};
pub use gradewise_autograd::fields::{
    ConvolutionOptions, Padding, Pairing, Side, SpectralOptions, SteerablePadding, Whitening,
};
pub use isometry::GridIsometry;
pub use linear::{CliffordLinear, CliffordLinearBuilder, PgaConjugateLinear, PgaConjugateLinearBuilder};
pub use norm::{BiasOrder, CliffordGroupNorm, CliffordGroupNormBuilder, G3GroupNorm};
pub use plain::{PlainResNet, PlainResNetConfig};
pub use resnet::{CliffordResNet, CliffordResNetConfig};
pub use spectral::{CliffordSpectralConv, CliffordSpectralConvBuilder};
pub use steerable::{SteerableConv, SteerableConvBuilder};
pub use steerable_resnet::{SteerableResNet, SteerableResNetConfig};
pub use unet::{G3UNet, G3UNetConfig};

use crate::{Parameter, Result};
use gradewise_autograd::Tensor;
use gradewise_core::DType;
use gradewise_kernels::{Array, Device};

/// Stacks parameters of one shape along a new leading axis.
fn stacked(parameters: &[Parameter]) -> Result<Tensor> {
    let tensors: Vec<Tensor> = parameters.iter().map(Parameter::tensor).collect();
    Ok(gradewise_autograd::stack(&tensors.iter().collect::<Vec<_>>(), 0)?)
}

/// The identity on the blades of each channel, `[blades, blades, channels]`.
fn identities(blades: usize, channels: usize, dtype: DType, device: &Device) -> Result<Array> {
    let entries: Vec<f64> = (0..blades * blades * channels)
        .map(|at| if (at / channels).is_multiple_of(blades + 1) { 1.0 } else { 0.0 })
        .collect();
    Ok(Array::from_f64(&entries, [blades, blades, channels], dtype, device)?)
}

/// An [`Error::Argument`](crate::Error::Argument) about a setting.
fn refuse<T>(
    operation: &'static str,
    argument: &'static str,
    actual: impl std::fmt::Debug,
    expected: impl Into<String>,
) -> Result<T> {
    Err(crate::Error::Argument {
        operation,
        argument,
        actual: format!("{actual:?}"),
        expected: expected.into(),
    })
}
