//! Training steps on a CUDA device: forward, backward, norms, the decision to take the step, and the update, without host synchronisation
//! in between; optionally captured once and replayed.

use super::{Trainer, report::StepReport};
use crate::data::own_copy;
use crate::optim::Method;
use crate::train::{Batch, Capture};
use crate::{Error, Module, Result};
use gradewise_autograd::Tensor;
use gradewise_ffi::nvtx;
use gradewise_kernels::{
    Array, CapturedGraph, CudaDevice, Device, Fusion,
    ops::{
        self,
        optim::cuda::{Decision, StepState, Update, update},
    },
};

/// The state of the steps of one trainer on one device.
pub(super) struct DeviceSteps {
    device: CudaDevice,
    /// The indices of the parameters that get gradients.
    trained: Vec<usize>,
    decision: Decision,
    decided: StepState,
    constants: StepState,
    average: Option<StepState>,
}

/// A captured step, with the arrays it reads and writes.
struct Captured<B> {
    graph: CapturedGraph,
    /// The batches that the graph reads.
    inputs: Vec<B>,
    /// The parameters' storage, which the graph updates in place.
    parameters: Vec<Array>,
}

/// Takes the steps of a [`Trainer`] on a CUDA device; [`Trainer::step`] uses it there.
///
/// The first step runs operator by operator; with `capture`, the next is recorded as a CUDA graph, which every further step replays: one
/// launch instead of hundreds, with bit-identical results. A batch of another shape causes another recording, beside those of the last 32
/// shapes, whose memory they keep; replaced parameters, or other parameters with gradients, cause new ones.
pub struct CapturedStep<B> {
    device: CudaDevice,
    capture: Capture,
    fusion: Fusion,
    steps: Option<DeviceSteps>,
    /// One for each shape of batches, the one used last at the end.
    captured: Vec<Captured<B>>,
}

/// The most shapes whose recordings are kept: as many as batches of jets of up to 200 particles have, rounded up to multiples of 8.
const SHAPES: usize = 32;

impl<B: Batch> CapturedStep<B> {
    /// Steps on `device`. With `capture`, they are captured, and a loss that cannot be captured is an error.
    pub fn new(device: &CudaDevice, capture: bool) -> Self {
        let capture = if capture { Capture::Required } else { Capture::Off };
        Self::with(device, capture, Fusion::default())
    }

    /// Steps on `device`.
    pub fn with(device: &CudaDevice, capture: Capture, fusion: Fusion) -> Self {
        Self { device: device.clone(), capture, fusion, steps: None, captured: Vec::new() }
    }

    /// Number of kernels, copies and fills of the captured step that was used last; `None` before a step is captured.
    ///
    /// # Errors
    /// From the device.
    pub fn node_count(&self) -> Result<Option<usize>> {
        Ok(self.captured.last().map(|captured| captured.graph.node_count()).transpose()?)
    }

    /// As [`Trainer::step`], with batches that may be on the host.
    ///
    /// # Errors
    /// As [`Trainer::step`]; a loss that does something that cannot be captured.
    pub fn step<M: Module>(
        &mut self,
        trainer: &mut Trainer<M>,
        batches: &mut impl Iterator<Item = Result<B>>,
        loss: impl Fn(&M, &B) -> Result<Tensor>,
    ) -> Result<StepReport> {
        let _step = nvtx::range("step");
        let given = trainer.next_batches(batches)?;
        if self.replay(trainer, &given)? {
            return self.report(trainer);
        }
        let computed = match self.compute(trainer, &given, &loss) {
            // Recordings of other shapes keep memory, which this one may need.
            Err(error) if error.is_out_of_memory() && !self.captured.is_empty() => {
                self.captured.clear();
                self.compute(trainer, &given, &loss)
            }
            computed => computed,
        };
        let (inputs, value, gradients) = computed?;
        let Some(steps) = &self.steps else { unreachable!("just prepared") };
        steps.set_constants(trainer)?;
        steps.finish(trainer, &value, &gradients)?;
        drop((value, gradients));
        let report = self.report(trainer)?;
        if self.capture != Capture::Off && !report.skipped {
            let recorded = match self.record(trainer, inputs, &loss) {
                Err(error) if error.is_out_of_memory() && !self.captured.is_empty() => {
                    self.captured.clear();
                    let inputs = self.inputs(&given)?;
                    self.record(trainer, inputs, &loss)
                }
                recorded => recorded,
            };
            match recorded {
                // The step is taken; the next one will not be.
                Err(error) if error.is_stopped() => {}
                Err(error) if self.capture == Capture::WhenPossible => {
                    tracing::warn!("steps are not captured, and take longer: {error}");
                    self.capture = Capture::Off;
                }
                recorded => recorded?,
            }
        }
        Ok(report)
    }

