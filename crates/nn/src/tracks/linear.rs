//! Linear maps of channels.

use super::{TrackSize, Tracks, tensors_missing};
use crate::{
    Module, Parameter, Placement, Result,
    error::at_least_one,
    layers::{Bias, Layer, MvLinear},
};
use gradewise_core::Signature;

/// A matrix for each grade of the multivectors, one for the tensors. The bias, if there is one, is added only to scalars: a constant of any
/// other kind would break equivariance.
///
/// Parameters: those of [`MvLinear`] under `multivectors`, and `tensors` `[inputs, outputs]`; normal with variance 1/inputs.
#[derive(Debug, Module)]
pub struct TrackLinear {
    multivectors: MvLinear,
    tensors: Option<Parameter>,
}

impl TrackLinear {
    /// Draws the parameters of a map from `inputs` channels to those of `size`.
    ///
    /// # Errors
    /// A dtype the device does not serve, or no memory.
    pub fn init<R: rand::Rng + ?Sized>(
        inputs: usize,
        size: TrackSize,
        bias: bool,
        placement: impl Into<Placement>,
        rng: &mut R,
    ) -> Result<Self> {
        at_least_one("TrackLinear", &[("inputs", inputs), ("channels", size.channels)])?;
        let (placement, TrackSize { channels, tensors }) = (&placement.into(), size);
        let linear = MvLinear::new(inputs, channels, Signature::CL3).bias(bias.then_some(Bias::Scalar));
        let multivectors = linear.init(placement, rng)?;
        let deviation = (inputs.max(1) as f64).sqrt().recip();
        let of_tensors = || placement.normal([inputs, channels], deviation, rng);
        Ok(Self { multivectors, tensors: tensors.then(of_tensors).transpose()? })
    }

    /// Applies the map to `x`.
    ///
    /// # Errors
    /// Other channels; tensors for a layer without tensors, or missing tensors.
    pub fn forward(&self, x: &Tracks) -> Result<Tracks> {
        let tensors = match (&self.tensors, &x.tensors) {
            (None, None) => None,
            (Some(weight), Some(tensors)) => Some(tensors.matmul(&weight.tensor())?),
            (expected, _) => return Err(tensors_missing("TrackLinear", expected.is_some())),
        };
        Ok(Tracks { multivectors: self.multivectors.forward(&x.multivectors)?, tensors })
    }
}
