//! A model, its loss and its gradients in one precision, recorded operation by operation.

use crate::{
    config::{Precision, Runtime},
    error::Result,
    options::Settings,
    run,
    task::{self, Batch, Task, TaskConfig},
};
use clap::Args;
use gradewise_autograd::{BackwardOptions, Tensor, autocast_with, observe::observe};
use gradewise_kernels::DType;
use gradewise_nn::{Module, data::Split, train::Samples};
use gradewise_verify::precision::Recording;
use std::path::PathBuf;

/// The settings of a precision.
fn runtime(base: &Runtime, precision: DType) -> Runtime {
    let (dtype, precision) = match precision {
        DType::F64 | DType::F32 => (precision, Precision::Full),
        DType::BF16 => (DType::F32, Precision::Bf16),
        DType::F16 => (DType::F32, Precision::F16),
    };
    Runtime { dtype, precision, ..base.clone() }
}

/// The results of a model in one precision.
pub struct Outcome {
    pub loss: f64,
    pub recording: Recording,
    /// Parameters with their gradients.
    pub gradients: Vec<(String, Vec<f64>)>,
}

/// What commands ask for that run the loss of a task on one batch, forward and backward.
#[derive(Clone, Debug, Args)]
pub struct Probe {
    /// The experiment: one that `train --help` lists.
    pub task: String,
    /// Samples of the batch.
    #[arg(long, default_value_t = 8)]
    pub samples: usize,
    /// Weights to use instead of fresh ones.
    #[arg(long, value_name = "FILE")]
    pub checkpoint: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub settings: Settings,
}

impl Probe {
    /// Loads the settings and the data.
    ///
    /// # Errors
    /// Invalid settings; data that cannot be read.
    pub fn experiment<T: Task>(&self) -> Result<Experiment<'_, T>> {
        let config = task::configure::<T>(None, &self.settings)?;
        let data = T::load(&config.data, Split::Train)?;
        Ok(Experiment { probe: self, config, data })
    }
}

/// A model and a batch, to be run in different precisions.
pub struct Experiment<'a, T: Task> {
    probe: &'a Probe,
    pub config: TaskConfig<T>,
    data: T::Data,
}

impl<T: Task> Experiment<'_, T> {
    /// Loss, results and gradients in a precision, for the batch as modified by `change`.
    ///
    /// # Errors
    /// An unsupported precision; from the operators.
    pub fn run(
        &self,
        precision: DType,
        change: impl FnOnce(Batch<T>) -> Result<Batch<T>>,
    ) -> Result<Outcome> {
        let Self { probe, config, data } = self;
        let runtime = runtime(&config.runtime, precision);
        let placement = run::placement(&runtime)?;
        let mixed = run::mixed_precision(&runtime)?;
        let model = task::model_of::<T>(probe.checkpoint.as_deref(), config, data, &placement)?;
        let indices: Vec<usize> = (0..probe.samples.clamp(1, data.len())).collect();
        let batch = change(data.batch(&indices, &placement)?)?;
        let parameters = model.named_parameters();
        let names = parameters.iter().map(|(name, parameter)| (parameter.tensor().id(), name.clone()));
        let pass = || -> gradewise_nn::Result<_> {
            let loss = match &mixed {
                Some(mixed) => autocast_with(&mixed.policy, || T::loss(&model, &batch)),
                None => T::loss(&model, &batch),
            }?;
            // Scales the loss as in training, so that gradients underflow in f16 only where they would in training.
            let scale = mixed.as_ref().and_then(|mixed| mixed.scaler).map_or(1.0, |scaler| scaler.initial);
            let seed = Tensor::full(loss.shape(), scale, loss.dtype(), &loss.device())?;
            let gradients = loss.backward_with(&BackwardOptions::seed(seed))?;
            let mut found = Vec::new();
            for (name, parameter) in &parameters {
                let leaf = parameter.tensor();
                if gradients.contains(&leaf) {
                    let values = gradients.get(&leaf)?.array().to_f64_vec()?;
                    found.push((name.clone(), values.into_iter().map(|value| value / scale).collect()));
                }
            }
            Ok((loss.item()?, found))
        };
        let (result, recording) = observe(Recording::new(names), pass);
        let (loss, gradients) = result?;
        Ok(Outcome { loss, recording, gradients })
    }
}
