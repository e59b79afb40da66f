//! The Clifford Fourier layer.

use crate::{
    Builder, DeepClone, Module, Parameter, Placement, Result,
    error::{at_least_one, in_layer_of},
    layers::Layer,
};
use gradewise_autograd::{
    Tensor,
    fields::{self, SpectralOptions},
};
use gradewise_core::OrderedMetric;

/// Products at the low frequencies of a field ([`fields::clifford_spectral_conv`]), in 2 or 3 dimensions.
///
/// Parameter: `weights` `[blades, out, in, *2·modes]`, uniform in [0, 1/(in·out)) as published.
#[derive(Debug, Module, DeepClone)]
pub struct CliffordSpectralConv {
    #[module(skip)]
    metric: OrderedMetric,
    weights: Parameter,
    #[module(skip)]
    options: SpectralOptions,
}

/// Settings of a [`CliffordSpectralConv`] from `inputs` to `outputs` channels, at `modes` positive and as many negative frequencies along
/// each axis.
#[derive(Clone, Debug, Builder)]
pub struct CliffordSpectralConvBuilder {
    #[builder(by_ref)]
    metric: OrderedMetric,
    inputs: usize,
    outputs: usize,
    #[builder(by_ref)]
    modes: Vec<usize>,
    /// Which blades are paired, the side of the weights, and the released octant; by default those that commute with shifts where possible
    /// ([`SpectralOptions::new`]), [`SpectralOptions::reference`] to load trained weights.
    #[builder(default, strip_option)]
    options: Option<SpectralOptions>,
}

impl CliffordSpectralConvBuilder {
    /// Draws the parameter.
    ///
    /// # Errors
    /// A dtype the device does not serve, or no memory.
    pub fn init<R: rand::Rng + ?Sized>(
        self,
        placement: impl Into<Placement>,
        rng: &mut R,
    ) -> Result<CliffordSpectralConv> {
        at_least_one("CliffordSpectralConv", &[("inputs", self.inputs), ("outputs", self.outputs)])?;
        let Self { metric, inputs, outputs, modes, options } = self;
        let options = options.unwrap_or_else(|| SpectralOptions::new(&modes));
        let shape: Vec<usize> = [metric.blade_count(), outputs, inputs]
            .into_iter()
            .chain(options.modes.iter().map(|m| 2 * m))
            .collect();
        let bound = 1.0 / (inputs * outputs).max(1) as f64;
        let weights = placement.into().uniform(shape, (0.0, bound), rng)?;
        Ok(CliffordSpectralConv { metric, weights, options })
    }
}

impl Layer for CliffordSpectralConv {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        in_layer_of("CliffordSpectralConv::forward", x, || {
            Ok(fields::clifford_spectral_conv(&self.metric, x, Some(&self.weights.tensor()), &self.options)?)
        })
    }
}
