//! The training step and everything that must survive between two of them.

use super::{Batch, Capture, CapturedStep, Exchange, TrainerConfig};
use crate::checkpoint::{Checkpoint, CheckpointMetadata, FORMAT_VERSION, TensorFile};
use crate::optim::{
    GradientNorms, GradientScaler, MixedPrecision, MovingAverage, Optimizer, ScalerState, UnderflowWatch,
    clip_by_norm, clip_by_value,
};
use crate::{Error, Module, Parameter, Result};
use gradewise_autograd::{BackwardOptions, Policy, Tensor, TensorId, autocast_with, evaluation, training};
use gradewise_ffi::nvtx;
use gradewise_kernels::{Array, DType, Device, memory, ops};
use serde::{Deserialize, Serialize};
use std::{any::Any, collections::HashMap, sync::Arc};

/// After so many steps in a row without a usable gradient, training has diverged.
pub const MAX_CONSECUTIVE_SKIPS: u64 = 20;

/// What happened in one step.
#[derive(Clone, PartialEq, Debug)]
pub struct StepReport {
    /// Steps taken so far, this one included.
    pub step: u64,
    /// Mean loss of the step's batches, before the step.
    pub loss: f64,
    /// Learning rate.
    pub lr: f64,
    /// Norms of the gradients, before clipping, in the order of the parameters.
    pub norms: GradientNorms,
    /// Whether the gradients were scaled down to the largest norm; elements that exceed the largest value are not counted.
    pub clipped: bool,
    /// Whether the step was left out because its loss or gradients were not finite.
    pub skipped: bool,
    /// The fraction of the gradients' elements that are zero.
    pub zeros: f64,
    /// What the loss was multiplied by for the backward pass, where a scaler does that.
    pub scale: Option<f64>,
}

/// A model with its optimiser, schedule and moving average.
///
/// Profilers that listen to NVTX see its steps as ranges `step`, with `wait for a batch`, `forward`, `backward` and `update` inside; a
/// step that is replayed as a CUDA graph has `replay` instead of the last three.
///
/// A step whose loss or gradient norm is NaN or infinite is skipped: weights, optimiser state and average stay as they
/// are, the data and the schedule move on, and the step is reported and counted.
///
/// ```
/// use gradewise_autograd::Tensor;
/// use gradewise_kernels::Device;
/// use gradewise_nn::{layers::{Layer, Linear}, loss::mean_squared_error, train::{ScheduleKind, Trainer, TrainerConfig}};
/// use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
///
/// let mut rng = ChaCha8Rng::seed_from_u64(1);
/// let model = Linear::new(2, 1).init(&Device::Cpu, &mut rng)?;
/// let config = TrainerConfig { lr: 0.1, schedule: ScheduleKind::Constant, warmup_steps: 0, ..TrainerConfig::default() };
/// let mut trainer = Trainer::new(model, config)?;
/// let x = Tensor::from_slice(&[0.0f32, 1.0, 1.0, 0.0], [2, 2], &Device::Cpu)?;
/// let y = Tensor::from_slice(&[2.0f32, -1.0], [2, 1], &Device::Cpu)?;
/// let mut batches = std::iter::repeat_with(|| Ok((x.clone(), y.clone())));
/// let first = trainer.step(&mut batches, |model, (x, y)| mean_squared_error(&model.forward(x)?, y))?;
/// let mut last = first.clone();
/// for _ in 0..50 {
///     last = trainer.step(&mut batches, |model, (x, y)| mean_squared_error(&model.forward(x)?, y))?;
/// }
/// assert!(last.loss < 0.1 * first.loss);
/// # Ok::<(), gradewise_nn::Error>(())
/// ```
pub struct Trainer<M> {
    pub(super) model: M,
    pub(super) parameters: Vec<(String, Parameter)>,
    pub(super) config: TrainerConfig,
    pub(super) optimizer: Optimizer,
    pub(super) average: Option<MovingAverage>,
    pub(super) mixed: Option<Policy>,
    pub(super) scaler: Option<GradientScaler>,
    underflow: UnderflowWatch,
    pub(super) exchange: Option<Arc<dyn Exchange>>,
    capture: Capture,
    /// The [`CapturedStep`] for the batches seen last, on a GPU.
    device_step: Option<Box<dyn Any + Send>>,
    step: u64,
    /// Forward passes of the steps taken: what the masks of dropout follow from.
    passes: u64,
    skips: Skips,
}

