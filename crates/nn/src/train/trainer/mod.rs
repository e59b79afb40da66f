//! Training a model: the state kept between steps ([`Trainer`]), the step itself, and resuming from a checkpoint.

mod device;
mod pace;
mod report;
mod resume;
mod step;

pub use device::CapturedStep;
pub use report::StepReport;
pub use step::MAX_CONSECUTIVE_SKIPS;

use pace::Pace;

use super::{Batch, Capture, Exchange, TrainerConfig};
use crate::optim::{GradientScaler, MixedPrecision, MovingAverage, Optimizer, UnderflowWatch};
use crate::{Error, Module, Parameter, Result};
use gradewise_autograd::{Policy, evaluation};
use gradewise_kernels::{DType, Fusion};
use serde::{Deserialize, Serialize};
use std::{any::Any, sync::Arc};

/// A model with its optimiser, schedule and moving average.
///
/// Profilers that listen to NVTX see its steps as ranges `step`, with `wait for a batch`, `forward`, `backward` and `update` inside; a
/// step that is replayed as a CUDA graph has `replay` instead of the last three.
///
/// A step whose loss or gradient norm is NaN or infinite is skipped: weights, optimiser state and average stay as they
/// are, data and schedule advance, and the step is reported and counted.
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
    fusion: Fusion,
    host_fusion: Fusion,
    /// The [`CapturedStep`] for the batches seen last, on a GPU.
    device_step: Option<Box<dyn Any + Send>>,
    step: u64,
    pace: Pace,
    /// The number of forward passes so far, which determines the dropout masks.
    passes: u64,
    skips: Skips,
}

#[derive(Clone, Copy, Default, Serialize, Deserialize)]
struct Skips {
    total: u64,
    consecutive: u64,
}

impl<M: Module> Trainer<M> {
    /// Starts training at step 0.
    ///
    /// # Errors
    /// [`Error::Argument`] for constants outside their range; [`Error::DuplicateParameter`].
    pub fn new(model: M, config: TrainerConfig) -> Result<Self> {
        config.validate()?;
        let pace = Pace::of(&config);
        let config = config.resolved();
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
            fusion: Fusion::default(),
            host_fusion: Fusion::Off,
            device_step: None,
            underflow: UnderflowWatch::default(),
            step: 0,
            pace,
            passes: 0,
            skips: Skips::default(),
        })
    }

    /// Computes losses in mixed precision: operations follow the policy, and the loss is scaled if there is a scaler. Parameters, gradients
    /// and optimiser state keep their dtype.
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

    /// The current loss scale, if there is a scaler.
    pub fn loss_scale(&self) -> Option<f64> {
        self.scaler.as_ref().map(GradientScaler::scale)
    }

    /// Takes steps together with other processes from now on. Their models must be equal; they stay equal, because every process takes the
    /// same step.
    pub fn set_exchange(&mut self, exchange: Arc<dyn Exchange>) {
        self.exchange = Some(exchange);
    }

    /// The parameters with their names.
    pub fn parameters(&self) -> &[(String, Parameter)] {
        &self.parameters
    }

    /// Names the persistent arrays in the census of live arrays ([`census`](gradewise_kernels::memory::census)): the parameters, and the
    /// optimiser state of each. Call it again after steps, which may have replaced named arrays by new ones.
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

    /// Rewrites an error of a step so that it refers to parameters by name.
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

    /// Says how much of the run is over when the next step begins, from 0 to 1, for a run that may end before its last step, such as one of a
    /// limited time. The schedule goes on as if that share of the steps had been taken, if fewer were; a warm-up of a given number of steps
    /// counts the steps themselves. It is no part of a checkpoint: say it again after resuming.
    ///
    /// ```
    /// use gradewise_kernels::Device;
    /// use gradewise_nn::{layers::Linear, train::{Trainer, TrainerConfig}};
    /// use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng};
    ///
    /// let model = Linear::new(2, 1).init(&Device::Cpu, &mut ChaCha8Rng::seed_from_u64(1))?;
    /// let mut trainer = Trainer::new(model, TrainerConfig { steps: 1_000_000, lr: 4e-3, ..TrainerConfig::default() })?;
    /// trainer.set_progress(0.2);
    /// assert_eq!(trainer.next_lr(), 4e-3);
    /// trainer.set_progress(1.0);
    /// assert!(trainer.next_lr() < 1e-6);
    /// # Ok::<(), gradewise_nn::Error>(())
    /// ```
    pub fn set_progress(&mut self, share: f64) {
        self.pace.set(share);
    }

    /// The learning rate of the next step.
    pub fn next_lr(&self) -> f64 {
        self.pace.lr(&self.config, self.step)
    }

    /// Steps skipped so far.
    pub fn skipped_steps(&self) -> u64 {
        self.skips.total
    }

    /// Steps skipped in a row up to now; 0 after a step that was taken.
    pub fn skipped_in_a_row(&self) -> u64 {
        self.skips.consecutive
    }

    /// Whether steps on a GPU are recorded and replayed; [`Capture::WhenPossible`] unless this says something else.
    pub fn set_capture(&mut self, capture: Capture) {
        (self.capture, self.device_step) = (capture, None);
    }

    /// Whether recorded steps compute several operators by one kernel where they can; [`Fusion::On`] unless this says something else. The
    /// results are bit-identical.
    pub fn set_fusion(&mut self, fusion: Fusion) {
        (self.fusion, self.device_step) = (fusion, None);
    }

    /// Whether steps on the host compute several operators at once, [block by block](gradewise_kernels::Device::fused); [`Fusion::Off`]
    /// unless this says something else: values that wait keep what they are computed from, which takes memory. The results are
    /// bit-identical.
    pub const fn set_host_fusion(&mut self, fusion: Fusion) {
        self.host_fusion = fusion;
    }

    /// Number of kernels, copies and fills of the recorded step for batches of this type; `None` before a step is recorded.
    ///
    /// # Errors
    /// From the device.
    pub fn captured_nodes<B: Batch + Send + 'static>(&self) -> Result<Option<usize>> {
        let step = self.device_step.as_ref().and_then(|step| step.downcast_ref::<CapturedStep<B>>());
        step.map_or(Ok(None), CapturedStep::node_count)
    }

    /// Runs `work` on the weights to evaluate: their moving average if one is kept, else the weights themselves. `work` runs in evaluation
    /// mode ([`evaluation`]), without dropout.
    ///
    /// Meanwhile, the averages replace the weights, hence the exclusive borrow. The weights are restored when `work` ends, also if it
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
}
