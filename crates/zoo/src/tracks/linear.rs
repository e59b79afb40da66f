//! Linear maps of channels.

use super::{Rank, TrackSize, Tracks, require_rank};
use gradewise_autograd::Tensor;
use gradewise_core::Signature;
use gradewise_nn::{
    DeepClone, Module, Parameter, Placement, Result,
    data::at_least_one,
    in_layer,
    layers::{Bias, Layer, MvLinear},
};

/// A matrix for each grade of the multivectors, one for the tensors of each rank. The bias, if there is one, is added only to scalars: a constant of any
/// other kind would break equivariance.
///
/// Parameters: those of [`MvLinear`] under `multivectors`, and `tensors` and `octupoles` `[inputs, outputs]`; normal with variance 1/inputs.
#[derive(Debug, Module, DeepClone)]
pub struct TrackLinear {
    multivectors: MvLinear,
    tensors: Option<Parameter>,
    octupoles: Option<Parameter>,
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
        let (placement, TrackSize { channels, rank }) = (&placement.into(), size);
        let linear = MvLinear::new(inputs, channels, Signature::CL3).bias(bias.then_some(Bias::Scalar));
        let multivectors = linear.init(placement, rng)?;
        let deviation = (inputs.max(1) as f64).sqrt().recip();
        let mut matrix =
            |there: bool| there.then(|| placement.normal([inputs, channels], deviation, rng)).transpose();
        let tensors = matrix(rank.has_tensors())?;
        Ok(Self { multivectors, tensors, octupoles: matrix(rank.has_octupoles())? })
    }

    /// The tensors that it maps.
    pub(super) fn rank(&self) -> Rank {
        match (&self.tensors, &self.octupoles) {
            (None, _) => Rank::One,
            (Some(_), None) => Rank::Two,
            (Some(_), Some(_)) => Rank::Three,
        }
    }

    /// Applies the map to `x`.
    ///
    /// # Errors
    /// Other channels; tensors for a layer without tensors, or missing tensors.
    pub fn forward(&self, x: &Tracks) -> Result<Tracks> {
        in_layer("TrackLinear::forward", || {
            require_rank("TrackLinear", self.rank(), x)?;
            let mapped = |weight: &Option<Parameter>, of: &Option<Tensor>| {
                of.as_ref().zip(weight.as_ref()).map(|(of, weight)| of.matmul(&weight.tensor())).transpose()
            };
            Ok(Tracks {
                multivectors: self.multivectors.forward(&x.multivectors)?,
                tensors: mapped(&self.tensors, &x.tensors)?,
                octupoles: mapped(&self.octupoles, &x.octupoles)?,
            })
        })
    }
}