    /// Batches on the device, of which replays overwrite those that steps are captured with.
    fn inputs(&self, given: &[B]) -> Result<Vec<B>> {
        let device = Device::Cuda(self.device.clone());
        let input = |batch: &B| match self.capture {
            Capture::Off => batch.to_device(&device),
            Capture::WhenPossible | Capture::Required => own_copy(batch, &device),
        };
        given.iter().map(input).collect()
    }

    /// The loss and its gradients, and the inputs that they were computed of.
    #[allow(clippy::type_complexity, reason = "named where it is taken apart")]
    fn compute<M: Module>(
        &mut self,
        trainer: &mut Trainer<M>,
        given: &[B],
        loss: &impl Fn(&M, &B) -> Result<Tensor>,
    ) -> Result<(Vec<B>, Array, Vec<Option<Array>>)> {
        let inputs = self.inputs(given)?;
        // Updates are in place, so no other array may share the parameters' storage, but those of the recordings, which were made after this.
        if self.captured.is_empty() {
            for (_, parameter) in &trainer.parameters {
                parameter.make_unique()?;
            }
        }
        let (value, gradients) = trainer.gradients(&inputs, loss)?;
        self.prepare(trainer, &gradients)?;
        Ok((inputs, value, gradients))
    }

    /// Replays the captured step on these batches; `false` if none fits them.
    fn replay<M: Module>(&mut self, trainer: &mut Trainer<M>, given: &[B]) -> Result<bool> {
        let Some(steps) = &self.steps else { return Ok(false) };
        let stays = |(array, (_, parameter)): (&Array, &(String, crate::Parameter))| {
            array.shares_storage(&parameter.array())
        };
        let replaced =
            |captured: &Captured<B>| !captured.parameters.iter().zip(&trainer.parameters).all(stays);
        if self.captured.first().is_some_and(replaced) {
            self.captured.clear();
            return Ok(false);
        }
        let mut found = None;
        for (position, captured) in self.captured.iter().enumerate().rev() {
            if captured.takes(given)? {
                found = Some(position);
                break;
            }
        }
        let Some(position) = found else { return Ok(false) };
        let captured = self.captured.remove(position);
        steps.set_constants(trainer)?;
        let _range = nvtx::range("replay");
        let replayed = captured.graph.replay();
        self.captured.push(captured);
        replayed?;
        Ok(true)
    }

    /// Allocates buffers for the gradients of this step, unless the existing ones fit.
    fn prepare<M: Module>(&mut self, trainer: &mut Trainer<M>, gradients: &[Option<Array>]) -> Result<()> {
        let found = |(position, gradient): (usize, &Option<Array>)| gradient.as_ref().map(|_| position);
        let trained: Vec<usize> = gradients.iter().enumerate().filter_map(found).collect();
        for &position in &trained {
            if let Some(gradient) = &gradients[position] {
                trainer.optimizer.ensure(&trainer.parameters[position].0, gradient)?;
            }
        }
        if self.steps.as_ref().is_some_and(|steps| steps.trained == trained) {
            return Ok(());
        }
        let sizes: Vec<usize> =
            trained.iter().map(|&position| gradients[position].as_ref().map_or(0, Array::elements)).collect();
        // The recordings write into what is replaced.
        self.captured.clear();
        let decided = StepState::new(&self.device)?;
        if let Some(limit) = trainer.config.clip_value {
            decided.set_clip_value(limit)?;
        }
        self.steps = Some(DeviceSteps {
            decision: Decision::new(&self.device, &sizes)?,
            decided,
            constants: StepState::new(&self.device)?,
            average: trainer.average.as_ref().map(|_| StepState::new(&self.device)).transpose()?,
            device: self.device.clone(),
            trained,
        });
        Ok(())
    }

    /// Records a step that reads `inputs`.
    fn record<M: Module>(
        &mut self,
        trainer: &Trainer<M>,
        inputs: Vec<B>,
        loss: &impl Fn(&M, &B) -> Result<Tensor>,
    ) -> Result<()> {
        let Some(steps) = &self.steps else { return Ok(()) };
        let work = || -> Result<()> {
            let (value, gradients) = trainer.gradients(&inputs, loss)?;
            steps.finish(trainer, &value, &gradients)
        };
        // The capture can only return the kernels' error type, so this crate's error is passed in a variable.
        let mut failure = None;
        let captured = self.device.capture_with(self.fusion, || {
            if let Err(error) = work() {
                failure = Some(error);
            }
            Ok(())
        });
        if let Some(error) = failure {
            return Err(error);
        }
        let ((), graph) = captured?;
        let parameters = trainer.parameters.iter().map(|(_, parameter)| parameter.array()).collect();
        if self.captured.len() == SHAPES {
            self.captured.remove(0);
        }
        self.captured.push(Captured { graph, inputs, parameters });
        Ok(())
    }

