//! The Clifford-steerable ResNet.

use super::{SteerableConv, SteerablePadding};
use crate::{
    DeepClone, Module, Placement, Result, Visitor,
    error::{at_least_one, in_layer_of},
    layers::Layer,
};
use gradewise_autograd::{Tensor, fields};
use gradewise_core::OrderedMetric;
use serde::{Deserialize, Serialize};

/// Sizes of a [`SteerableResNet`]; the defaults are the published ones.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SteerableResNetConfig {
    /// Squares of the generators, one for each axis of space.
    pub metric: Vec<i8>,
    /// Input fields: the number of past frames.
    pub inputs: usize,
    /// Output fields.
    pub outputs: usize,
    /// Hidden channels.
    pub hidden: usize,
    /// Taps along each axis, an odd number.
    pub taps: usize,
    /// Layers of each kernel network.
    pub kernel_layers: usize,
    /// Channels of each kernel network.
    pub kernel_hidden: usize,
    /// Residual blocks in each stage.
    pub blocks: Vec<usize>,
    /// Whether blocks normalise.
    pub norm: bool,
    /// Whether the kernels of the blocks depend on their input fields ([`SteerableConvBuilder`](super::SteerableConvBuilder::conditioned)).
    pub conditioned: bool,
}

impl Default for SteerableResNetConfig {
    fn default() -> Self {
        Self {
            metric: vec![1, 1],
            inputs: 4,
            outputs: 1,
            hidden: 48,
            taps: 7,
            kernel_layers: 4,
            kernel_hidden: 12,
            blocks: vec![2; 4],
            norm: true,
            conditioned: false,
        }
    }
}

#[derive(Debug, DeepClone)]
struct Block([SteerableConv; 2]);

impl Module for Block {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        for (index, conv) in self.0.iter().enumerate() {
            visitor.module(format_args!("CliffordSteerableConv_{index}"), conv);
        }
    }
}

/// Steerable convolutions in residual blocks between pairs of 1×1 convolutions (Zhdanov et al. 2024, arXiv:2402.14730): `[blades, batch,
/// *space, inputs]` to `[…, outputs]`. It commutes with those isometries of the metric that map the grid to itself.
#[derive(Debug, DeepClone)]
pub struct SteerableResNet {
    metric: OrderedMetric,
    /// Two in front of the blocks and two behind them.
    ends: [SteerableConv; 4],
    blocks: Vec<Block>,
    norm: bool,
}

impl SteerableResNet {
    /// Draws the parameters.
    ///
    /// # Errors
    /// Squares that are not a metric or hold a 0, a dtype the device does not serve, or no memory.
    pub fn init<R: rand::Rng + ?Sized>(
        config: &SteerableResNetConfig,
        placement: impl Into<Placement>,
        rng: &mut R,
    ) -> Result<Self> {
        at_least_one(
            "SteerableResNet",
            &[("inputs", config.inputs), ("outputs", config.outputs), ("hidden", config.hidden)],
        )?;
        let (placement, metric) = (placement.into(), OrderedMetric::new(&config.metric)?);
        let hidden = config.hidden;
        let mut conv = |inputs: usize, outputs: usize, taps: usize, in_block: bool| {
            let conv = SteerableConv::new(&metric, inputs, outputs, taps).padding(SteerablePadding::Same);
            let conv = conv.conditioned(config.conditioned && in_block);
            conv.network(config.kernel_layers, config.kernel_hidden).init(&placement, rng)
        };
        let front = (conv(config.inputs, hidden, 1, false)?, conv(hidden, hidden, 1, false)?);
        let mut blocks = Vec::new();
        for _ in 0..config.blocks.iter().sum() {
            let mut of_block = || conv(hidden, hidden, config.taps, true);
            blocks.push(Block([of_block()?, of_block()?]));
        }
        let back = (conv(hidden, hidden, 1, false)?, conv(hidden, config.outputs, 1, false)?);
        Ok(Self { metric, ends: [front.0, front.1, back.0, back.1], blocks, norm: config.norm })
    }

    fn normalized(&self, x: &Tensor) -> Result<Tensor> {
        if self.norm { Ok(fields::cs_layer_norm(&self.metric, x)?) } else { Ok(x.clone()) }
    }
}

impl Module for SteerableResNet {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        for (index, conv) in self.ends.iter().enumerate() {
            visitor.module(format_args!("CliffordSteerableConv_{index}"), conv);
        }
        for (index, block) in self.blocks.iter().enumerate() {
            visitor.module(format_args!("CSBasicBlock_{index}"), block);
        }
    }
}

impl Layer for SteerableResNet {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        in_layer_of("SteerableResNet::forward", x, || {
            let [first, second, third, fourth] = &self.ends;
            let x = fields::cs_mv_gelu(&first.forward(x)?)?;
            let mut x = fields::cs_mv_gelu(&second.forward(&x)?)?;
            for Block([first, second]) in &self.blocks {
                let y = fields::cs_mv_gelu(&self.normalized(&first.forward(&x)?)?)?;
                let y = self.normalized(&second.forward(&y)?)?;
                x = fields::cs_mv_gelu(&y.add(&x)?)?;
            }
            fourth.forward(&fields::cs_mv_gelu(&third.forward(&x)?)?)
        })
    }
}
