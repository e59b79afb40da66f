//! Predictions of the n-body task.

use super::{Infer, extension};
use crate::tasks::NBodyTask;
use gradewise_nn::{
    Ensemble,
    checkpoint::{Checkpoint, TensorFile},
};
use gradewise_runner::{
    error::{Error, Result},
    output,
    run::{self, PredictionFile},
    task::{self, EVALUATION_BATCH},
};
use gradewise_zoo::{
    data::{nbody::NBodyData, npy::NpyArray},
    train::nbody::predict,
};
use std::path::Path;

const CHANNELS: usize = 7;

/// Predicts the positions of systems.
///
/// # Errors
/// Settings, files or systems that cannot be used; from writing.
pub fn run(arguments: &Infer) -> Result<()> {
    let config = task::configure::<NBodyTask>(None, &arguments.settings)?;
    let inputs = arguments.inputs();
    // Checked before the work is done.
    let output =
        PredictionFile::new(&arguments.output, arguments.overwrite, &inputs, || arguments.has_deviations())?;
    output.require_free(is_npy)?;
    let (data, prediction, dtype) = run::once(&config.runtime, |placement| {
        let data = read(&arguments.input)?;
        let mut models = Vec::new();
        for path in &arguments.checkpoint {
            models.extend(task::load_models::<NBodyTask>(&Checkpoint::read(path)?, placement)?);
        }
        let dump = arguments.dump_request(models.len(), &inputs)?;
        let predicted = |model: &_| {
            let work = || predict(model, &data, EVALUATION_BATCH);
            run::dumped(dump, model, work)
        };
        let prediction = Ensemble::new(models)?.predict(predicted)?;
        Ok((data, prediction, placement.dtype))
    })?;
    let shape = [data.len(), 3, data.particles()];
    output.write(&shape, &prediction, dtype, is_npy)?;
    output::print(&format!("{}: predicted positions {shape:?}\n", arguments.output.display()))
}

/// Whether a file is an array with the shape of predictions.
fn is_npy(path: &Path) -> bool {
    NpyArray::read(path).is_ok_and(|array| matches!(array.shape[..], [_, 3, _]))
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
