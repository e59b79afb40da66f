//! Batch normalisation of fields, with running statistics.

use super::{BiasOrder, identities};
use crate::{
    Builder, DeepClone, Error, Module, Parameter, Placement, Result,
    error::{at_least_one, in_layer_of},
    layers::Layer,
};
use gradewise_autograd::{
    Tensor,
    fields::{self, BatchNorm, NormOptions, Statistics, Whitening},
    is_training, no_grad,
};
use gradewise_kernels::{Array, Device, ops};

/// Whitens the blades of each channel together, over batch and space ([`fields::clifford_batch_norm`]; Brandstetter et al. 2022,
/// arXiv:2209.04934).
///
/// In a pass of [`training`](gradewise_autograd::training) the statistics are those of the batch, and the running ones move towards them;
/// in every other pass the running ones are used. A pass whose step is skipped moves them as well. With several processes, each has those
/// of its own share of the batches, and a checkpoint those of the first.
///
/// Parameters: `weight` `[blades, blades, channels]`, the identity, and `bias` `[blades, channels]`, zero. Not trained: `running_mean`
/// `[blades, channels]`, zero, `running_cov` `[blades, blades, channels]`, the identity, and `num_batches_tracked` `[1]`. The three are in
/// `f32` where the features have 16 bits.
#[derive(Debug, Module, DeepClone)]
pub struct CliffordBatchNorm {
    weight: Parameter,
    bias: Parameter,
    running_mean: Parameter,
    running_cov: Parameter,
    num_batches_tracked: Parameter,
    #[module(skip)]
    momentum: Option<f64>,
    #[module(skip)]
    options: NormOptions,
    #[module(skip)]
    order: BiasOrder,
}

/// Settings of a [`CliffordBatchNorm`] for fields of `blades` blades and `channels` channels.
#[derive(Clone, Copy, Debug, Builder)]
pub struct CliffordBatchNormBuilder {
    blades: usize,
    channels: usize,
    /// The share of a batch's statistics in the running ones: 0.1 by default; `None` for the mean over all batches so far.
    #[builder(default = Some(0.1))]
    momentum: Option<f64>,
    #[builder(default, skip)]
    options: NormOptions,
    #[builder(default, skip)]
    order: BiasOrder,
}

impl CliffordBatchNorm {
    /// The running statistics.
    pub fn running(&self) -> Statistics {
        Statistics { mean: self.running_mean.tensor(), covariance: self.running_cov.tensor() }
    }

    /// Moves the running statistics towards those of a batch.
    fn track(&self, batch: &Statistics) -> Result<()> {
        let count = ops::add_scalar(&self.num_batches_tracked.array(), 1.0)?;
        for (running, batch) in [(&self.running_mean, &batch.mean), (&self.running_cov, &batch.covariance)] {
            let old = running.array();
            let change = ops::sub(&batch.array().cast(old.dtype())?, &old)?;
            let change = match self.momentum {
                Some(momentum) => ops::mul_scalar(&change, momentum)?,
                None => ops::div(&change, &count)?,
            };
            store(running, ops::add(&old, &change)?)?;
        }
        store(&self.num_batches_tracked, count)
    }
}

/// Replaces the values; on a GPU in the memory where they are, which recorded steps read and write.
fn store(parameter: &Parameter, values: Array) -> Result<()> {
    if let Device::Cpu = values.device() {
        return parameter.set(values);
    }
    parameter.make_unique()?;
    Ok(parameter.array().overwrite_shared(&values)?)
}

impl CliffordBatchNormBuilder {
    /// Uses the whitening and the bias order of the published implementation.
    #[must_use]
    pub fn reference(mut self) -> Self {
        self.options.whitening = Whitening::Reference;
        self.order = BiasOrder::ChannelBlade;
        self
    }

    /// Makes the parameters.
    ///
    /// # Errors
    /// A momentum outside 0 to 1, a dtype the device does not serve, or no memory.
    pub fn init(self, placement: impl Into<Placement>) -> Result<CliffordBatchNorm> {
        at_least_one("CliffordBatchNorm", &[("blades", self.blades), ("channels", self.channels)])?;
        let Self { blades, channels, momentum, options, order } = self;
        if let Some(momentum) = momentum.filter(|momentum| !(0.0..=1.0).contains(momentum)) {
            return Err(Error::Argument {
                operation: "CliffordBatchNorm",
                argument: "momentum",
                actual: momentum.to_string(),
                expected: "a number from 0 to 1, or none".to_owned(),
            });
        }
        let placement = placement.into();
        let wide = placement.dtype.accumulator();
        let matrices = |dtype| identities(blades, channels, dtype, &placement.device);
        let zeros = |shape: &[usize]| Array::zeros(shape, wide, &placement.device).map(Parameter::frozen);
        Ok(CliffordBatchNorm {
            weight: Parameter::new(matrices(placement.dtype)?),
            bias: placement.filled([blades, channels], 0.0)?,
            running_mean: zeros(&[blades, channels])?,
            running_cov: Parameter::frozen(matrices(wide)?),
            num_batches_tracked: zeros(&[1])?,
            momentum,
            options,
            order,
        })
    }
}

impl Layer for CliffordBatchNorm {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        in_layer_of("CliffordBatchNorm::forward", x, || {
            let (weight, bias) = (self.weight.tensor(), self.order.applied(&self.bias.tensor())?);
            let parameters = BatchNorm { weight: Some(&weight), bias: Some(&bias) };
            let running = (!is_training()).then(|| self.running());
            let (y, statistics) = fields::clifford_batch_norm(x, parameters, running.as_ref(), self.options)?;
            if running.is_none() {
                no_grad(|| self.track(&statistics))?;
            }
            Ok(y)
        })
    }
}
