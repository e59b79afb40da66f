//! Linear maps of both streams.

use super::{Channels, Space, Streams, space::Blades};
use crate::{
    Module, Parameter, Placement, Result, Visitor,
    error::at_least_one,
    layers::{Layer, Linear},
};
use gradewise_autograd::{Tensor, clifford, concat};
use gradewise_core::Algebra;

/// All linear maps that commute with the group of a [`Space`]: a matrix for each grade of x and for each grade that e₀x (or the pseudoscalar
/// times x) reaches; scalars to scalars, and between scalars and the scalar parts of multivectors.
///
/// Parameters: `weight` `[grades, in, out]` and `factor.weight` `[grades reached, in, out]`, of variance 1/in together; `up.weight`
/// `[scalars in, out]`, `down.weight` `[in, scalars out]`; `scalars.weight` and `scalars.bias`.
#[derive(Debug)]
pub struct EquiLinear {
    algebra: Algebra,
    weight: Parameter,
    factor: Option<Factor>,
    scalars: Linear,
    up: Linear,
    down: Linear,
}

#[derive(Debug)]
struct Factor {
    blades: Blades,
    weight: Parameter,
}

impl EquiLinear {
    /// Draws the parameters.
    ///
    /// # Errors
    /// A dtype the device does not serve, or no memory.
    pub fn init<R: rand::Rng + ?Sized>(
        (inputs, outputs): (Channels, Channels),
        space: &Space,
        placement: impl Into<Placement>,
        rng: &mut R,
    ) -> Result<Self> {
        at_least_one(
            "EquiLinear",
            &[
                ("inputs.multivectors", inputs.multivectors),
                ("inputs.scalars", inputs.scalars),
                ("outputs.multivectors", outputs.multivectors),
                ("outputs.scalars", outputs.scalars),
            ],
        )?;
        let placement = &placement.into();
        let algebra = space.algebra().clone();
        let (from, to) = (inputs.multivectors, outputs.multivectors);
        let (grades, blades) = (algebra.grade_count(), algebra.blade_count());
        // Keeps the variance of sums at 1: e₀x contributes half of each blade, and scalars half of each scalar output.
        let terms = if space.reached().is_some() { 2 } else { 1 };
        let deviation = |fan: usize, terms: usize| ((fan.max(1) * terms) as f64).sqrt().recip();
        let weight = placement.normal([grades, from, to], deviation(from, terms), rng)?;
        let factor = match space.reached().zip(space.sources()) {
            None => None,
            Some((reached, sources)) => Some(Factor {
                blades: Blades::new(&sources, blades, placement.dtype, &placement.device)?,
                weight: placement.normal([grades - reached, from, to], deviation(from, terms), rng)?,
            }),
        };
        let linear = |from: usize, to: usize| Linear::new(from, to).deviation(deviation(from, 2));
        let scalars = linear(inputs.scalars, outputs.scalars).init(placement, rng)?;
        let up = linear(inputs.scalars, to).init(placement, rng)?;
        let down = linear(from, outputs.scalars).bias(false).init(placement, rng)?;
        Ok(Self { algebra, weight, factor, scalars, up, down })
    }

    /// Applies the map to both streams.
    ///
    /// # Errors
    /// Other channels than the map's; another dtype or device than the parameters'.
    pub fn forward(&self, x: &Streams) -> Result<Streams> {
        let (mut input, mut weight) = (x.multivectors.clone(), self.weight.tensor());
        if let Some(factor) = &self.factor {
            input = concat(&[&input, &factor.blades.of(&input)?], 2)?;
            weight = concat(&[&weight, &self.every_grade(&factor.weight.tensor())?], 1)?;
        }
        let mapped = clifford::mv_linear(&self.algebra, &input, &weight, None)?;
        Ok(Streams {
            multivectors: Streams::raise(&mapped, &self.up.forward(&x.scalars)?)?,
            scalars: self.scalars.forward(&x.scalars)?.add(&self.down.forward(&x.lowered()?)?)?,
        })
    }

    /// The matrices of the grades reached, preceded by zeros for lower grades.
    fn every_grade(&self, weight: &Tensor) -> Result<Tensor> {
        let &[reached, from, to] = weight.shape().dims() else { return Ok(weight.clone()) };
        let missing = self.algebra.grade_count() - reached;
        if missing == 0 {
            return Ok(weight.clone());
        }
        let zeros = Tensor::zeros([missing, from, to], weight.dtype(), &weight.device())?;
        Ok(concat(&[&zeros, weight], 0)?)
    }
}

impl Module for EquiLinear {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        visitor.parameter("weight", &self.weight);
        if let Some(factor) = &self.factor {
            visitor.parameter("factor.weight", &factor.weight);
        }
        visitor.module("scalars", &self.scalars);
        visitor.module("up", &self.up);
        visitor.module("down", &self.down);
    }
}
