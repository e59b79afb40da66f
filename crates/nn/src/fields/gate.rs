//! Gates of multivectors.

use super::refuse;
use crate::{
    Builder, DeepClone, Module, Parameter, Placement, Result,
    error::{at_least_one, in_layer_of},
    layers::Layer,
};
use gradewise_autograd::{
    Tensor,
    fields::{self, Aggregation},
};

/// How the argument of a gate is computed from blades.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum GateArgument {
    /// A learned linear map, for each channel.
    #[default]
    Linear,
    /// The sum of the blades.
    Sum,
    /// Their mean.
    Mean,
}

/// Gates multivectors: x·σ(t), where t is computed from some blades of x ([`fields::mv_act`]). It commutes with isometries only if t
/// depends on the scalar alone.
///
/// Parameters of the linear argument: `conv.weight` `[channels, 1, blades]` and `conv.bias` `[channels]`, uniform in ±1/√blades.
#[derive(Debug, Module, DeepClone)]
pub struct MvAct {
    conv: Option<Conv>,
    #[module(skip)]
    argument: GateArgument,
    #[module(skip)]
    input_blades: Vec<usize>,
    #[module(skip)]
    kernel_blades: Vec<usize>,
}

#[derive(Debug, Module, DeepClone)]
struct Conv {
    weight: Parameter,
    bias: Parameter,
}

/// Settings of an [`MvAct`] for fields of `channels` channels on the blades `input_blades`.
#[derive(Clone, Debug, Builder)]
pub struct MvActBuilder {
    channels: usize,
    #[builder(by_ref)]
    input_blades: Vec<usize>,
    /// The blades that determine the gate; all that the fields have by default.
    #[builder(default = input_blades.clone(), by_ref)]
    kernel_blades: Vec<usize>,
    /// How the gate's argument is computed; a linear map by default.
    #[builder(default)]
    argument: GateArgument,
}

impl MvActBuilder {
    /// Draws the parameters.
    ///
    /// # Errors
    /// No blades, a dtype the device does not serve, or no memory.
    pub fn init<R: rand::Rng + ?Sized>(self, placement: impl Into<Placement>, rng: &mut R) -> Result<MvAct> {
        at_least_one("MvAct", &[("channels", self.channels)])?;
        let (placement, Self { channels, input_blades, kernel_blades, argument }) = (placement.into(), self);
        let count = kernel_blades.len();
        if count == 0 {
            return refuse("MvAct", "kernel_blades", kernel_blades, "one blade at least");
        }
        let bound = 1.0 / (count as f64).sqrt();
        let mut draw = |shape: &[usize]| placement.uniform(shape, (-bound, bound), rng);
        let conv = match argument {
            GateArgument::Linear => {
                Some(Conv { weight: draw(&[channels, 1, count])?, bias: draw(&[channels])? })
            }
            _ => None,
        };
        Ok(MvAct { conv, argument, input_blades, kernel_blades })
    }
}

impl Layer for MvAct {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        in_layer_of("MvAct::forward", x, || {
            let parameters = match &self.conv {
                Some(conv) => Some((conv.weight.tensor().squeeze(1)?, conv.bias.tensor())),
                None => None,
            };
            let argument = match (&parameters, self.argument) {
                (Some((weight, bias)), _) => Aggregation::Linear { weight, bias },
                (None, GateArgument::Mean) => Aggregation::Mean,
                (None, _) => Aggregation::Sum,
            };
            Ok(fields::mv_act(x, &self.input_blades, &self.kernel_blades, argument)?)
        })
    }
}
