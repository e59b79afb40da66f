//! Predictions of the n-body task.

use super::{Infer, extension};
use crate::tasks::NBodyTask;
use gradewise_nn::{
    Ensemble, Prediction,
    checkpoint::{Checkpoint, StoredTensor, TensorFile},
    data::npy::{self, NpyArray},
};
use gradewise_runner::{
    error::{Error, Result},
    output,
    run::{self, Target},
    task::{self, EVALUATION_BATCH},
};
use gradewise_zoo::{data::nbody::NBodyData, train::nbody::predict};
use std::path::{Path, PathBuf};

const CHANNELS: usize = 7;

/// Predicts the positions of systems.
///
/// # Errors
/// Settings, files or systems that cannot be used; from writing.
pub fn run(arguments: &Infer) -> Result<()> {
    let config = task::configure::<NBodyTask>(None, &arguments.settings)?;
    // Checked before the work is done.
    let as_npy = match extension(&arguments.output).as_deref() {
        Some("npy") => true,
        Some("safetensors") => false,
        _ => {
            let path = arguments.output.display();
            return Err(Error::Usage(format!("--output {path}: the name must end in .safetensors or .npy")));
        }
    };
    require_free(arguments, as_npy)?;
    let inputs = arguments.inputs();
    let dump = arguments.dump_request(&inputs);
    let (data, prediction, dtype) = run::once(&config.runtime, |placement| {
        let data = read(&arguments.input)?;
        let mut models = Vec::new();
        for path in &arguments.checkpoint {
            models.extend(task::load_models::<NBodyTask>(&Checkpoint::read(path)?, placement)?);
        }
        arguments.require_one_dumped(models.len())?;
        let predicted = |model: &_| {
            let work = || predict(model, &data, EVALUATION_BATCH);
            run::dumped(dump, model, work)
        };
        let prediction = Ensemble::new(models)?.predict(predicted)?;
        Ok((data, prediction, placement.dtype))
    })?;
    let Prediction { mean: predictions, deviation: deviations } = prediction;
    if let Some(bad) = predictions.iter().position(|value| !value.is_finite()) {
        return Err(Error::Failed(format!("prediction {bad} is {}; nothing was written", predictions[bad])));
    }
    let shape = [data.len(), 3, data.particles()];
    // Again, because the work may have taken long.
    require_free(arguments, as_npy)?;
    if as_npy {
        npy::write(&arguments.output, &shape, &predictions)?;
        if let Some(deviations) = &deviations {
            npy::write(deviation_file(&arguments.output), &shape, deviations)?;
        }
    } else {
        let mut file = TensorFile::new();
        file.insert("prediction", StoredTensor::from_f64(&shape, &predictions, dtype)?);
        if let Some(deviations) = deviations {
            file.insert("deviation", StoredTensor::from_f64(&shape, &deviations, dtype)?);
        }
        file.write(&arguments.output)?;
    }
    output::print(&format!("{}: predicted positions {shape:?}\n", arguments.output.display()))
}

/// Refuses to write over anything but earlier predictions.
fn require_free(arguments: &Infer, as_npy: bool) -> Result<()> {
    let Infer { output, overwrite, .. } = arguments;
    let inputs = arguments.inputs();
    let is_npy = |path: &Path| NpyArray::read(path).is_ok_and(|array| matches!(array.shape[..], [_, 3, _]));
    let is_tensors = |path: &Path| {
        TensorFile::read(path).is_ok_and(|file| {
            let known = |name: &str| ["prediction", "deviation"].contains(&name);
            file.get("prediction").is_some()
                && file.metadata.is_empty()
                && file.iter().all(|(name, _)| known(name))
        })
    };
    if !as_npy {
        return Target::new("--output", output, *overwrite).require_free(&inputs, is_tensors);
    }
    Target::new("--output", output, *overwrite).require_free(&inputs, is_npy)?;
    if arguments.has_deviations() {
        Target::new("--output", &deviation_file(output), *overwrite).require_free(&inputs, is_npy)?;
    }
    Ok(())
}

/// The .npy file of the deviations, beside that of the predictions.
fn deviation_file(output: &Path) -> PathBuf {
    output.with_extension("deviation.npy")
}

/// Systems from `loc`, `vel` `[systems, 3, particles]` and `charges` `[systems, particles]` in a safetensors file, or from
/// one array `[systems, 7, particles]` in a .npy file.
fn read(path: &Path) -> Result<NBodyData> {
    let (particles, loc, vel, charges) =
        if extension(path).as_deref() == Some("npy") { read_npy(path)? } else { read_tensors(path)? };
    let target = loc.clone(); // Not used by a prediction.
    Ok(NBodyData::new(particles, loc, vel, charges, target)?)
}

type Systems = (usize, Vec<f64>, Vec<f64>, Vec<f64>);

fn read_npy(path: &Path) -> Result<Systems> {
    let array = NpyArray::read(path)?;
    let layout = "systems, then x y z vx vy vz charge, then particles";
    array.expect_shape(path, &[None, Some(CHANNELS), None], layout)?;
    let particles = array.shape[2];
    let rows = |from: usize, to: usize| -> Vec<f64> {
        let systems = array.values.chunks_exact((CHANNELS * particles).max(1));
        systems.flat_map(|system| &system[from * particles..to * particles]).copied().collect()
    };
    Ok((particles, rows(0, 3), rows(3, 6), rows(6, 7)))
}

fn read_tensors(path: &Path) -> Result<Systems> {
    let file = TensorFile::read(path)?;
    let refuse = |name: &str, reason: String| {
        Error::from(gradewise_nn::Error::Tensor { path: path.to_owned(), name: name.to_owned(), reason })
    };
    let tensor = |name: &str| -> Result<(Vec<usize>, Vec<f64>)> {
        let tensor = file.get(name).ok_or_else(|| {
            let names: Vec<&str> = file.iter().map(|(name, _)| name).collect();
            refuse(
                name,
                format!("it is missing; loc, vel and charges are needed, the file has: {}", names.join(", ")),
            )
        })?;
        let values = tensor.to_f64_vec().ok_or_else(|| {
            refuse(name, format!("its dtype is {}, expected real numbers", tensor.dtype_name()))
        })?;
        Ok((tensor.shape().to_vec(), values))
    };
    let ((shape, loc), (vel_shape, vel), (charges_shape, charges)) =
        (tensor("loc")?, tensor("vel")?, tensor("charges")?);
    let &[systems, 3, particles] = shape.as_slice() else {
        return Err(refuse("loc", format!("its shape is {shape:?}, expected [systems, 3, particles]")));
    };
    if vel_shape != shape {
        return Err(refuse("vel", format!("its shape is {vel_shape:?}, expected that of loc, {shape:?}")));
    }
    if charges_shape != [systems, particles] && charges_shape != [systems, particles, 1] {
        return Err(refuse(
            "charges",
            format!("its shape is {charges_shape:?}, expected [{systems}, {particles}]"),
        ));
    }
    Ok((particles, loc, vel, charges))
}
