//! Linear layers by the geometric product and by conjugation.

use super::refuse;
use crate::{
    Builder, DeepClone, Module, Parameter, Placement, Result,
    error::{at_least_one, in_layer_of},
    layers::Layer,
};
use gradewise_autograd::{
    Tensor,
    fields::{self, ConjugateLinear},
};
use gradewise_core::OrderedMetric;
use gradewise_kernels::Array;

/// The Clifford linear map ([`fields::clifford_linear`]): each channel is multiplied by multivectors on its right.
///
/// Parameters: `weight` `[blades, out, in]` and `bias` `[blades, out]`, uniform in ±1/√(in·blades).
#[derive(Debug, Module, DeepClone)]
pub struct CliffordLinear {
    #[module(skip)]
    metric: OrderedMetric,
    weight: Parameter,
    bias: Option<Parameter>,
}

/// Settings of a [`CliffordLinear`] from `inputs` to `outputs` channels.
#[derive(Clone, Debug, Builder)]
pub struct CliffordLinearBuilder {
    #[builder(by_ref)]
    metric: OrderedMetric,
    inputs: usize,
    outputs: usize,
    /// Whether there is a bias, on all blades; yes by default.
    #[builder(default = true)]
    bias: bool,
}

impl CliffordLinearBuilder {
    /// Draws the parameters.
    ///
    /// # Errors
    /// A dtype the device does not serve, or no memory.
    pub fn init<R: rand::Rng + ?Sized>(
        self,
        placement: impl Into<Placement>,
        rng: &mut R,
    ) -> Result<CliffordLinear> {
        at_least_one("CliffordLinear", &[("inputs", self.inputs), ("outputs", self.outputs)])?;
        let (placement, Self { metric, inputs, outputs, bias }) = (placement.into(), self);
        let blades = metric.blade_count();
        let bound = 1.0 / ((inputs * blades).max(1) as f64).sqrt();
        let weight = placement.uniform([blades, outputs, inputs], (-bound, bound), rng)?;
        let bias = bias.then(|| placement.uniform([blades, outputs], (-bound, bound), rng)).transpose()?;
        Ok(CliffordLinear { metric, weight, bias })
    }
}

impl Layer for CliffordLinear {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        in_layer_of("CliffordLinear::forward", x, || {
            let bias = self.bias.as_ref().map(Parameter::tensor);
            Ok(fields::clifford_linear(&self.metric, x, &self.weight.tensor(), bias.as_ref())?)
        })
    }
}

/// The blades of an even multivector in the metric (0,1,1,1).
const EVEN: [usize; 8] = [0, 5, 6, 7, 8, 9, 10, 15];

/// Sums of conjugations in projective geometric algebra ([`fields::pga_conjugate_linear`]).
///
/// Parameters: `_action` `[out, in, 8]`, on the even blades, drawn as unit rotations; `weight` `[out, in]`, uniform in ±1/√in; `embed_e0`
/// `[in, 1]`, zero: the e0 components of the input, where 0 means points at infinity, which translations do not move.
#[derive(Debug, Module, DeepClone)]
pub struct PgaConjugateLinear {
    #[module(rename = "_action")]
    action: Parameter,
    weight: Parameter,
    #[module(rename = "embed_e0")]
    embed: Parameter,
    #[module(skip)]
    blades: Vec<usize>,
}

/// Settings of a [`PgaConjugateLinear`] from `inputs` to `outputs` channels on these `blades` of the metric (0,1,1,1).
#[derive(Clone, Debug, Builder)]
pub struct PgaConjugateLinearBuilder {
    inputs: usize,
    outputs: usize,
    #[builder(by_ref)]
    blades: Vec<usize>,
}

impl PgaConjugateLinearBuilder {
    /// Draws the parameters.
    ///
    /// # Errors
    /// Blades beyond the sixteen of the algebra, a dtype the device does not serve, or no memory.
    pub fn init<R: rand::Rng + ?Sized>(
        self,
        placement: impl Into<Placement>,
        rng: &mut R,
    ) -> Result<PgaConjugateLinear> {
        at_least_one("PgaConjugateLinear", &[("inputs", self.inputs), ("outputs", self.outputs)])?;
        let (placement, Self { inputs, outputs, blades }) = (placement.into(), self);
        if blades.iter().any(|&blade| blade >= 16) {
            return refuse("PgaConjugateLinear", "blades", blades, "blades below 16");
        }
        // A unit rotor: scalar, e12, e13 and e23 parts of norm 1.
        let drawn = Array::uniform(
            [outputs * inputs, 4],
            gradewise_kernels::DType::F64,
            &gradewise_kernels::Device::Cpu,
            rng,
        )?;
        let values = drawn.to_f64_vec()?;
        let mut action = Vec::with_capacity(outputs * inputs * EVEN.len());
        for part in values.chunks_exact(4) {
            let part: Vec<f64> = part.iter().map(|u| 2.0 * u - 1.0).collect();
            let norm = part.iter().map(|v| v * v).sum::<f64>().sqrt().max(f64::MIN_POSITIVE);
            let at = |index: usize| part[index] / norm;
            action.extend([at(0), 0.0, 0.0, 0.0, at(1), at(2), at(3), 0.0]);
        }
        let action =
            Array::from_f64(&action, [outputs, inputs, EVEN.len()], placement.dtype, &placement.device)?;
        let bound = 1.0 / (inputs.max(1) as f64).sqrt();
        Ok(PgaConjugateLinear {
            action: Parameter::new(action),
            weight: placement.uniform([outputs, inputs], (-bound, bound), rng)?,
            embed: placement.filled([inputs, 1], 0.0)?,
            blades,
        })
    }
}

impl Layer for PgaConjugateLinear {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        in_layer_of("PgaConjugateLinear::forward", x, || {
            let [action, weight, embed] = [&self.action, &self.weight, &self.embed].map(Parameter::tensor);
            let operands = ConjugateLinear { x, action: &action, weight: &weight, embed: &embed };
            Ok(fields::pga_conjugate_linear(&operands, &self.blades, &EVEN)?)
        })
    }
}
