//! The Clifford ResNet.

use super::{CliffordConv, G3GroupNorm};
use crate::{
    DeepClone, Module, Placement, Result,
    error::{at_least_one, in_layer_of},
    layers::Layer,
};
use gradewise_autograd::Tensor;
use gradewise_core::OrderedMetric;
use serde::{Deserialize, Serialize};

/// Sizes of a [`CliffordResNet`]; the defaults are the published ones.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CliffordResNetConfig {
    /// Squares of the generators, one for each axis of space.
    pub metric: Vec<i8>,
    /// Input fields: the number of past frames.
    pub inputs: usize,
    /// Output fields.
    pub outputs: usize,
    /// Hidden channels.
    pub hidden: usize,
    /// Taps along each axis.
    pub taps: usize,
    /// Residual blocks in each stage.
    pub blocks: Vec<usize>,
    /// Whether blocks normalise.
    pub norm: bool,
}

impl Default for CliffordResNetConfig {
    fn default() -> Self {
        Self {
            metric: vec![1, 1],
            inputs: 4,
            outputs: 1,
            hidden: 48,
            taps: 7,
            blocks: vec![2; 4],
            norm: true,
        }
    }
}

/// Two convolutions with a shortcut around them.
#[derive(Debug, Module, DeepClone)]
struct Block {
    conv1: CliffordConv,
    conv2: CliffordConv,
    groupnorm: Option<G3GroupNorm>,
}

impl Layer for Block {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        // Both convolutions share one normalisation and its parameters, as published.
        let norm = |x: Tensor| self.groupnorm.as_ref().map_or(Ok(x.clone()), |norm| norm.forward(&x));
        let y = norm(self.conv1.forward(x)?)?.gelu()?;
        let y = norm(self.conv2.forward(&y)?)?;
        Ok(y.add(x)?.gelu()?)
    }
}

/// Clifford convolutions in residual blocks between pairs of 1×1 convolutions, the baseline of the steerable networks (Zhdanov et al. 2024,
/// arXiv:2402.14730, after Brandstetter et al. 2022). Fields `[blades, batch, *space, inputs]` to `[…, outputs]`.
#[derive(Debug, Module, DeepClone)]
pub struct CliffordResNet {
    conv_in1: CliffordConv,
    conv_in2: CliffordConv,
    layers: Vec<Block>,
    conv_out1: CliffordConv,
    conv_out2: CliffordConv,
}

impl CliffordResNet {
    /// Draws the parameters.
    ///
    /// # Errors
    /// Squares that are not a metric, a dtype the device does not serve, or no memory.
    pub fn init<R: rand::Rng + ?Sized>(
        config: &CliffordResNetConfig,
        placement: impl Into<Placement>,
        rng: &mut R,
    ) -> Result<Self> {
        at_least_one(
            "CliffordResNet",
            &[("inputs", config.inputs), ("outputs", config.outputs), ("hidden", config.hidden)],
        )?;
        let (placement, metric) = (placement.into(), OrderedMetric::new(&config.metric)?);
        let (axes, hidden) = (metric.dimension(), config.hidden);
        let mut conv = |inputs: usize, outputs: usize, taps: usize| {
            // Equal padding on both sides, as published: an even number of taps enlarges the output by one position.
            let layer = CliffordConv::new(&metric, inputs, outputs, &vec![taps; axes]);
            layer.padding(&vec![taps / 2; axes]).init(&placement, rng)
        };
        let (conv_in1, conv_in2) = (conv(config.inputs, hidden, 1)?, conv(hidden, hidden, 1)?);
        let mut layers = Vec::new();
        for _ in 0..config.blocks.iter().sum() {
            let (conv1, conv2) = (conv(hidden, hidden, config.taps)?, conv(hidden, hidden, config.taps)?);
            let groupnorm =
                config.norm.then(|| G3GroupNorm::init(metric.blade_count(), hidden, 1, None, &placement));
            layers.push(Block { conv1, conv2, groupnorm: groupnorm.transpose()? });
        }
        let (conv_out1, conv_out2) = (conv(hidden, hidden, 1)?, conv(hidden, config.outputs, 1)?);
        Ok(Self { conv_in1, conv_in2, layers, conv_out1, conv_out2 })
    }
}

impl Layer for CliffordResNet {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        in_layer_of("CliffordResNet::forward", x, || {
            let x = self.conv_in1.forward(x)?.gelu()?;
            let x = self.conv_in2.forward(&x)?.gelu()?;
            let x = self.layers.iter().try_fold(x, |x, layer| layer.forward(&x))?;
            self.conv_out2.forward(&self.conv_out1.forward(&x)?.gelu()?)
        })
    }
}
