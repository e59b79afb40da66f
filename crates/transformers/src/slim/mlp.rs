//! Gated linear units, and the layers behind attention.

use super::{SlimDropout, SlimLinear, VectorChannels, VectorStreams, interval, linear::Options};
use crate::layers::Nonlinearity;
use gradewise_autograd::Tensor;
use gradewise_nn::{DeepClone, Error, Module, Placement, Result, Visitor, in_layer};

/// A gated linear unit: vectors times a function of half the product of two others, scalars times a function of another.
///
/// Parameters: those of `linear`.
#[derive(Debug, Module, DeepClone)]
pub struct SlimGlu {
    linear: SlimLinear,
    #[module(skip)]
    outputs: VectorChannels,
    #[module(skip)]
    nonlinearities: [Nonlinearity; 2],
}

impl SlimGlu {
    /// With the functions of products of vectors and of scalars.
    pub(super) fn init<R: rand::Rng + ?Sized>(
        (inputs, outputs): (VectorChannels, VectorChannels),
        nonlinearities: [Nonlinearity; 2],
        options: Options,
        placement: &Placement,
        rng: &mut R,
    ) -> Result<Self> {
        let wide = VectorChannels::new(3 * outputs.vectors, 2 * outputs.scalars);
        let linear = SlimLinear::init((inputs, wide), options, placement, rng)?;
        Ok(Self { linear, outputs, nonlinearities })
    }

    /// Streams of the output's channels.
    ///
    /// # Errors
    /// Other channels than the layer's.
    pub fn forward(&self, x: &VectorStreams) -> Result<VectorStreams> {
        in_layer("SlimGlu::forward", || {
            let mapped = self.linear.forward(x)?;
            let VectorChannels { vectors, scalars } = self.outputs;
            let part = |number: usize| mapped.vectors.slice(2, number * vectors..(number + 1) * vectors);
            let half = |number: usize| mapped.scalars.slice(1, number * scalars..(number + 1) * scalars);
            let products = interval(&part(1)?, &part(2)?)?.mul_scalar(0.5)?;
            let [of_products, of_scalars] = self.nonlinearities;
            Ok(VectorStreams {
                vectors: part(0)?.mul(&applied(of_products, &products)?)?,
                scalars: half(0)?.mul(&applied(of_scalars, &half(1)?)?)?,
            })
        })
    }
}

/// The function of numbers, GELU by its approximation with tanh.
fn applied(kind: Nonlinearity, x: &Tensor) -> Result<Tensor> {
    Ok(match kind {
        Nonlinearity::Relu => x.relu(),
        Nonlinearity::Sigmoid => x.sigmoid(),
        Nonlinearity::Tanh => x.tanh(),
        Nonlinearity::Silu => x.silu(),
        // (1 + tanh z)/2 = σ(2z), with z = √(2/π)·(x + 0.044715·x³).
        Nonlinearity::Gelu => {
            let inner = x.square()?.mul_scalar(0.044_715)?.add_scalar(1.0)?.mul(x)?;
            x.mul(&inner.mul_scalar(8f64.sqrt() / std::f64::consts::PI.sqrt())?.sigmoid()?)
        }
    }?)
}

/// Gated linear units, then a linear map.
///
/// Parameters: those of `layers`, by number; dropout counts.
#[derive(Debug, Module, DeepClone)]
pub struct SlimMlp {
    layers: Vec<MlpLayer>,
}

#[derive(Debug, DeepClone)]
enum MlpLayer {
    Glu(SlimGlu),
    Dropout(SlimDropout),
    Linear(SlimLinear),
}

impl Module for MlpLayer {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        match self {
            Self::Glu(layer) => layer.visit(visitor),
            Self::Linear(layer) => layer.visit(visitor),
            Self::Dropout(_) => {}
        }
    }
}

/// Sizes of a [`SlimMlp`].
#[derive(Clone, Copy, Debug)]
pub(super) struct MlpSize {
    pub ratio: usize,
    pub layers: usize,
    /// Functions of products of vectors and of scalars.
    pub nonlinearities: [Nonlinearity; 2],
    pub is_trained: [bool; 2],
}

impl SlimMlp {
    /// For streams of `channels`, in and out; units are followed by a `dropout`, if there is one.
    pub(super) fn init<R: rand::Rng + ?Sized>(
        channels: VectorChannels,
        size: MlpSize,
        dropout: &mut dyn FnMut() -> Result<Option<SlimDropout>>,
        placement: &Placement,
        rng: &mut R,
    ) -> Result<Self> {
        let MlpSize { ratio, layers: count, nonlinearities, is_trained } = size;
        gradewise_nn::data::at_least_one("SlimMlp", &[("mlp_ratio", ratio)])?;
        if count < 2 {
            return Err(Error::Argument {
                operation: "SlimMlp",
                argument: "num_layers_mlp",
                actual: count.to_string(),
                expected: "at least 2: gated units and a linear map".to_owned(),
            });
        }
        let options = Options { is_trained, ..Options::DEFAULT };
        let hidden = VectorChannels::new(ratio * channels.vectors, ratio * channels.scalars);
        let mut layers = Vec::new();
        for number in 0..count - 1 {
            let from = if number == 0 { channels } else { hidden };
            let unit = SlimGlu::init((from, hidden), nonlinearities, options, placement, rng)?;
            layers.push(MlpLayer::Glu(unit));
            layers.extend(dropout()?.map(MlpLayer::Dropout));
        }
        layers.push(MlpLayer::Linear(SlimLinear::init((hidden, channels), options, placement, rng)?));
        Ok(Self { layers })
    }

    /// Streams of the same channels.
    ///
    /// # Errors
    /// Other channels than the layer's.
    pub fn forward(&self, x: &VectorStreams) -> Result<VectorStreams> {
        in_layer("SlimMlp::forward", || {
            self.layers.iter().try_fold(x.clone(), |x, layer| match layer {
                MlpLayer::Glu(unit) => unit.forward(&x),
                MlpLayer::Dropout(dropout) => dropout.forward(&x),
                MlpLayer::Linear(linear) => linear.forward(&x),
            })
        })
    }
}
