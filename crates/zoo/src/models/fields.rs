//! Networks that predict fields from earlier frames.

use crate::data::fields::{FieldLayout, TimeAxis};
use gradewise_autograd::{Tensor, concat};
use gradewise_nn::{
    DeepClone, Error, Module, Placement, Result, Visitor,
    fields::{
        CliffordResNet, CliffordResNetConfig, FieldBlock, FieldNet, FieldNetConfig, PlainResNet,
        PlainResNetConfig, SteerableResNet, SteerableResNetConfig,
    },
    layers::Layer,
    loss,
};
use serde::{Deserialize, Serialize};

gradewise_nn::choices! {
    /// The kind of network.
    pub enum FieldModelKind {
        /// Clifford-steerable convolutions (arXiv:2402.14730)
        Steerable = "steerable",
        /// Clifford convolutions (arXiv:2209.04934, 2402.14730)
        Clifford = "clifford",
        /// Clifford Fourier layers (arXiv:2209.04934)
        Fourier = "fourier",
        /// ordinary convolutions of as many parameters
        Plain = "plain",
    }
}

/// Sizes of a [`FieldModel`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FieldModelConfig {
    /// Which network.
    pub kind: FieldModelKind,
    /// Multivector channels. `plain` has √blades times as many, so that its convolutions have as many weights as Clifford convolutions.
    pub hidden: usize,
    /// Residual or Fourier blocks.
    pub blocks: usize,
    /// Taps of a convolution along each axis, an odd number.
    pub taps: usize,
    /// Whether blocks normalise.
    pub norm: bool,
    /// Only for `fourier`: frequencies kept along each axis.
    pub modes: usize,
    /// Only for `steerable`: layers of each kernel network, at least 2.
    pub kernel_layers: usize,
    /// Only for `steerable`: channels of each kernel network.
    pub kernel_hidden: usize,
    /// Only for `steerable`: whether the kernels of blocks depend on the field (arXiv:2510.14007).
    #[serde(default)]
    pub conditioned: bool,
    /// Whether the network predicts the change since the last input frame, which is added to its output.
    #[serde(default)]
    pub change: bool,
}

/// The input and output fields of a model.
#[derive(Clone, Copy, Debug)]
pub struct FieldTask {
    /// The blades of the data.
    pub layout: &'static FieldLayout,
    /// The axis of time.
    pub time: TimeAxis,
    /// Input frames, where frames are channels.
    pub inputs: usize,
    /// Output frames, where frames are channels.
    pub outputs: usize,
}

#[derive(DeepClone)]
enum Net {
    Steerable(SteerableResNet),
    Clifford(CliffordResNet),
    Fourier(FieldNet),
    Plain(PlainResNet),
}

/// A network on fields that have only the blades of the data: `[blades, batch, *grid, inputs]` to `[…, outputs]`. The other blades are set
/// to 0 at the input and dropped at the output.
#[derive(DeepClone)]
pub struct FieldModel {
    net: Net,
    layout: &'static FieldLayout,
    /// The axis of time, where the network predicts the change.
    change: Option<TimeAxis>,
}

impl FieldModel {
    /// Draws the parameters.
    ///
    /// # Errors
    /// Invalid sizes, Fourier layers in a metric whose pseudoscalar does not square to −1, a dtype the device does not serve, or no memory.
    pub fn init<R: rand::Rng + ?Sized>(
        config: &FieldModelConfig,
        task: &FieldTask,
        placement: impl Into<Placement>,
        rng: &mut R,
    ) -> Result<Self> {
        let placement = placement.into();
        let FieldModelConfig {
            kind,
            hidden,
            blocks,
            taps,
            norm,
            modes,
            kernel_layers,
            kernel_hidden,
            conditioned,
            change,
        } = *config;
        let layout = task.layout;
        let (inputs, outputs) = match task.time {
            TimeAxis::Channels => (task.inputs, task.outputs),
            TimeAxis::Grid => (1, 1),
        };
        if taps.is_multiple_of(2) {
            return Err(Error::Argument {
                operation: "FieldModel",
                argument: "taps",
                actual: taps.to_string(),
                expected: "an odd number".to_owned(),
            });
        }
        let (metric, axes) = (layout.metric.to_vec(), layout.metric.len());
        let stages = vec![blocks];
        let net = match kind {
            FieldModelKind::Steerable => {
                let config = SteerableResNetConfig {
                    metric,
                    inputs,
                    outputs,
                    hidden,
                    taps,
                    kernel_layers,
                    kernel_hidden,
                    blocks: stages,
                    norm,
                    conditioned,
                };
                Net::Steerable(SteerableResNet::init(&config, placement, rng)?)
            }
            FieldModelKind::Clifford => {
                let config =
                    CliffordResNetConfig { metric, inputs, outputs, hidden, taps, blocks: stages, norm };
                Net::Clifford(CliffordResNet::init(&config, placement, rng)?)
            }
            FieldModelKind::Fourier => {
                let config = FieldNetConfig {
                    metric,
                    blades: layout.blade_range().collect(),
                    inputs,
                    outputs,
                    hidden,
                    block: FieldBlock::Fourier,
                    blocks: stages,
                    modes: vec![modes; axes],
                    rotation: false,
                    norm: norm.then_some(1),
                    // As published: 9 in the plane, 2 in space.
                    padding: if axes == 2 { 9 } else { 2 },
                    reference: false,
                };
                Net::Fourier(FieldNet::init(&config, placement, rng)?)
            }
            FieldModelKind::Plain => {
                let width = ((1usize << axes) as f64).sqrt() * hidden as f64;
                let config = PlainResNetConfig {
                    axes,
                    components: layout.components(),
                    inputs,
                    outputs,
                    hidden: width.round() as usize,
                    taps,
                    blocks,
                    norm,
                };
                Net::Plain(PlainResNet::init(&config, placement, rng)?)
            }
        };
        Ok(Self { net, layout, change: change.then_some(task.time) })
    }

