//! One line of the log for each operation: its name, pass, shapes and time.
//!
//! The lines have level `trace` and the target [`TARGET`]. As long as nothing listens at that level, an operation costs the load of one
//! word and a comparison more. On a GPU each logged operation is waited for, before it and after it, so that the time is its own; work
//! that is recorded as a CUDA graph is logged once, while it is recorded, without a time.

use crate::{Error, Pass, Result, Tensor, tensor::Node};
use gradewise_kernels::{Array, Device};
use std::{fmt::Write, time::Instant};

/// The target of the lines, for filters such as `GRADEWISE_LOG=gradewise::operations=trace`.
pub const TARGET: &str = "gradewise::operations";

/// Whether these lines are enabled.
#[inline]
pub fn is_on() -> bool {
    tracing::enabled!(target: TARGET, tracing::Level::TRACE)
}

/// When an operation began, if it is logged.
pub(crate) struct Began(Option<Instant>);

/// Called before an operation whose first input is `first`.
///
/// # Errors
/// What earlier work on the device failed with.
pub(crate) fn begin(first: Option<&Array>) -> Result<Began> {
    if !is_on() {
        return Ok(Began(None));
    }
    first.map_or(Ok(true), |array| waited(&array.device()))?;
    Ok(Began(Some(Instant::now())))
}

impl Began {
    /// Logs a forward pass.
    ///
    /// # Errors
    /// What the operation failed with on the device.
    pub(crate) fn forward(self, operation: &'static str, inputs: &[&Tensor], output: &Array) -> Result<()> {
        let Some(began) = self.0 else { return Ok(()) };
        let inputs: Vec<&Array> = inputs.iter().map(|input| input.array()).collect();
        line(began, operation, Pass::Forward, &inputs, &[output])
    }

    /// Logs a backward pass: inputs of the operation, and the gradients that it gave them.
    ///
    /// # Errors
    /// As [`forward`](Self::forward).
    pub(crate) fn backward(self, node: &Node, gradients: &[Option<Tensor>]) -> Result<()> {
        let Some(began) = self.0 else { return Ok(()) };
        let inputs: Vec<&Array> = node.inputs.iter().map(Tensor::array).collect();
        let gradients: Vec<&Array> = gradients.iter().flatten().map(Tensor::array).collect();
        line(began, node.operation(), Pass::Backward, &inputs, &gradients)
    }
}

/// Waits for a device; false where that is impossible because its work is being recorded.
fn waited(device: &Device) -> Result<bool> {
    let Device::Cuda(cuda) = device else { return Ok(true) };
    match cuda.synchronize() {
        Ok(()) => Ok(true),
        Err(gradewise_kernels::Error::InCapture { .. }) => Ok(false),
        Err(error) => Err(Error::from(error)),
    }
}

fn line(began: Instant, operation: &str, pass: Pass, inputs: &[&Array], outputs: &[&Array]) -> Result<()> {
    let device = outputs.first().or(inputs.first()).map_or(Device::Cpu, |array| array.device());
    let took = match waited(&device)? {
        true => format!("{:.3} ms", 1e3 * began.elapsed().as_secs_f64()),
        false => "recorded".to_owned(),
    };
    tracing::trace!(
        target: TARGET,
        "{operation} {pass}: {} → {} on {device}, {took}",
        shapes(inputs),
        shapes(outputs)
    );
    Ok(())
}

fn shapes(arrays: &[&Array]) -> String {
    let mut text = String::new();
    for (index, array) in arrays.iter().enumerate() {
        // Writing to a string cannot fail.
        let _ = write!(text, "{}{} {}", if index == 0 { "" } else { ", " }, array.dtype(), array.shape());
    }
    if text.is_empty() { "nothing".to_owned() } else { text }
}
