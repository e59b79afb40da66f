//! `compare-precision`: a model in two precisions, and the first layers that diverge.

use crate::{
    cli::ComparePrecision,
    config::Runtime,
    error::{Error, Result},
    output, run,
    tasks::{self, Batch, Task, TaskConfig, with_task},
};
use gradewise::verify::{
    precision::{Divergence, Recording, first_beyond},
    relative_error,
};
use gradewise_autograd::{
    BackwardOptions, Tensor, autocast_with,
    observe::{Pass, observe},
};
use gradewise_nn::{Module, checkpoint::Checkpoint, data::Split, train::Samples};
use serde_json::json;
use std::path::Path;

pub fn run(arguments: &ComparePrecision) -> Result<()> {
    with_task!(&arguments.task, T => compare::<T>(arguments))
}

/// The settings of a precision.
fn runtime(base: &Runtime, name: &str) -> Result<Runtime> {
    let mut runtime = base.clone();
    let (dtype, precision) = match name {
        "f64" | "f32" => (name, "full"),
        "bf16" | "f16" => ("f32", name),
        other => {
            return Err(Error::Usage(format!(
                "--precisions: there is no precision `{other}`; there are f64, f32, bf16 and f16"
            )));
        }
    };
    (runtime.dtype, runtime.precision) = (dtype.to_owned(), precision.to_owned());
    Ok(runtime)
}

/// What a model gave in one precision.
pub struct Outcome {
    pub loss: f64,
    pub recording: Recording,
    /// Parameters with their gradients.
    pub gradients: Vec<(String, Vec<f64>)>,
}

/// A model and a batch, to be run in one precision or another.
pub struct Experiment<'a, T: Task> {
    pub checkpoint: Option<&'a Path>,
    pub samples: usize,
    pub config: &'a TaskConfig<T>,
    pub data: &'a T::Data,
}

impl<T: Task> Experiment<'_, T> {
    /// Loss, results and gradients in a precision, of the batch as `change` leaves it.
    ///
    /// # Errors
    /// A precision that there is not; from the operators.
    pub fn run(&self, name: &str, change: impl FnOnce(Batch<T>) -> Result<Batch<T>>) -> Result<Outcome> {
        let Self { checkpoint, samples, config, data } = *self;
        let runtime = runtime(&config.runtime, name)?;
        let placement = run::placement(&runtime)?;
        let mixed = run::mixed_precision(&runtime)?;
        let model = match checkpoint {
            Some(path) => tasks::load_model::<T>(&Checkpoint::read(path)?, &placement)?,
            None => tasks::new_model::<T>(&config.model, &placement, config.train.seed)?,
        };
        let indices: Vec<usize> = (0..samples.clamp(1, data.len())).collect();
        let batch = change(data.batch(&indices, &placement)?)?;
        let parameters = model.named_parameters();
        let names = parameters.iter().map(|(name, parameter)| (parameter.tensor().id(), name.clone()));
        let pass = || -> gradewise_nn::Result<_> {
            let loss = match &mixed {
                Some(mixed) => autocast_with(&mixed.policy, || T::loss(&model, &batch)),
                None => T::loss(&model, &batch),
            }?;
            // As in training, so that what f16 cannot hold is seen where a scaler would keep it.
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

fn compare<T: Task>(arguments: &ComparePrecision) -> Result<()> {
    let Some((first, second)) = arguments.precisions.split_once(',') else {
        return Err(Error::Usage("--precisions takes two, such as f32,bf16".to_owned()));
    };
    let (first, second) = (first.trim(), second.trim());
    let config = tasks::configure::<T>(None, &arguments.settings)?;
    let data = T::load(&config.data, Split::Train)?;
    let checkpoint = arguments.checkpoint.as_deref();
    let experiment = Experiment::<T> { checkpoint, samples: arguments.samples, config: &config, data: &data };
    let (right, other) = (experiment.run(first, Ok)?, experiment.run(second, Ok)?);
    let divergences = other.recording.compare(&right.recording);
    let forward: Vec<&Divergence> = divergences.iter().filter(|d| d.pass == Pass::Forward).collect();
    let diverged = first_beyond(&divergences, Pass::Forward, arguments.threshold);
    let expected: std::collections::BTreeMap<&str, &Vec<f64>> =
        right.gradients.iter().map(|(name, values)| (name.as_str(), values)).collect();
    let mut gradients: Vec<(&str, f64, f64)> = Vec::new();
    for (name, values) in &other.gradients {
        let Some(expected) = expected.get(name.as_str()) else { continue };
        let zero =
            |values: &[f64]| values.iter().filter(|&&v| v == 0.0).count() as f64 / values.len().max(1) as f64;
        // Zeros that the right precision does not have.
        gradients.push((name, relative_error(values, expected), (zero(values) - zero(expected)).max(0.0)));
    }
    if arguments.json {
        let row = |d: &&Divergence| json!({"operation": d.operation, "layer": d.layer(), "parameters": d.parameters, "dtype": d.dtype.to_string(), "error": d.error});
        let record = json!({
            "precisions": [first, second],
            "loss": [right.loss, other.loss],
            "first_diverged": diverged.as_ref().map(row),
            "operations": forward.iter().map(row).collect::<Vec<_>>(),
            "gradients": gradients.iter().map(|(name, error, zeros)| json!({"parameter": name, "error": error, "lost": zeros})).collect::<Vec<_>>(),
        });
        return output::print(&format!("{record}\n"));
    }
    let mut text = format!("{second} against {first}: loss {} and {}\n\n", other.loss, right.loss);
    text += &format!("{:<18}{:<8}{:>9}  layer\n", "operation", "dtype", "error");
    for d in &forward {
        let beyond = d.error.is_nan() || d.error > arguments.threshold;
        if arguments.all || beyond || !d.parameters.is_empty() {
            let mark = if beyond { " *" } else { "" };
            let layer = d.layer().unwrap_or("");
            text +=
                &format!("{:<18}{:<8}{:>9.1e}  {layer}{mark}\n", d.operation, d.dtype.to_string(), d.error);
        }
    }
    text += &format!("\n{:<40}{:>9}  lost to zero\n", "gradient of", "error");
    for (name, error, zeros) in &gradients {
        text += &format!("{name:<40}{error:>9.1e}  {:.1}%\n", 100.0 * zeros);
    }
    text += &match diverged {
        Some(d) => format!(
            "\nthe first to diverge by more than {}: `{}`{}, error {:.1e}\n",
            arguments.threshold,
            d.operation,
            d.layer().map_or_else(String::new, |layer| format!(" of layer {layer}")),
            d.error
        ),
        None => format!("\nno result diverges by more than {}\n", arguments.threshold),
    };
    output::print(&text)
}