#[derive(Clone, Copy, Default, Serialize, Deserialize)]
struct Skips {
    total: u64,
    consecutive: u64,
}

/// The scalars of a training run, as stored in a checkpoint.
#[derive(Serialize, Deserialize)]
struct State {
    optimizer: serde_json::Value,
    skips: Skips,
    #[serde(default)]
    scaler: Option<ScalerState>,
    /// Checkpoints of earlier versions have none: it is then that of steps with the accumulation of now.
    #[serde(default)]
    passes: Option<u64>,
}

impl<M: Module> Trainer<M> {
    /// Starts training at step 0.
    ///
    /// # Errors
    /// [`Error::Argument`] for constants outside their range; [`Error::DuplicateParameter`].
    pub fn new(model: M, config: TrainerConfig) -> Result<Self> {
        config.validate()?;
        let optimizer = Optimizer::new(config.method())?;
        let parameters = model.unique_parameters()?;
        let average = config.ema.map(|decay| MovingAverage::new(decay, parameters.clone())).transpose()?;
        Ok(Self {
            model,
            parameters,
            config,
            optimizer,
            average,
            mixed: None,
            scaler: None,
            exchange: None,
            capture: Capture::default(),
            device_step: None,
            underflow: UnderflowWatch::default(),
            step: 0,
            passes: 0,
            skips: Skips::default(),
        })
    }

    /// Computes losses in mixed precision: operations by the policy, the loss scaled if there is a scaler. Parameters, gradients and
    /// optimiser stay as they are.
    ///
    /// # Errors
    /// [`Error::Argument`] for a scaler's constants outside their range, or parameters that are not in `f32`.
    pub fn mixed_precision(mut self, precision: &MixedPrecision) -> Result<Self> {
        if let Some((name, parameter)) = self.parameters.iter().find(|(_, p)| p.array().dtype() != DType::F32)
        {
            return Err(Error::Argument {
                operation: "mixed precision",
                argument: "parameters",
                actual: format!("`{name}` is {}", parameter.array().dtype()),
                expected: "f32: the weights that 16-bit copies are made of".to_owned(),
            });
        }
        self.scaler = precision.scaler.map(GradientScaler::new).transpose()?;
        self.mixed = Some(precision.policy.clone());
        Ok(self)
    }

    /// What losses are multiplied by at present, where a scaler does that.
    pub fn loss_scale(&self) -> Option<f64> {
        self.scaler.as_ref().map(GradientScaler::scale)
    }

    /// The loss of a batch in forward pass number `pass` of training, in the precision of this trainer.
    fn loss<B>(&self, loss: &impl Fn(&M, &B) -> Result<Tensor>, batch: &B, pass: u64) -> Result<Tensor> {
        let _range = nvtx::range("forward");
        training(pass, || match &self.mixed {
            Some(policy) => autocast_with(policy, || loss(&self.model, batch)),
            None => loss(&self.model, batch),
        })
    }

    /// [`loss`](Self::loss) of batch `number` of the step under way. A step that fails has not advanced `passes`: taken again, it
    /// draws the same.
    pub(super) fn next_loss<B>(
        &self,
        loss: &impl Fn(&M, &B) -> Result<Tensor>,
        batch: &B,
        number: usize,
    ) -> Result<Tensor> {
        self.loss(loss, batch, self.passes + number as u64)
    }

    /// Counts a step, whatever came of it.
    fn count_step(&mut self) {
        self.step += 1;
        self.passes += self.config.accumulation as u64;
    }

    /// Takes its steps together with other processes from now on. Their models must be equal, and stay so: each step is the same
    /// everywhere.
    pub fn set_exchange(&mut self, exchange: Arc<dyn Exchange>) {
        self.exchange = Some(exchange);
    }

    /// The parameters with their names.
    pub fn parameters(&self) -> &[(String, Parameter)] {
        &self.parameters
    }

    /// Gives what is kept from step to step its name in the census of live arrays
    /// ([`census`](gradewise_kernels::memory::census)): the parameters, and for each of them what the optimiser keeps. Updates may have
    /// put new arrays in place of named ones.
    pub fn name_arrays(&self) {
        for (name, parameter) in &self.parameters {
            parameter.array().name(name);
            for (kind, array) in self.optimizer.kept(name) {
                array.name(&format!("{name}: {kind}"));
            }
        }
        for (name, array) in self.average.iter().flat_map(MovingAverage::averages) {
            array.name(&format!("{name}: moving average"));
        }
    }

