//! Linear maps of vectors and of scalars.

use super::{VectorChannels, VectorStreams};
use gradewise_autograd::Tensor;
use gradewise_nn::{DeepClone, Error, Module, Parameter, Placement, Result, in_layer};

/// A linear map of vectors, without bias, and one of scalars.
///
/// Parameters: `weight_v` `[out, in]`, `linear_s.weight` `[scalars out, scalars in]` and `linear_s.bias`, each if it has elements.
#[derive(Debug, Module, DeepClone)]
pub struct SlimLinear {
    #[module(skip)]
    inputs: VectorChannels,
    #[module(skip)]
    outputs: VectorChannels,
    weight_v: Option<Parameter>,
    linear_s: Option<Scalars>,
}

#[derive(Debug, Module, DeepClone)]
struct Scalars {
    weight: Parameter,
    bias: Option<Parameter>,
}

/// How a [`SlimLinear`] is made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Options {
    /// Whether scalars have a bias, which is 0 at first.
    pub bias: bool,
    /// What the bounds 1/√in of the weights are multiplied by.
    pub scale: f64,
    /// Whether the weights of vectors and of scalars are trained: what only feeds outputs that are not there is not.
    pub is_trained: [bool; 2],
}

impl Options {
    pub const DEFAULT: Self = Self { bias: true, scale: 1.0, is_trained: [true; 2] };
}

impl SlimLinear {
    pub(super) fn init<R: rand::Rng + ?Sized>(
        (inputs, outputs): (VectorChannels, VectorChannels),
        options: Options,
        placement: &Placement,
        rng: &mut R,
    ) -> Result<Self> {
        let Options { bias, scale, is_trained: [of_vectors, of_scalars] } = options;
        let mut matrix = |out: usize, from: usize, is_trained: bool| -> Result<Option<Parameter>> {
            if out == 0 || from == 0 {
                return Ok(None);
            }
            let bound = scale / (from as f64).sqrt();
            let drawn = placement.uniform([out, from], (-bound, bound), rng)?;
            Ok(Some(frozen_unless(is_trained, drawn)))
        };
        let weight_v = matrix(outputs.vectors, inputs.vectors, of_vectors)?;
        let linear_s = match matrix(outputs.scalars, inputs.scalars, of_scalars)? {
            None => None,
            Some(weight) => {
                let zeros = bias.then(|| placement.filled([outputs.scalars], 0.0)).transpose()?;
                Some(Scalars { weight, bias: zeros.map(|zeros| frozen_unless(of_scalars, zeros)) })
            }
        };
        Ok(Self { inputs, outputs, weight_v, linear_s })
    }

    /// Streams of the output's channels.
    ///
    /// # Errors
    /// Other channels than the map's.
    pub fn forward(&self, x: &VectorStreams) -> Result<VectorStreams> {
        in_layer("SlimLinear::forward", || {
            if x.channels() != self.inputs {
                return Err(Error::Argument {
                    operation: "SlimLinear",
                    argument: "x",
                    actual: format!("{:?}", x.channels()),
                    expected: format!("{:?}", self.inputs),
                });
            }
            let zeros = |shape: &[usize]| Tensor::zeros(shape, x.scalars.dtype(), &x.scalars.device());
            let vectors = match &self.weight_v {
                Some(weight) => x.vectors.matmul(&weight.tensor().transpose(0, 1)?)?,
                None => zeros(&[4, x.tokens(), self.outputs.vectors])?,
            };
            let scalars = match &self.linear_s {
                None => zeros(&[x.tokens(), self.outputs.scalars])?,
                Some(Scalars { weight, bias }) => {
                    let mapped = x.scalars.matmul(&weight.tensor().transpose(0, 1)?)?;
                    match bias {
                        Some(bias) => mapped.add(&bias.tensor())?,
                        None => mapped,
                    }
                }
            };
            Ok(VectorStreams { vectors, scalars })
        })
    }
}

/// The parameter, without a gradient unless it is trained.
pub(super) fn frozen_unless(is_trained: bool, parameter: Parameter) -> Parameter {
    if is_trained { parameter } else { Parameter::frozen(parameter.array()) }
}