    /// Whether the network predicts the change since the last input frame. Reversing time then is no symmetry of the prediction, where
    /// time is an axis of the grid.
    pub fn predicts_change(&self) -> bool {
        self.change.is_some()
    }

    /// The layout of the input and output fields.
    pub fn layout(&self) -> &'static FieldLayout {
        self.layout
    }

    /// The mean squared error of the prediction, over all elements.
    ///
    /// # Errors
    /// From the operators.
    pub fn loss(&self, inputs: &Tensor, targets: &Tensor) -> Result<Tensor> {
        loss::mean_squared_error(&self.forward(inputs)?, targets)
    }

    /// Applies a network on all blades to fields that have only some of them.
    fn embedded(&self, net: &impl Layer, x: &Tensor) -> Result<Tensor> {
        let range = self.layout.blade_range();
        let rest = (1usize << self.layout.metric.len()) - range.end;
        let zeros = |count: usize| -> Result<Tensor> {
            let mut shape = x.shape().to_vec();
            shape[0] = count;
            Ok(Tensor::zeros(shape, x.dtype(), &x.device())?)
        };
        let (before, after) = (zeros(range.start)?, zeros(rest)?);
        let parts: Vec<&Tensor> =
            [&before, x, &after].into_iter().filter(|part| part.shape()[0] > 0).collect();
        Ok(net.forward(&concat(&parts, 0)?)?.slice(0, range)?)
    }
}

impl Layer for FieldModel {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let output = match &self.net {
            Net::Steerable(net) => self.embedded(net, x),
            Net::Clifford(net) => self.embedded(net, x),
            Net::Fourier(net) => net.forward(x),
            Net::Plain(net) => net.forward(x),
        }?;
        match self.change {
            None => Ok(output),
            Some(time) => Ok(output.add(&time.last_frame(x, output.shape()[time.axis(&output)])?)?),
        }
    }
}

impl Module for FieldModel {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        match &self.net {
            Net::Steerable(net) => net.visit(visitor),
            Net::Clifford(net) => net.visit(visitor),
            Net::Fourier(net) => net.visit(visitor),
            Net::Plain(net) => net.visit(visitor),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::fields::{charges, smoke};
    use gradewise_autograd::no_grad;
    use gradewise_kernels::{Array, Device};
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    const CONFIG: FieldModelConfig = FieldModelConfig {
        kind: FieldModelKind::Plain,
        hidden: 3,
        blocks: 1,
        taps: 3,
        norm: false,
        modes: 1,
        kernel_layers: 2,
        kernel_hidden: 3,
        conditioned: false,
        change: false,
    };

    #[test]
    fn a_change_is_added_to_the_last_frame() {
        let place = Placement::from(&Device::Cpu);
        // Frames that are channels, and frames along the first axis of the grid.
        for (layout, time, shape, outputs) in [
            (&smoke::LAYOUT, TimeAxis::Channels, vec![3, 2, 4, 4, 4], 1),
            (&charges::LAYOUT, TimeAxis::Grid, vec![3, 2, 4, 5, 5, 1], 4),
        ] {
            let task = FieldTask { layout, time, inputs: 4, outputs: 1 };
            let count = shape.iter().product::<usize>();
            let mut rng = ChaCha8Rng::seed_from_u64(5);
            let values: Vec<f32> = (0..count).map(|_| rng.random_range(-1.0..1.0)).collect();
            let x = Tensor::new(Array::from_vec(values, shape, &Device::Cpu).unwrap());
            for kind in [FieldModelKind::Steerable, FieldModelKind::Clifford, FieldModelKind::Plain] {
                let predict = |change| {
                    let config = FieldModelConfig { kind, change, ..CONFIG };
                    let rng = &mut ChaCha8Rng::seed_from_u64(1);
                    let model = FieldModel::init(&config, &task, &place, rng).unwrap();
                    assert_eq!(model.predicts_change(), change);
                    no_grad(|| model.forward(&x)).unwrap()
                };
                let (direct, changed) = (predict(false), predict(true));
                let last = time.last_frame(&x, outputs).unwrap();
                let expected = direct.add(&last).unwrap();
                assert_eq!(changed.shape(), direct.shape());
                assert_eq!(changed.array().to_f64_vec().unwrap(), expected.array().to_f64_vec().unwrap());
                assert!(last.array().to_f64_vec().unwrap().iter().all(|&value| value != 0.0));
            }
        }
    }
}
