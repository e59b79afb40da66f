//! Predictions as C.

use super::Export;
use crate::{
    error::{Error, Result},
    output,
    run::Target,
    task::{self, PredictionSize, Task},
};
use gradewise_autograd::program::record;
use gradewise_core::DType;
use gradewise_emit::{Source, c_source};
use gradewise_kernels::{Array, Device};
use gradewise_nn::{
    Module, Placement,
    checkpoint::{Checkpoint, replace_file},
};
use std::path::Path;

/// The first words of the comment of each file, by which an earlier export is known.
const MARK: &str = "/*\n * Written by gradewise export --to c";

/// Writes the prediction of a checkpoint as a file of C.
pub(super) fn write<T: Task>(arguments: &Export, checkpoint: &Checkpoint, out: &Path) -> Result<()> {
    let path = checkpoint.tensors.path().to_owned();
    let is_earlier = |found: &Path| std::fs::read_to_string(found).is_ok_and(|text| text.starts_with(MARK));
    Target::new("--out", out, arguments.overwrite).require_free(&[&path], is_earlier)?;
    let dtype = arguments.dtype.unwrap_or(DType::F32);
    if !matches!(dtype, DType::F32 | DType::F64) {
        return Err(Error::Usage(format!("--dtype {dtype}: C has f32 and f64")));
    }
    let placement = Placement::new(&Device::Cpu, dtype);
    let model = task::load_model::<T>(checkpoint, &placement)?;
    let config = task::settings_beside::<T>(&path)?;
    let size = PredictionSize { particles: arguments.particles, placement: &placement };
    let Some(prediction) = T::program(&model, &config, size)? else {
        return Err(Error::Usage(format!(
            "--to c: models of `{}` have no prediction of fixed size; a task has one if it implements Task::program",
            T::NAME
        )));
    };
    let names: Vec<(String, Array)> =
        model.unique_parameters()?.into_iter().map(|(name, parameter)| (name, parameter.array())).collect();
    let run = |inputs: &[_]| (prediction.run)(inputs).map_err(gradewise_autograd::Error::other);
    let program = record(&prediction.examples, &names, run)
        .map_err(|error| Error::Usage(format!("--to c: {}: {error}", path.display())))?;
    let text = c_source(
        &program,
        &Source {
            name: &arguments.name.clone().unwrap_or_else(|| T::NAME.replace('-', "_")),
            about: &about::<T>(checkpoint, &model, dtype, &prediction.about),
            inputs: &prediction.inputs,
            outputs: &prediction.outputs,
        },
    )
    .map_err(|error| Error::Usage(format!("--to c: {error}")))?;
    replace_file(out, |file| file.write_all(text.as_bytes()))?;
    let size = text.len().div_ceil(1024);
    output::print(&format!("{}: C99, {size} KiB, {} parameters\n", out.display(), model.parameter_count()))
}

/// What the file says of the model.
fn about<T: Task>(checkpoint: &Checkpoint, model: &T::Model, dtype: DType, own: &[String]) -> Vec<String> {
    let metadata = &checkpoint.metadata;
    let digest = checkpoint.tensors.digest().unwrap_or_default();
    let mut lines = vec![
        format!("Written by gradewise export --to c, version {}.", env!("CARGO_PKG_VERSION")),
        format!("Task {}: {}.", T::NAME, T::ABOUT),
        format!("Model {}, {} parameters, {dtype}.", metadata.model_config, model.parameter_count()),
        format!("Weights of step {}, SHA-256 {digest}.", metadata.step),
        "The text is under MIT OR Apache-2.0, as gradewise is; the weights are whose they were.".to_owned(),
    ];
    lines.extend_from_slice(own);
    lines
}
