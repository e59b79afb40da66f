//! One training step.

use super::{Trainer, device::CapturedStep, report::StepReport};
pub use crate::optim::MAX_CONSECUTIVE_SKIPS;
use crate::optim::{GradientNorms, clip, require_loss};
use crate::train::{Batch, Exchange};
use crate::{Error, Module, Parameter, Result};
use gradewise_autograd::{BackwardOptions, Tensor, TensorId, autocast_with, training};
use gradewise_ffi::nvtx;
use gradewise_kernels::{
    Array, DType, Device, Element, Fusion, memory,
    ops::{self, optim::cuda::Decided},
};
use half::{bf16, f16};
use std::collections::HashMap;

/// The lowest bit of the rank in the number of a forward pass. The bits below number the passes of a run, 2⁴⁰, and the draws within one.
const RANK_SHIFT: u32 = 52;

impl<M: Module> Trainer<M> {
    /// The loss of a batch in forward pass number `pass` of training, in the precision of this trainer.
    fn loss<B>(&self, loss: &impl Fn(&M, &B) -> Result<Tensor>, batch: &B, pass: u64) -> Result<Tensor> {
        let _range = nvtx::range("forward");
        // Each process draws masks of its own: equal masks would drop the same features of every part of a batch.
        let rank = self.exchange.as_deref().map_or(0, Exchange::rank) as u64;
        training(pass.wrapping_add(rank << RANK_SHIFT), || match &self.mixed {
            Some(policy) => autocast_with(policy, || loss(&self.model, batch)),
            None => loss(&self.model, batch),
        })
    }

    /// [`loss`](Self::loss) of batch `number` of the current step. A step that fails does not advance `passes`, so a retry draws the same
    /// dropout masks.
    pub(in crate::train) fn next_loss<B>(
        &self,
        loss: &impl Fn(&M, &B) -> Result<Tensor>,
        batch: &B,
        number: usize,
    ) -> Result<Tensor> {
        self.loss(loss, batch, self.passes + number as u64)
    }

    /// Counts a step, whether taken or skipped.
    fn count_step(&mut self) {
        self.step += 1;
        self.passes += self.config.accumulation as u64;
    }