    /// An error of a step, with parameters called by their names.
    #[must_use]
    pub fn explained(&self, error: Error) -> Error {
        let Error::Autograd(gradewise_autograd::Error::Anomaly(mut anomaly)) = error else { return error };
        anomaly.name_parameters(|leaf| {
            let (name, _) = self.parameters.iter().find(|(_, parameter)| parameter.tensor().id() == leaf)?;
            Some(name.clone())
        });
        Error::Autograd(gradewise_autograd::Error::Anomaly(anomaly))
    }

    /// The model, with its own weights (not their average).
    pub fn model(&self) -> &M {
        &self.model
    }

    /// The names of the parameters, in the order of [`StepReport::norms`].
    pub fn parameter_names(&self) -> impl Iterator<Item = &str> {
        self.parameters.iter().map(|(name, _)| name.as_str())
    }

    /// Steps taken so far, skipped ones included.
    pub fn steps(&self) -> u64 {
        self.step
    }

    /// Steps skipped so far.
    pub fn skipped_steps(&self) -> u64 {
        self.skips.total
    }

    /// Whether steps on a GPU are recorded and replayed; [`Capture::WhenPossible`] unless this says something else.
    pub fn set_capture(&mut self, capture: Capture) {
        (self.capture, self.device_step) = (capture, None);
    }

