//! How linear maps draw their parameters: uniformly, so that the variance of features is kept (He et al. 2015, arXiv:1502.01852).

use crate::{Channels, Space};
use gradewise_kernels::{Array, ops};
use gradewise_nn::{Parameter, Placement, Result};

/// How an [`EquiLinear`](super::EquiLinear) draws its parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Initialization {
    /// Keeps the variance of features.
    #[default]
    Default,
    /// A tenth of the deviation.
    Small,
    /// A tenth of the deviation of multivectors, which are close to the scalar 1. Needs scalars and a bias.
    UnitScalar,
    /// Half of the deviation of multivectors, which are close to the scalar 1. Needs scalars and a bias.
    AlmostUnitScalar,
}

impl Initialization {
    /// Factors of the deviations of multivectors and of scalars, and the mean of the bias on the multivectors' scalars.
    const fn scales(self) -> (f64, f64, f64) {
        match self {
            Self::Default => (1.0, 1.0, 0.0),
            Self::Small => (0.1, 0.1, 0.0),
            Self::UnitScalar => (0.1, 1.0, 1.0),
            Self::AlmostUnitScalar => (0.5, 1.0, 1.0),
        }
    }

    /// Whether the bias of the map from scalars is drawn around 1.
    pub(super) fn needs_bias(self) -> bool {
        self.scales().2 != 0.0
    }

    /// The bounds of the parameters of a map.
    pub(super) fn bounds(self, space: &Space, inputs: Channels, outputs: Channels) -> Bounds {
        let (of_multivectors, of_scalars, shift) = self.scales();
        let root = |fan: usize| (fan.max(1) as f64).sqrt().recip();
        let mixed = if space.is_oriented() { 2 } else { 1 };
        let components = components(space);
        let first = components.first().copied().unwrap_or(1.0);
        let (from, scalars) = (inputs.multivectors, inputs.scalars);
        let mut weight: Vec<f64> =
            components.iter().map(|component| component * of_multivectors * root(from)).collect();
        // Multivectors and scalars each contribute half of the variance of scalars. The published maps of points keep the first draw.
        if scalars > 0 && !space.has_points() {
            let half = of_multivectors * root(2 * from);
            weight.first_mut().into_iter().for_each(|bound| *bound = half);
            if space.is_oriented() {
                weight.last_mut().into_iter().for_each(|bound| *bound = half);
            }
        }
        let parts = if scalars > 0 && outputs.scalars > 0 { 2 } else { 1 };
        Bounds {
            weight,
            to_multivectors: first * of_multivectors * root(2 * scalars.max(1)),
            to_multivectors_bias: (shift, first * root(scalars + from)),
            to_scalars: of_scalars * root(mixed * from * parts),
            between: of_scalars * root(scalars.max(1) * parts),
            to_scalars_bias: of_scalars * root(mixed * from + if parts == 2 { scalars } else { 0 }),
        }
    }
}

/// Largest absolute values of parameters.
pub(super) struct Bounds {
    /// Of the coefficients of each map.
    pub weight: Vec<f64>,
    pub to_multivectors: f64,
    /// The mean, and the bound around it.
    pub to_multivectors_bias: (f64, f64),
    pub to_scalars: f64,
    pub between: f64,
    pub to_scalars_bias: f64,
}

/// What the bounds of each map's coefficients are multiplied by. Maps of points have norm 1, and the more blades a grade has, the less of
/// each.
fn components(space: &Space) -> Vec<f64> {
    const OF_POINTS: [f64; 9] = [1.0, 4.0, 6.0, 2.0, 0.5, 0.5, 1.5, 1.5, 0.5];
    match space.has_points() {
        true => OF_POINTS.iter().map(|square| square.sqrt()).collect(),
        false => vec![1.0; space.map_count()],
    }
}

/// Uniform coefficients `[out, in, maps]` with a bound for each map.
pub(super) fn coefficients<R: rand::Rng + ?Sized>(
    bounds: &[f64],
    [outputs, inputs]: [usize; 2],
    placement: &Placement,
    rng: &mut R,
) -> Result<Parameter> {
    let Placement { device, dtype } = placement;
    let unit = Array::uniform([outputs, inputs, bounds.len()], *dtype, device, rng)?;
    let centred = ops::add_scalar(&ops::mul_scalar(&unit, 2.0)?, -1.0)?;
    let bounds = Array::from_f64(bounds, [1, 1, bounds.len()], *dtype, device)?;
    Ok(Parameter::new(ops::mul(&centred, &bounds)?))
}
