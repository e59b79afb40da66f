//! Equivariant linear maps.

use super::{FeaturePlanes, Initialization, initialization::coefficients};
use crate::{Channels, Space};
use gradewise_autograd::{Tensor, clifford};
use gradewise_kernels::ops::clifford::equi_linear::{Maps, Operands};
use gradewise_nn::{
    Builder, DeepClone, Error, Module, Parameter, Placement, Result, data::at_least_one, in_layer,
};

/// Every linear map of multivectors that commutes with the group of a [`Space`], with one coefficient for each pair of channels, and linear
/// maps of scalars to scalars, to the scalar parts of multivectors, and back. In an oriented space, pseudoscalars mix with scalars too
/// (Brehmer et al. 2023, arXiv:2305.18415; Spinner et al. 2024, arXiv:2405.14806).
///
/// Parameters, as published: `weight` `[out, in, maps]`; without scalars `bias` `[out, 1]`; otherwise `s2mvs.weight` `[out, scalars in]` and
/// `s2mvs.bias`; `mvs2s.weight` `[scalars out, in]` and `mvs2s.bias`; `s2s.weight` `[scalars out, scalars in]`. In an oriented space, scalar
/// and pseudoscalar of each channel have a row of `s2mvs` and a column of `mvs2s` each, by turns.
#[derive(Debug, Module, DeepClone)]
pub struct EquiLinear {
    #[module(skip)]
    space: Space,
    #[module(skip)]
    inputs: Channels,
    #[module(skip)]
    outputs: Channels,
    weight: Parameter,
    bias: Option<Parameter>,
    s2mvs: Option<Matrix>,
    mvs2s: Option<Matrix>,
    s2s: Option<Matrix>,
}

/// `[out, in]`, and what is added.
#[derive(Debug, Module, DeepClone)]
pub(super) struct Matrix {
    weight: Parameter,
    bias: Option<Parameter>,
}

/// Settings of an [`EquiLinear`]: its channels, none of them 0 multivectors, and the space.
#[derive(Clone, Debug, Builder)]
pub struct EquiLinearBuilder {
    inputs: Channels,
    outputs: Channels,
    #[builder(by_ref)]
    space: Space,
    /// Whether scalars and the scalar parts of multivectors have a bias; yes by default.
    #[builder(default = true)]
    bias: bool,
    /// How the parameters are drawn.
    #[builder(default)]
    initialization: Initialization,
}

impl EquiLinearBuilder {
    /// Draws the parameters.
    ///
    /// # Errors
    /// No multivectors on either side; an initialization around 1 without scalars or without a bias; a dtype the device does not serve, or no
    /// memory.
    pub fn init<R: rand::Rng + ?Sized>(
        self,
        placement: impl Into<Placement>,
        rng: &mut R,
    ) -> Result<EquiLinear> {
        let Self { inputs, outputs, space, bias, initialization } = self;
        let sizes =
            [("inputs.multivectors", inputs.multivectors), ("outputs.multivectors", outputs.multivectors)];
        at_least_one("EquiLinear", &sizes)?;
        if initialization.needs_bias() && !(bias && inputs.scalars > 0) {
            return Err(Error::Argument {
                operation: "EquiLinear",
                argument: "initialization",
                actual: format!("{initialization:?} with {inputs}, bias {bias}"),
                expected: "scalars and a bias, which is drawn around 1: give the network hidden scalars"
                    .to_owned(),
            });
        }
        let placement = &placement.into();
        let bounds = initialization.bounds(&space, inputs, outputs);
        let mixed = if space.is_oriented() { 2 } else { 1 };
        let mut matrix =
            |shape: [usize; 2], bound: f64, added: Option<(f64, f64)>| -> Result<Option<Matrix>> {
                if shape.contains(&0) {
                    return Ok(None);
                }
                let weight = placement.uniform(shape, (-bound, bound), rng)?;
                let added = added
                    .map(|(mean, bound)| placement.uniform([shape[0]], (mean - bound, mean + bound), rng));
                Ok(Some(Matrix { weight, bias: added.transpose()? }))
            };
        let (from, to) = (mixed * inputs.multivectors, mixed * outputs.multivectors);
        let s2mvs = matrix(
            [to, inputs.scalars],
            bounds.to_multivectors,
            bias.then_some(bounds.to_multivectors_bias),
        )?;
        let mvs2s = matrix(
            [outputs.scalars, from],
            bounds.to_scalars,
            bias.then_some((0.0, bounds.to_scalars_bias)),
        )?;
        let s2s = matrix([outputs.scalars, inputs.scalars], bounds.between, None)?;
        let sizes = [outputs.multivectors, inputs.multivectors];
        let weight = coefficients(&bounds.weight, sizes, placement, rng)?;
        let bias = match bias && inputs.scalars == 0 {
            true => Some(placement.filled([outputs.multivectors, 1], 0.0)?),
            false => None,
        };
        Ok(EquiLinear { space, inputs, outputs, weight, bias, s2mvs, mvs2s, s2s })
    }
}

impl EquiLinear {
    /// Features of the output's channels.
    ///
    /// # Errors
    /// Other channels than the map's; another dtype or device than the parameters'.
    pub fn forward(&self, x: &FeaturePlanes) -> Result<FeaturePlanes> {
        in_layer("EquiLinear::forward", || {
            x.require("EquiLinear", self.inputs)?;
            self.apply(x.whole(), None)
        })
    }

    /// The map of multivectors `[blades · in, rows]` beside scalars `[scalars, rows]`, if the map takes some.
    pub(crate) fn apply(&self, x: &Tensor, scalars: Option<&Tensor>) -> Result<FeaturePlanes> {
        let tensor = |parameter: Option<&Parameter>| parameter.map(Parameter::tensor);
        let weight = |matrix: &Option<Matrix>| tensor(matrix.as_ref().map(|matrix| &matrix.weight));
        let added = |matrix: &Option<Matrix>| tensor(matrix.as_ref().and_then(|matrix| matrix.bias.as_ref()));
        let (coefficients, bias) = (self.weight.tensor(), tensor(self.bias.as_ref()));
        let (to_planes, to_planes_bias) = (weight(&self.s2mvs), added(&self.s2mvs));
        let (to_scalars, to_scalars_bias) = (weight(&self.mvs2s), added(&self.mvs2s));
        let between = weight(&self.s2s);
        let operands = Operands {
            x,
            weight: &coefficients,
            scalars: scalars.filter(|_| self.inputs.scalars > 0),
            bias: bias.as_ref(),
            to_planes: to_planes.as_ref(),
            to_planes_bias: to_planes_bias.as_ref(),
            to_scalars: to_scalars.as_ref(),
            to_scalars_bias: to_scalars_bias.as_ref(),
            between: between.as_ref(),
        };
        let maps: &Maps = self.space.maps();
        Ok(FeaturePlanes::of_whole(clifford::equi_linear(maps, operands)?, self.outputs))
    }
}
