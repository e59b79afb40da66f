//! `infer`: predictions of a checkpoint for systems in a file.

use crate::tasks::NBodyTask;
use clap::Args;
use gradewise_nn::{
    Ensemble, Prediction,
    checkpoint::{Checkpoint, StoredTensor, TensorFile},
    data::npy::{self, NpyArray},
};
use gradewise_runner::{
    Command, Program,
    error::{Error, Result},
    options::Settings,
    output,
    run::{self, DumpRequest, Target},
    task::{self, EVALUATION_BATCH},
};
use gradewise_zoo::{data::nbody::NBodyData, train::nbody::predict};
use std::path::{Path, PathBuf};

const CHANNELS: usize = 7;

/// Predict with a checkpoint.
///
/// Input: a safetensors file with `loc` and `vel` [systems, 3, particles] and `charges` [systems, particles]; or a .npy file [systems, 7,
/// particles] with the rows x y z vx vy vz charge. Output: predicted positions [systems, 3, particles], as tensor `prediction` or .npy by
/// the name's ending. For an ensemble, or several checkpoints: the mean prediction and, as tensor `deviation` or as NAME.deviation.npy, the
/// standard deviation over the models, which estimates the uncertainty.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gradewise infer --checkpoint runs/nbody-1/checkpoint.safetensors --input systems.npy --output predicted.npy
  gradewise infer --checkpoint runs/nbody-3/ensemble.safetensors --input systems.npy --output predicted.safetensors")]
#[command(display_order = 1)] // In help, beside `eval`.
pub struct Infer {
    /// The checkpoint, or the ensemble that train --seeds wrote; several times for the mean of all.
    #[arg(long, value_name = "FILE", required = true)]
    pub checkpoint: Vec<PathBuf>,
    /// The systems.
    #[arg(long, value_name = "FILE")]
    pub input: PathBuf,
    /// File for the predictions. Earlier predictions are replaced, any other file only with --overwrite.
    #[arg(long, value_name = "FILE")]
    pub output: PathBuf,
    /// Replace whatever files --output and --dump name.
    #[arg(long)]
    pub overwrite: bool,
    /// Write what layers compute for the first systems into dump/LAYER.npy: names such as layers.1.edge.0, separated by commas. Only for
    /// one checkpoint.
    #[arg(long, value_name = "LAYERS")]
    pub dump: Option<String>,
    #[command(flatten)]
    pub settings: Settings,
}

impl Infer {
    /// Whether there are several models; a checkpoint that cannot be read is reported later.
    fn has_deviations(&self) -> bool {
        let models =
            |path: &PathBuf| Checkpoint::read(path).map_or(0, |found| found.metadata.members.len().max(1));
        self.checkpoint.iter().map(models).sum::<usize>() > 1
    }
}

impl Command for Infer {
    const NAME: &'static str = "infer";

    fn run(&self, _: &Program) -> Result<()> {
        run(self)
    }
}

fn run(arguments: &Infer) -> Result<()> {
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
    let inputs = inputs(arguments);
    let dump = arguments.dump.as_deref().map(|layers| DumpRequest {
        layers,
        folder: Path::new(""),
        inputs: &inputs,
        overwrite: arguments.overwrite,
    });
    let (data, prediction, dtype) = run::once(&config.runtime, |placement| {
        let data = read(&arguments.input)?;
        let mut models = Vec::new();
        for path in &arguments.checkpoint {
            models.extend(task::load_models::<NBodyTask>(&Checkpoint::read(path)?, placement)?);
        }
        if arguments.dump.is_some() && models.len() > 1 {
            return Err(Error::Usage(
                "--dump shows one model; leave out all but one --checkpoint, and take that of a single model"
                    .to_owned(),
            ));
        }
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

/// The files that the command reads.
fn inputs(arguments: &Infer) -> Vec<&Path> {
    std::iter::once(&arguments.input).chain(&arguments.checkpoint).map(PathBuf::as_path).collect()
}

/// Refuses to write over anything but earlier predictions.
fn require_free(arguments: &Infer, as_npy: bool) -> Result<()> {
    let Infer { output, overwrite, .. } = arguments;
    let inputs = inputs(arguments);
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

fn extension(path: &Path) -> Option<String> {
    Some(path.extension()?.to_str()?.to_ascii_lowercase())
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