    /// Takes one step on the next [`TrainerConfig::accumulation`](crate::train::TrainerConfig::accumulation) batches; `loss` must
    /// return a scalar.
    ///
    /// On a GPU, batches may be on the host, and clipping, scaling, averaging and the decision to skip happen on the device: see
    /// [`CapturedStep`], which takes the step.
    ///
    /// # Errors
    /// Those of the batches and of `loss`; [`Error::Diverged`] after [`MAX_CONSECUTIVE_SKIPS`] skipped steps in a row;
    /// [`Error::Argument`] if the batches run out, and for a loss that is no scalar or depends on no parameter; with [`Capture::Required`](crate::train::Capture::Required), a loss that cannot be captured.
    pub fn step<B: Batch + Send + 'static>(
        &mut self,
        batches: &mut impl Iterator<Item = Result<B>>,
        loss: impl Fn(&M, &B) -> Result<Tensor>,
    ) -> Result<StepReport> {
        let Some(Device::Cuda(device)) = self.parameters.first().map(|(_, first)| first.array().device())
        else {
            return self.host_step_or_none(batches, loss);
        };
        let kept = self.device_step.take().and_then(|step| step.downcast::<CapturedStep<B>>().ok());
        let mut step =
            kept.unwrap_or_else(|| Box::new(CapturedStep::with(&device, self.capture, self.fusion)));
        let report = step.step(self, batches, loss);
        self.device_step = Some(step);
        report
    }

    /// A step on the host. If it fails, running statistics, which forward passes change, are those before it.
    fn host_step_or_none<B>(
        &mut self,
        batches: &mut impl Iterator<Item = Result<B>>,
        loss: impl Fn(&M, &B) -> Result<Tensor>,
    ) -> Result<StepReport> {
        let frozen = self.parameters.iter().filter(|(_, parameter)| !parameter.is_trained());
        let before: Vec<(Parameter, Array)> =
            frozen.map(|(_, parameter)| (parameter.clone(), parameter.array())).collect();
        let step = self.step;
        let report = match self.host_fusion {
            Fusion::On => Device::Cpu.fused(|| self.host_step(batches, loss)),
            Fusion::Off => self.host_step(batches, loss),
        };
        if report.is_err() && self.step == step {
            for (parameter, values) in before {
                parameter.set(values)?;
            }
        }
        report
    }

    /// A step on the host.
    fn host_step<B>(
        &mut self,
        batches: &mut impl Iterator<Item = Result<B>>,
        loss: impl Fn(&M, &B) -> Result<Tensor>,
    ) -> Result<StepReport> {
        let _step = nvtx::range("step");
        let mut gradients: Vec<Option<Array>> = vec![None; self.parameters.len()];
        let mut mean_loss = 0.0;
        let mut mean: Option<Array> = None;
        for number in 0..self.config.accumulation {
            let batch = next_batch(batches)?;
            let last = number + 1 == self.config.accumulation;
            let share = self.backward(&mut gradients, &self.next_loss(&loss, &batch, number)?, last)?;
            match self.exchange {
                None => mean_loss += share.item()?,
                Some(_) => add_to(&mut mean, share)?,
            }
        }
        if let (Some(exchange), Some(mean)) = (&self.exchange, mean) {
            mean_loss = exchange.finish(&mean, &mut gradients)?.item()?;
            exchange.check()?;
        }
        let update = nvtx::range("update");
        let scale = self.loss_scale();
        if let Some(scaler) = &self.scaler {
            scaler.unscale(&mut gradients)?;
        }
        let zeros = zero_fraction(&gradients)?;
        let norms = GradientNorms::of(&gradients)?;
        let lr = self.next_lr();
        self.count_step();
        let skipped = !(mean_loss.is_finite() && norms.are_finite());
        let mut clipped = false;
        if skipped {
            self.skip(mean_loss, &norms)?;
        } else {
            clipped = clip(&mut gradients, &norms, (self.config.clip_norm, self.config.clip_value))?;
            let account = memory::within("optimizer");
            self.optimizer.step(lr, &self.parameters, &gradients)?;
            if let Some(average) = &mut self.average {
                average.update()?;
            }
            drop(account);
            self.end_skips();
        }
        drop(update);
        self.scaled(skipped, zeros)?;
        Ok(StepReport { step: self.step, loss: mean_loss, lr, norms, clipped, skipped, zeros, scale })
    }

    /// Recomputes the losses and gradients of the last step's `batches`, with the dropout masks of that step, for observers of this thread.
    /// Nothing is stored or changed.
    ///
    /// # Errors
    /// Those of the batches; from the operators, or from an observer.
    pub fn look<B>(
        &self,
        batches: impl IntoIterator<Item = Result<B>>,
        loss: impl Fn(&M, &B) -> Result<Tensor>,
    ) -> Result<()> {
        let first = self.passes.saturating_sub(self.config.accumulation as u64);
        for (batch, pass) in batches.into_iter().zip(first..) {
            let mut gradients = vec![None; self.parameters.len()];
            self.backward(&mut gradients, &self.loss(&loss, &batch?, pass)?, false)?;
        }
        Ok(())
    }

    /// The batches of the next step.
    pub(in crate::train) fn next_batches<B>(
        &self,
        batches: &mut impl Iterator<Item = Result<B>>,
    ) -> Result<Vec<B>> {
        (0..self.config.accumulation).map(|_| next_batch(batches)).collect()
    }

    /// Counts a step that was taken on a device, or skipped there because loss or norm were not finite. `trained` are the indices of the
    /// parameters that it updated.
    pub(in crate::train) fn finish_step(
        &mut self,
        decided: Decided,
        trained: &[usize],
    ) -> Result<StepReport> {
        let Decided { loss, norm: total, each: found, zeros, largest } = decided;
        let mut each = vec![0.0; self.parameters.len()];
        for (&position, norm) in trained.iter().zip(found) {
            each[position] = norm;
        }
        let norms = GradientNorms { total, each };
        let (lr, scale) = (self.next_lr(), self.loss_scale());
        self.count_step();
        let skipped = !(loss.is_finite() && norms.are_finite());
        if skipped {
            self.skip(loss, &norms)?;
        } else {
            self.optimizer.advance(trained.iter().map(|&position| self.parameters[position].0.as_str()));
            self.end_skips();
        }
        let by_norm = self.config.clip_norm.is_some_and(|limit| norms.total > limit);
        let by_value = self.config.clip_value.is_some_and(|limit| largest > limit);
        let clipped = !skipped && (by_norm || by_value);
        self.scaled(skipped, zeros)?;
        Ok(StepReport { step: self.step, loss, lr, norms, clipped, skipped, zeros, scale })
    }

    /// Updates the loss scale after a step, and checks for gradients that underflow.
    fn scaled(&mut self, skipped: bool, zeros: f64) -> Result<()> {
        let scale = self.loss_scale();
        // bf16 has the exponent range of f32, so only f16 can underflow more than f32.
        if !skipped && self.mixed.as_ref().is_some_and(|policy| policy.dtype() == DType::F16) {
            self.underflow.see(self.step, zeros, scale);
        }
        let Some(scaler) = &mut self.scaler else { return Ok(()) };
        scaler.update(skipped)?;
        if skipped {
            tracing::info!("step {}: loss scale {} from here on", self.step, scaler.scale());
        }
        Ok(())
    }

    /// Adds the gradients of `loss`, divided by the number of batches of a step and multiplied by the loss scale; returns the loss divided
    /// likewise. In the `last` pass of a step, the exchange is notified of each sum once it is complete.
    pub(in crate::train) fn backward(
        &self,
        gradients: &mut [Option<Array>],
        loss: &Tensor,
        last: bool,
    ) -> Result<Array> {
        let _range = nvtx::range("backward");
        require_loss(
            "training step",
            loss,
            "the model's parameters, in this closure, outside of no_grad and without detach",
        )?;
        let loss = match self.config.accumulation {
            1 => loss.clone(),
            batches => loss.mul_scalar(1.0 / batches as f64)?,
        };
        let options = match &self.scaler {
            Some(scaler) => BackwardOptions::seed(scaler.seed(&loss)?),
            None => BackwardOptions::default(),
        };
        match self.exchange.as_deref().filter(|_| last) {
            Some(exchange) => self.backward_exchanged(gradients, &loss, &options, exchange)?,
            None => {
                let mut found = loss.backward_with(&options)?;
                for (sum, (_, parameter)) in gradients.iter_mut().zip(&self.parameters) {
                    let leaf = parameter.tensor();
                    // A parameter that this batch did not use has no gradient from it.
                    if found.contains(&leaf) {
                        add_to(sum, found.take(&leaf)?.array().clone())?;
                    }
                }
            }
        }
        Ok(loss.array().clone())
    }

    fn backward_exchanged(
        &self,
        gradients: &mut [Option<Array>],
        loss: &Tensor,
        options: &BackwardOptions,
        exchange: &dyn Exchange,
    ) -> Result<()> {
        let leaves = self.parameters.iter().enumerate();
        let positions: HashMap<TensorId, usize> =
            leaves.map(|(position, (_, parameter))| (parameter.tensor().id(), position)).collect();
        let mut take = |leaf: &Tensor, gradient: &Tensor| -> Result<()> {
            let Some(&position) = positions.get(&leaf.id()) else { return Ok(()) };
            let sum = &mut gradients[position];
            add_to(sum, gradient.array().clone())?;
            sum.as_ref().map_or(Ok(()), |sum| exchange.ready(position, sum))
        };
        let mut result = Ok(());
        loss.backward_watched(options, |leaf, gradient| {
            if result.is_ok() {
                result = take(leaf, gradient);
            }
        })?;
        result
    }

    /// Ends a streak of skipped steps when a step is taken, and reports its length.
    fn end_skips(&mut self) {
        let skipped = std::mem::take(&mut self.skips.consecutive);
        if skipped > 1 {
            tracing::warn!("{skipped} steps in a row were skipped before step {}", self.step);
        }
    }

    fn skip(&mut self, loss: f64, norms: &GradientNorms) -> Result<()> {
        self.skips.total += 1;
        self.skips.consecutive += 1;
        let bad: Vec<&str> = self
            .parameter_names()
            .zip(&norms.each)
            .filter(|(_, norm)| !norm.is_finite())
            .map(|(name, _)| name)
            .collect();
        let what = match bad.first() {
            Some(first) => format!(
                "{} of {} gradients are not finite, the first of `{first}`",
                bad.len(),
                norms.each.len()
            ),
            None => format!("the loss is {loss}"),
        };
        // Logs one line per streak; the count is in the error, or in the line that ends the streak.
        match self.skips.consecutive {
            1 => tracing::warn!("step {} skipped: {what}; those that follow it are counted", self.step),
            _ => tracing::debug!("step {} skipped: {what}", self.step),
        }
        if self.skips.consecutive >= MAX_CONSECUTIVE_SKIPS {
            return Err(Error::Diverged { step: self.step, skipped: self.skips.consecutive, reason: what });
        }
        Ok(())
    }
}

