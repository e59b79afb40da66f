//! The norm over channels.

use super::{FeaturePlanes, Gate};
use crate::{Channels, Space};
use gradewise_autograd::clifford;
use gradewise_kernels::ops::clifford::channel_norm::{Norm, Operands, Options};
use gradewise_nn::{Builder, DeepClone, Error, Module, Parameter, Placement, Result, in_layer};

/// Multivectors divided by √max(m, ε), where m is the mean over channels of Σ over grades of |⟨x̃x⟩ of the grade|, and scalars by layer
/// normalisation. Blades with a null generator do not contribute, so the norm is invariant under translations; the absolute values serve
/// indefinite metrics (Brehmer et al. 2023, arXiv:2305.18415; Spinner et al. 2024, arXiv:2405.14806).
///
/// Parameters, with `elementwise_affine`: the gains `weight_mv` `[multivectors, grades]` and, if there are scalars, `weight_s` `[scalars]`.
#[derive(Debug, Module, DeepClone)]
pub struct EquiLayerNorm {
    #[module(skip)]
    space: Space,
    #[module(skip)]
    channels: Channels,
    #[module(skip)]
    epsilon: f64,
    weight_mv: Option<Parameter>,
    weight_s: Option<Parameter>,
}

/// Settings of an [`EquiLayerNorm`] for these channels.
#[derive(Clone, Debug, Builder)]
pub struct EquiLayerNormBuilder {
    channels: Channels,
    #[builder(by_ref)]
    space: Space,
    /// ε, the least mean that is divided by; 0.01 by default.
    #[builder(default = 0.01)]
    epsilon: f64,
    /// Whether each grade of each channel, and each scalar, has a gain; no by default.
    #[builder(default = false)]
    elementwise_affine: bool,
}

impl EquiLayerNormBuilder {
    /// Makes the parameters, which are 1.
    ///
    /// # Errors
    /// An ε that is not above 0; a dtype the device does not serve, or no memory.
    pub fn init(self, placement: impl Into<Placement>) -> Result<EquiLayerNorm> {
        let Self { channels, space, epsilon, elementwise_affine } = self;
        if !(epsilon > 0.0 && epsilon.is_finite()) {
            return Err(Error::Argument {
                operation: "EquiLayerNorm",
                argument: "epsilon",
                actual: epsilon.to_string(),
                expected: "more than 0, finite".to_owned(),
            });
        }
        let placement = placement.into();
        let gains =
            |is_there: bool, shape: &[usize]| is_there.then(|| placement.filled(shape, 1.0)).transpose();
        let grades = space.algebra().grade_count();
        let weight_mv = gains(elementwise_affine, &[channels.multivectors, grades])?;
        let weight_s = gains(elementwise_affine && channels.scalars > 0, &[channels.scalars])?;
        Ok(EquiLayerNorm { space, channels, epsilon, weight_mv, weight_s })
    }
}

impl EquiLayerNorm {
    /// The features, normalised.
    ///
    /// # Errors
    /// Other channels than the norm's.
    pub fn forward(&self, x: &FeaturePlanes) -> Result<FeaturePlanes> {
        in_layer("EquiLayerNorm::forward", || self.gated(x, None))
    }

    /// The features, normalised and then gated.
    pub(crate) fn gated(&self, x: &FeaturePlanes, gate: Option<Gate>) -> Result<FeaturePlanes> {
        x.require("EquiLayerNorm", self.channels)?;
        let norm = Some(Norm { epsilon: self.epsilon, gain: 1.0 });
        let gains = self.weight_mv.as_ref().map(Parameter::tensor);
        let scalar_gains = self.weight_s.as_ref().map(Parameter::tensor);
        let operands = Operands { x: x.whole(), gains: gains.as_ref(), scalar_gains: scalar_gains.as_ref() };
        let options = options(norm, gate, self.channels);
        let (algebra, order) = (self.space.algebra(), self.space.order());
        let whole = clifford::channel_norm(algebra, order, self.channels.multivectors, operands, options)?;
        Ok(FeaturePlanes::of_whole(whole, self.channels))
    }
}

const fn options(norm: Option<Norm>, gate: Option<Gate>, channels: Channels) -> Options {
    match gate {
        None => Options { norm, gate: None, scalar_gate: None },
        Some(Gate { multivectors, scalars }) => {
            let scalar_gate = if channels.scalars > 0 { Some(scalars) } else { None };
            Options { norm, gate: Some(multivectors), scalar_gate }
        }
    }
}

impl Gate {
    /// Multivectors times the function of their scalar parts, and the function of scalars.
    pub(crate) fn forward(self, space: &Space, x: &FeaturePlanes) -> Result<FeaturePlanes> {
        let channels = x.channels();
        let operands = Operands { x: x.whole(), gains: None, scalar_gains: None };
        let options = options(None, Some(self), channels);
        let whole =
            clifford::channel_norm(space.algebra(), space.order(), channels.multivectors, operands, options)?;
        Ok(FeaturePlanes::of_whole(whole, channels))
    }
}