    /// Waits for the queued step, and counts it.
    fn report<M: Module>(&self, trainer: &mut Trainer<M>) -> Result<StepReport> {
        let Some(steps) = &self.steps else { unreachable!("a step was queued") };
        let report = steps.decision.report();
        // If the exchange failed, its error is the root cause of a failed report.
        if let Some(exchange) = &trainer.exchange {
            exchange.check()?;
        }
        trainer.finish_step(report?, &steps.trained)
    }
}

impl<B: Batch> Captured<B> {
    /// Puts the values of `given` in place of the inputs; `false` if one has another shape, in which case the graph must not be replayed.
    fn takes(&self, given: &[B]) -> Result<bool> {
        for (input, batch) in self.inputs.iter().zip(given) {
            if !input.overwrite(batch)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl DeviceSteps {
    /// Writes the constants of the next step to the device.
    fn set_constants<M: Module>(&self, trainer: &Trainer<M>) -> Result<()> {
        let lr = trainer.next_lr();
        let names = self.trained.iter().map(|&position| trainer.parameters[position].0.as_str());
        let step = trainer.optimizer.common_step(names)? + 1;
        trainer.optimizer.set_constants(&self.constants, lr, step)?;
        if let Some(scale) = trainer.loss_scale() {
            self.decided.set_unscale(1.0 / scale)?;
        }
        if let (Some(state), Some(average)) = (&self.average, &trainer.average) {
            state.set_ema(average.decay())?;
        }
        Ok(())
    }

    /// Queues the work that follows the gradients: norms, decision and update.
    fn finish<M: Module>(
        &self,
        trainer: &Trainer<M>,
        loss: &Array,
        gradients: &[Option<Array>],
    ) -> Result<()> {
        let _range = nvtx::range("update");
        let trained = || self.trained.iter().map(|&position| (position, gradients[position].as_ref()));
        if gradients.iter().flatten().count() != self.trained.len() || trained().any(|(_, g)| g.is_none()) {
            return Err(Error::Argument {
                operation: "training step on a device",
                argument: "gradients",
                actual: "other parameters have gradients than in the step before".to_owned(),
                expected: "the same in every step; or train without capture".to_owned(),
            });
        }
        let mut contiguous = Vec::with_capacity(self.trained.len());
        for (_, gradient) in trained() {
            contiguous.extend(gradient.map(Array::contiguous).transpose()?);
        }
        let gradients = contiguous;
        let found: Vec<&Array> = gradients.iter().collect();
        self.decision.decide(&self.decided, loss, &found, trainer.config.clip_norm)?;
        let values: Vec<Tensor> =
            self.trained.iter().map(|&position| trainer.parameters[position].1.tensor()).collect();
        let mut arrays = Vec::with_capacity(values.len());
        for ((&position, value), gradient) in self.trained.iter().zip(&values).zip(&gradients) {
            let slots = trainer.optimizer.slots(&trainer.parameters[position].0);
            arrays.push([Some(value.array()), Some(gradient), slots.first(), slots.get(1)]);
        }
        let kind = match trainer.optimizer.method() {
            Method::Adam { .. } | Method::AdamW { .. } => Update::Adam,
            Method::Sgd { .. } => Update::Sgd,
        };
        update(kind, &self.constants, Some(&self.decided), &arrays)?;
        if let (Some(state), Some(average)) = (&self.average, &trainer.average) {
            let current: Vec<Tensor> =
                trainer.parameters.iter().map(|(_, parameter)| parameter.tensor()).collect();
            let pairs = average.arrays().iter().zip(&current);
            let arrays: Vec<_> = pairs.map(|(a, p)| [Some(a), Some(p.array()), None, None]).collect();
            update(Update::Ema, state, Some(&self.decided), &arrays)?;
        }
        debug_assert_eq!(loss.device(), Device::Cuda(self.device.clone()));
        Ok(())
    }
}

impl<M: Module> Trainer<M> {
    /// Mean loss of the batches, and the gradients of the mean, in the order of the parameters.
    fn gradients<B>(
        &self,
        batches: &[B],
        loss: &impl Fn(&M, &B) -> Result<Tensor>,
    ) -> Result<(Array, Vec<Option<Array>>)> {
        let mut gradients: Vec<Option<Array>> = vec![None; self.parameters.len()];
        let mut mean: Option<Array> = None;
        for (number, batch) in batches.iter().enumerate() {
            let loss = self.next_loss(loss, batch, number)?;
            let share = self.backward(&mut gradients, &loss, number + 1 == batches.len())?;
            mean = Some(match mean {
                Some(mean) => ops::add(&mean, &share)?,
                None => share,
            });
        }
        let Some(mut mean) = mean else { unreachable!("a step has at least one batch") };
        if let Some(exchange) = &self.exchange {
            mean = exchange.finish(&mean, &mut gradients)?;
        }
        Ok((mean, gradients))
    }
}