/// The fraction of elements that are zero.
fn zero_fraction(gradients: &[Option<Array>]) -> Result<f64> {
    let (mut zeros, mut elements) = (0.0, 0);
    for gradient in gradients.iter().flatten() {
        zeros += zeros_of(gradient)?;
        elements += gradient.elements();
    }
    Ok(zeros / elements.max(1) as f64)
}

/// The number of elements that are zero.
fn zeros_of(gradient: &Array) -> Result<f64> {
    // On the host three operations for each gradient would take a tenth of a step with a small batch.
    if matches!(gradient.device(), Device::Cpu) && gradient.is_contiguous() {
        return match gradient.dtype() {
            DType::F64 => zeros_in::<f64>(gradient),
            DType::F32 => zeros_in::<f32>(gradient),
            DType::BF16 => zeros_in::<bf16>(gradient),
            DType::F16 => zeros_in::<f16>(gradient),
        };
    }
    let zero = Array::zeros([], gradient.dtype(), &gradient.device())?;
    let axes: Vec<usize> = (0..gradient.rank()).collect();
    Ok(ops::sum(&ops::equal(gradient, &zero)?, &axes, false)?.item()?)
}

fn zeros_in<T: Element>(gradient: &Array) -> Result<f64> {
    Ok(gradient.as_slice::<T>()?.iter().filter(|value| **value == T::default()).count() as f64)
}

/// Adds a term to a sum that may be empty.
fn add_to(sum: &mut Option<Array>, term: Array) -> Result<()> {
    match sum {
        Some(sum) => ops::add_assign(sum, &term)?,
        None => *sum = Some(term),
    }
    Ok(())
}

fn next_batch<B>(batches: &mut impl Iterator<Item = Result<B>>) -> Result<B> {
    let _range = nvtx::range("wait for a batch");
    batches.next().unwrap_or_else(|| {
        Err(Error::Argument {
            operation: "training step",
            argument: "batches",
            actual: "at its end: there are no more batches".to_owned(),
            expected: "another batch for each step; train::batches goes over the samples again and again"
                .to_owned(),
        })
    })
}
