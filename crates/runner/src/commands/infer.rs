//! `infer`: predictions of a checkpoint for samples in a file.

use crate::{
    TaskCommand,
    error::{Error, Result},
    options::Settings,
    output,
    run::{self, DumpRequest, Target},
    task::{self, Predicted, Task},
};
use clap::Args;
use gradewise_nn::{
    Ensemble, Prediction,
    checkpoint::{Checkpoint, StoredTensor, TensorFile},
    data::npy,
};
use std::path::{Path, PathBuf};

/// Predict with a checkpoint.
///
/// The input is a file in the format of the task. The output is a safetensors file with the tensor `prediction`, or .npy, by the name's
/// ending. For an ensemble, or several checkpoints: the mean prediction and, as tensor `deviation` or as NAME.deviation.npy, the standard
/// deviation over the models, which estimates the uncertainty.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gradewise infer --checkpoint runs/nbody-1/checkpoint.safetensors --input new.npy --output predicted.npy
  gradewise infer --checkpoint runs/nbody-3/ensemble.safetensors --input new.npy --output predicted.safetensors")]
pub struct Infer {
    /// The checkpoint, or the ensemble that train --seeds wrote; several times for the mean of all.
    #[arg(long, value_name = "FILE", required = true)]
    pub checkpoint: Vec<PathBuf>,
    /// The samples.
    #[arg(long, value_name = "FILE")]
    pub input: PathBuf,
    /// File for the predictions. Earlier predictions are replaced, any other file only with --overwrite.
    #[arg(long, value_name = "FILE")]
    pub output: PathBuf,
    /// Replace whatever files --output and --dump name.
    #[arg(long)]
    pub overwrite: bool,
    /// Write what layers compute for the first samples into dump/LAYER.npy: names such as layers.1.edge.0, separated by commas. Only for
    /// one checkpoint.
    #[arg(long, value_name = "LAYERS")]
    pub dump: Option<String>,
    #[command(flatten)]
    pub settings: Settings,
}

impl TaskCommand for Infer {
    const NAME: &'static str = "infer";
    type Input = Vec<Checkpoint>;

    fn start(&self) -> Result<Option<(String, Vec<Checkpoint>)>> {
        let checkpoints =
            self.checkpoint.iter().map(Checkpoint::read).collect::<gradewise_nn::Result<Vec<_>>>()?;
        let Some(first) = checkpoints.first() else {
            return Err(Error::Usage("--checkpoint FILE is missing".to_owned()));
        };
        Ok(Some((first.metadata.model.clone(), checkpoints)))
    }

    fn run<T: Task>(&self, checkpoints: Vec<Checkpoint>) -> Result<()> {
        let as_npy = match self.output.extension().and_then(|ending| ending.to_str()) {
            Some("npy") => true,
            Some("safetensors") => false,
            _ => {
                let path = self.output.display();
                return Err(Error::Usage(format!(
                    "--output {path}: the name must end in .safetensors or .npy"
                )));
            }
        };
        let models = checkpoints.iter().map(|found| found.metadata.members.len().max(1)).sum::<usize>();
        if self.dump.is_some() && models > 1 {
            return Err(Error::Usage(
                "--dump shows one model; leave out all but one --checkpoint, and take that of a single model"
                    .to_owned(),
            ));
        }
        self.require_free(as_npy, models > 1)?;
        // The settings beside the checkpoint: how its samples are read may depend on them.
        let config = task::settings::<T>(&self.checkpoint[0], &self.settings)?;
        let data = T::read(&self.input, &config)?;
        let inputs = self.inputs();
        let (shape, prediction, dtype) = run::once(&config.runtime, |placement| {
            let mut models = Vec::new();
            for checkpoint in &checkpoints {
                models.extend(task::load_models::<T>(checkpoint, placement)?);
            }
            let mut shape = Vec::new();
            let prediction = Ensemble::new(models)?.predict(|model| -> Result<Vec<f64>> {
                let dump = self.dump.as_deref().map(|layers| DumpRequest {
                    layers,
                    folder: Path::new(""),
                    inputs: &inputs,
                    overwrite: self.overwrite,
                });
                let Predicted { shape: found, values } =
                    run::dumped(dump, model, || T::predict(model, &data, placement))?;
                shape = found;
                Ok(values)
            })?;
            Ok((shape, prediction, placement.dtype))
        })?;
        let Prediction { mean, deviation } = prediction;
        if let Some(bad) = mean.iter().position(|value| !value.is_finite()) {
            return Err(Error::Failed(format!("prediction {bad} is {}; nothing was written", mean[bad])));
        }
        // Again, because the work may have taken long.
        self.require_free(as_npy, models > 1)?;
        if as_npy {
            npy::write(&self.output, &shape, &mean)?;
            if let Some(deviation) = &deviation {
                npy::write(self.deviations(), &shape, deviation)?;
            }
        } else {
            let mut file = TensorFile::new();
            file.insert("prediction", StoredTensor::from_f64(&shape, &mean, dtype)?);
            if let Some(deviation) = deviation {
                file.insert("deviation", StoredTensor::from_f64(&shape, &deviation, dtype)?);
            }
            file.write(&self.output)?;
        }
        output::print(&format!("{}: predictions {shape:?}\n", self.output.display()))
    }
}

impl Infer {
    /// The files that the command reads.
    fn inputs(&self) -> Vec<&Path> {
        std::iter::once(&self.input).chain(&self.checkpoint).map(PathBuf::as_path).collect()
    }

    /// The .npy file of the deviations, beside that of the predictions.
    fn deviations(&self) -> PathBuf {
        self.output.with_extension("deviation.npy")
    }

    /// Refuses to write over anything but earlier predictions, of which a .npy file does not tell whether it is one.
    fn require_free(&self, as_npy: bool, several: bool) -> Result<()> {
        let inputs = self.inputs();
        let is_own = |path: &Path| {
            TensorFile::read(path).is_ok_and(|file| {
                let known = |name: &str| ["prediction", "deviation"].contains(&name);
                file.get("prediction").is_some()
                    && file.metadata.is_empty()
                    && file.iter().all(|(name, _)| known(name))
            })
        };
        Target::new("--output", &self.output, self.overwrite)
            .require_free(&inputs, |path| !as_npy && is_own(path))?;
        match as_npy && several {
            true => {
                Target::new("--output", &self.deviations(), self.overwrite).require_free(&inputs, |_| false)
            }
            false => Ok(()),
        }
    }
}