    /// Number of kernels, copies and fills of the recorded step for batches of this type; `None` as long as there is none.
    ///
    /// # Errors
    /// From the device.
    pub fn captured_nodes<B: Batch + Send + 'static>(&self) -> Result<Option<usize>> {
        let step = self.device_step.as_ref().and_then(|step| step.downcast_ref::<CapturedStep<B>>());
        step.map_or(Ok(None), CapturedStep::node_count)
    }

    /// Takes one step on the next [`TrainerConfig::accumulation`] batches; `loss` must return a scalar.
    ///
    /// On a GPU, batches may be on the host, and clipping, scaling, averaging and the decision to skip happen there: see
    /// [`CapturedStep`], which is what takes the step.
    ///
    /// # Errors
    /// Those of the batches and of `loss`; [`Error::Diverged`] after [`MAX_CONSECUTIVE_SKIPS`] skipped steps in a row;
    /// [`Error::Worker`] if the batches run out; with [`Capture::Required`], a loss that cannot be captured.
    pub fn step<B: Batch + Send + 'static>(
        &mut self,
        batches: &mut impl Iterator<Item = Result<B>>,
        loss: impl Fn(&M, &B) -> Result<Tensor>,
    ) -> Result<StepReport> {
        let Some(Device::Cuda(device)) = self.parameters.first().map(|(_, first)| first.array().device())
        else {
            return self.host_step(batches, loss);
        };
        let kept = self.device_step.take().and_then(|step| step.downcast::<CapturedStep<B>>().ok());
        let mut step = kept.unwrap_or_else(|| Box::new(CapturedStep::with(&device, self.capture)));
        let report = step.step(self, batches, loss);
        self.device_step = Some(step);
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
        if let Some(scale) = scale {
            for gradient in gradients.iter_mut().flatten() {
                *gradient = ops::mul_scalar(gradient, 1.0 / scale)?;
            }
        }
        let zeros = zero_fraction(&gradients)?;
        let norms = GradientNorms::of(&gradients)?;
        let lr = self.config.schedule().lr(self.step);
        self.count_step();
        let skipped = !(mean_loss.is_finite() && norms.are_finite());
        let mut clipped = false;
        if skipped {
            self.skip(mean_loss, &norms)?;
        } else {
            if let Some(limit) = self.config.clip_norm {
                clipped = clip_by_norm(&mut gradients, &norms, limit)?;
            }
            if let Some(limit) = self.config.clip_value {
                clip_by_value(&mut gradients, limit)?;
            }
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

    /// The losses of the last step's `batches` once more and their gradients, with the masks of dropout that the step drew, for whoever
    /// observes this thread; nothing is kept or changed.
    ///
    /// # Errors
    /// Those of the batches; from the operators, or whatever an observer has to say.
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
    pub(super) fn next_batches<B>(&self, batches: &mut impl Iterator<Item = Result<B>>) -> Result<Vec<B>> {
        (0..self.config.accumulation).map(|_| next_batch(batches)).collect()
    }

    /// The learning rate of the next step.
    pub(super) fn next_lr(&self) -> f64 {
        self.config.schedule().lr(self.step)
    }

    /// Counts a step that was taken on a device, or called off there because loss or norm were not finite; `trained` are the
    /// positions of the parameters that it updated.
    pub(super) fn finish_step(
        &mut self,
        loss: f64,
        norms: GradientNorms,
        zeros: f64,
        trained: &[usize],
    ) -> Result<StepReport> {
        let (lr, scale) = (self.next_lr(), self.loss_scale());
        self.count_step();
        let skipped = !(loss.is_finite() && norms.are_finite());
        if skipped {
            self.skip(loss, &norms)?;
        } else {
            self.optimizer.advance(trained.iter().map(|&position| self.parameters[position].0.as_str()));
            self.end_skips();
        }
        let clipped = !skipped && self.config.clip_norm.is_some_and(|limit| norms.total > limit);
        self.scaled(skipped, zeros)?;
        Ok(StepReport { step: self.step, loss, lr, norms, clipped, skipped, zeros, scale })
    }

    /// Moves the loss scale after a step, and looks for gradients that underflow.
    fn scaled(&mut self, skipped: bool, zeros: f64) -> Result<()> {
        let scale = self.loss_scale();
        // The exponents of bf16 are those of f32: what is zero in it was zero before.
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

    /// Adds the gradients of `loss`, divided by the number of batches of a step and multiplied by the loss scale; returns the loss
    /// divided likewise. In the `last` pass of a step the exchange hears of each sum once it is complete.
    pub(super) fn backward(
        &self,
        gradients: &mut [Option<Array>],
        loss: &Tensor,
        last: bool,
    ) -> Result<Array> {
        let _range = nvtx::range("backward");
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
                    // A parameter that took no part in this batch has no gradient from it.
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

    /// Ends a streak of skipped steps with the step that was taken.
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
        // One line for a streak; the error, or the step that ends it, has the count.
        match self.skips.consecutive {
            1 => tracing::warn!("step {} skipped: {what}; those that follow it are counted", self.step),
            _ => tracing::debug!("step {} skipped: {what}", self.step),
        }
        if self.skips.consecutive >= MAX_CONSECUTIVE_SKIPS {
            return Err(Error::Diverged { step: self.step, skipped: self.skips.consecutive, reason: what });
        }
        Ok(())
    }

    /// Runs `work` on the weights that count: their moving average if one is kept, else the weights themselves. It is in evaluation mode
    /// ([`evaluation`]): nothing is dropped.
    ///
    /// The averages take the place of the weights meanwhile, hence the exclusive borrow. The weights return when `work` ends, also if it
    /// panics.
    ///
    /// # Errors
    /// Those of `work`.
    pub fn evaluate<T>(&mut self, work: impl FnOnce(&M) -> Result<T>) -> Result<T> {
        let work = || evaluation(|| work(&self.model));
        match &mut self.average {
            Some(average) => average.apply(work),
            None => work(),
        }
    }

    /// Everything that is needed to go on, or to use the model. `name` and `model_config` identify the model.
    ///
    /// # Errors
    /// From the device.
    pub fn checkpoint(&self, name: &str, model_config: serde_json::Value) -> Result<Checkpoint> {
        let mut tensors = TensorFile::new();
        for (name, parameter) in &self.parameters {
            tensors.insert_array(name.clone(), &parameter.array())?;
        }
        if let Some(average) = &self.average {
            average.save(&mut tensors)?;
        }
        let scaler = self.scaler.as_ref().map(GradientScaler::state);
        let state = State {
            optimizer: self.optimizer.save(&mut tensors)?,
            skips: self.skips,
            scaler,
            passes: Some(self.passes),
        };
        let training = serde_json::to_value(state).map_err(|error| Error::Worker {
            operation: "checkpoint",
            reason: format!("the training state has no JSON form: {error}"),
        })?;
        let metadata = CheckpointMetadata {
            format_version: FORMAT_VERSION,
            model: name.to_owned(),
            model_config,
            step: self.step,
            training,
            members: Vec::new(),
        };
        Ok(Checkpoint { metadata, tensors })
    }

    /// Goes on from a checkpoint of the model that `name` and `model_config` identify, as for [`checkpoint`](Self::checkpoint): the steps
    /// that follow compute the same bits as if training had not been interrupted, provided they see the same batches. Settings of the
    /// model that only one side has are not compared, so that older checkpoints can be resumed. Nothing changes unless everything fits.
    ///
    /// # Errors
    /// [`Error::Tensor`], [`Error::Argument`] or [`Error::Format`] if the checkpoint is of another model, configuration or optimiser, holds
    /// weights alone, or holds a moving average that this trainer does not keep.
    pub fn resume(
        &mut self,
        checkpoint: &Checkpoint,
        name: &str,
        model_config: &serde_json::Value,
    ) -> Result<()> {
        require_same_model(&checkpoint.metadata, name, model_config)?;
        if self.average.is_none() && MovingAverage::is_in(&checkpoint.tensors) {
            return Err(Error::Argument {
                operation: "resume",
                argument: "ema",
                actual: "none".to_owned(),
                expected: "the decay of the moving average that the checkpoint holds; it would be lost"
                    .to_owned(),
            });
        }
        let state = State::deserialize(&checkpoint.metadata.training).map_err(|_| Error::Format {
            path: checkpoint.tensors.path().to_owned(),
            format: "checkpoint",
            reason: "it holds weights without the state of their training, so training cannot go on from it"
                .to_owned(),
        })?;
        let mut values = Vec::with_capacity(self.parameters.len());
        for (name, parameter) in &self.parameters {
            let like = parameter.array();
            let stored = &checkpoint.tensors;
            values.push(stored.array_of_shape(name, like.dims(), like.dtype(), &like.device())?);
        }
        let mut optimizer = Optimizer::new(self.config.method())?;
        optimizer.load(&state.optimizer, &checkpoint.tensors, &self.parameters)?;
        // All or nothing itself, and the last that can refuse.
        if let Some(average) = &mut self.average {
            average.load(&checkpoint.tensors)?;
        }
        for ((_, parameter), value) in self.parameters.iter().zip(values) {
            parameter.set(value)?;
        }
        if let Some((scaler, state)) = self.scaler.as_mut().zip(state.scaler) {
            scaler.restore(state)?;
        }
        (self.optimizer, self.step, self.skips) = (optimizer, checkpoint.metadata.step, state.skips);
        self.passes =
            state.passes.unwrap_or_else(|| self.step.saturating_mul(self.config.accumulation as u64));
        Ok(())
    }
}

/// Refuses a checkpoint of another model than that of `name` and `config`.
fn require_same_model(metadata: &CheckpointMetadata, name: &str, config: &serde_json::Value) -> Result<()> {
    let refuse = |argument, actual: String, expected: String| {
        Err(Error::Argument { operation: "resume", argument, actual, expected })
    };
    if metadata.model != name {
        return refuse("model", format!("`{}` in the checkpoint", metadata.model), format!("`{name}`"));
    }
    let differing = match (metadata.model_config.as_object(), config.as_object()) {
        (Some(theirs), Some(ours)) => theirs.iter().find_map(|(key, value)| {
            ours.get(key).filter(|own| *own != value).map(|own| (key.as_str(), value, own))
        }),
        _ if metadata.model_config == *config => None,
        _ => Some(("", &metadata.model_config, config)),
    };
    match differing {
        None => Ok(()),
        Some((key, theirs, ours)) => {
            let key = if key.is_empty() { String::new() } else { format!("{key} = ") };
            refuse("model_config", format!("{key}{theirs} in the checkpoint"), format!("{key}{ours}"))
        }
    }
}

/// The fraction of elements that are zero.
fn zero_fraction(gradients: &[Option<Array>]) -> Result<f64> {
    let (mut zeros, mut elements) = (0.0, 0);
    for gradient in gradients.iter().flatten() {
        let zero = Array::zeros([], gradient.dtype(), &gradient.device())?;
        let axes: Vec<usize> = (0..gradient.rank()).collect();
        zeros += ops::sum(&ops::equal(gradient, &zero)?, &axes, false)?.item()?;
        elements += gradient.elements();
    }
    Ok(zeros / elements.max(1) as f64)
}

/// Adds to a sum that may have no term yet.
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
        Err(Error::Worker { operation: "training step", reason: "there are no more batches".to_owned() })
    })
}
