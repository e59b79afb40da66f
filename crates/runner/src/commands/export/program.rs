//! Predictions as C and as ONNX.

use super::{Destination, Export};
use crate::{
    error::{Error, Result},
    output,
    run::Target,
    task::{self, PredictionSize, Task},
};
use gradewise_autograd::program::record;
use gradewise_core::DType;
use gradewise_emit::{Source, c_source, is_onnx_model, onnx_model};
use gradewise_kernels::{Array, Device};
use gradewise_nn::{
    Module, Placement,
    checkpoint::{Checkpoint, replace_file},
    choice::Choice,
};
use std::path::Path;

/// The first words of the comment of each file of C, by which an earlier export is known.
const MARK: &str = "/*\n * Written by gradewise export --to c";

/// Writes the prediction of a checkpoint as a file of C, or as a model of ONNX.
pub(super) fn write<T: Task>(
    arguments: &Export,
    checkpoint: &Checkpoint,
    to: Destination,
    out: &Path,
) -> Result<()> {
    let path = checkpoint.tensors.path().to_owned();
    let (language, is_onnx) = (to.name(), to == Destination::Onnx);
    let is_earlier = |found: &Path| {
        std::fs::read(found).is_ok_and(|bytes| match is_onnx {
            true => is_onnx_model(&bytes),
            false => bytes.starts_with(MARK.as_bytes()),
        })
    };
    Target::new("--out", out, arguments.overwrite).require_free(&[&path], is_earlier)?;
    let dtype = arguments.dtype.unwrap_or(DType::F32);
    if !matches!(dtype, DType::F32 | DType::F64) {
        return Err(Error::Usage(format!("--dtype {dtype}: --to {language} has f32 and f64")));
    }
    let placement = Placement::new(&Device::Cpu, dtype);
    let model = task::load_model::<T>(checkpoint, &placement)?;
    let config = task::settings_beside::<T>(&path)?;
    let size = PredictionSize { particles: arguments.particles, placement: &placement };
    let Some(prediction) = T::program(&model, &config, size)? else {
        return Err(Error::Usage(format!(
            "--to {language}: models of `{}` have no prediction of fixed size; a task has one if it implements Task::program",
            T::NAME
        )));
    };
    let names: Vec<(String, Array)> =
        model.unique_parameters()?.into_iter().map(|(name, parameter)| (name, parameter.array())).collect();
    let run = |inputs: &[_]| (prediction.run)(inputs).map_err(gradewise_autograd::Error::other);
    let program = record(&prediction.examples, &names, run)
        .map_err(|error| Error::Usage(format!("--to {language}: {}: {error}", path.display())))?;
    let source = Source {
        name: &arguments.name.clone().unwrap_or_else(|| T::NAME.replace('-', "_")),
        about: &about::<T>(checkpoint, &model, dtype, language, &prediction.about),
        inputs: &prediction.inputs,
        outputs: &prediction.outputs,
    };
    let (kind, bytes) = match is_onnx {
        true => ("ONNX, opset 18", onnx_model(&program, &source)),
        false => ("C99", c_source(&program, &source).map(String::into_bytes)),
    };
    let bytes = bytes.map_err(|error| Error::Usage(format!("--to {language}: {error}")))?;
    replace_file(out, |file| file.write_all(&bytes))?;
    let size = bytes.len().div_ceil(1024);
    output::print(&format!("{}: {kind}, {size} KiB, {} parameters\n", out.display(), model.parameter_count()))
}

/// What the file says of the model.
fn about<T: Task>(
    checkpoint: &Checkpoint,
    model: &T::Model,
    dtype: DType,
    language: &str,
    own: &[String],
) -> Vec<String> {
    let metadata = &checkpoint.metadata;
    let digest = checkpoint.tensors.digest().unwrap_or_default();
    let mut lines = vec![
        format!("Written by gradewise export --to {language}, version {}.", env!("CARGO_PKG_VERSION")),
        format!("Task {}: {}.", T::NAME, T::ABOUT),
        format!("Model {}, {} parameters, {dtype}.", metadata.model_config, model.parameter_count()),
        format!("Weights of step {}, SHA-256 {digest}.", metadata.step),
        "The file is under MIT OR Apache-2.0, as gradewise is; the weights are whose they were.".to_owned(),
    ];
    lines.extend_from_slice(own);
    lines
}
