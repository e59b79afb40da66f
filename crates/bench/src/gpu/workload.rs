//! Cases prepared for repeated runs.

use super::{nbody::NBodyStep, operators};
use crate::{Case, Error, Op, Pass, Result};
use gradewise_autograd::{BackwardOptions, Tensor, no_grad};
use gradewise_kernels::Device;

/// A pass that can be run repeatedly.
pub struct Prepared<'a> {
    /// Queues one run.
    pub run: Box<dyn FnMut() -> Result<()> + 'a>,
    /// Bytes of memory owned by a captured graph; `None` if unknown.
    pub graph_bytes: Option<usize>,
}

/// A case with its inputs on a device.
pub trait Workload {
    /// Prepares a pass. One-time work (a capture, the first step of a training run) happens here.
    ///
    /// # Errors
    /// From the device; [`Pass::Graph`] without a CUDA device.
    fn prepare(&self, pass: Pass) -> Result<Prepared<'_>>;
}

/// The workload of a case, with random inputs, on any device.
///
/// # Errors
/// Sizes, algebras and dtypes that the operator does not support; no memory.
pub fn workload(case: &Case, device: &Device) -> Result<Box<dyn Workload>> {
    Ok(match case.op {
        Op::NBody => Box::new(NBodyStep::new(case, device)?),
        _ => Box::new(operators::build(case, device)?),
    })
}

/// An operator or layer: inputs and parameters by name, and a seed for the backward pass.
pub(super) struct Operator {
    pub inputs: Vec<(String, Tensor)>,
    pub seed: Tensor,
    pub apply: Box<dyn Fn() -> Result<Tensor>>,
}

impl Operator {
    pub fn forward(&self) -> Result<Tensor> {
        no_grad(|| (self.apply)())
    }

    /// The output, and the gradients in the order of the inputs.
    pub fn both(&self) -> Result<(Tensor, Vec<Tensor>)> {
        let output = (self.apply)()?;
        let gradients = output.backward_with(&BackwardOptions::seed(self.seed.clone()))?;
        let found = self.inputs.iter().map(|(_, input)| Ok(gradients.get(input)?.clone()));
        Ok((output, found.collect::<Result<_>>()?))
    }
}

impl Workload for Operator {
    fn prepare(&self, pass: Pass) -> Result<Prepared<'_>> {
        let both = || self.both().map(drop);
        match pass {
            Pass::Forward => {
                Ok(Prepared { run: Box::new(|| self.forward().map(drop)), graph_bytes: Some(0) })
            }
            Pass::Both => Ok(Prepared { run: Box::new(both), graph_bytes: Some(0) }),
            Pass::Graph => {
                let Device::Cuda(device) = self.seed.device() else {
                    return Err(Error::Request("only work on a CUDA device can be captured".to_owned()));
                };
                // Loads constants and kernels onto the device before the capture.
                both()?;
                let mut failure = None;
                let captured = device.capture(|| {
                    failure = both().err();
                    Ok(())
                });
                // Returns the error from inside the capture, which is the root cause of the failed capture.
                if let Some(failure) = failure {
                    return Err(failure);
                }
                let ((), graph) = captured?;
                let graph_bytes = Some(graph.bytes());
                Ok(Prepared { run: Box::new(move || Ok(graph.replay()?)), graph_bytes })
            }
        }
    }
}
