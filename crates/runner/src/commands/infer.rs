//! `infer`: predictions of a checkpoint for samples in a file.

use crate::{
    TaskCommand,
    error::{Error, Result},
    options::Settings,
    output,
    run::{self, DumpRequest, PredictionFile},
    task::{self, Predicted, Task},
};
use clap::Args;
use gradewise_nn::{Ensemble, checkpoint::Checkpoint};
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
        let models = checkpoints.iter().map(|found| found.metadata.members.len().max(1)).sum::<usize>();
        // The files that the command reads.
        let inputs: Vec<&Path> =
            std::iter::once(&self.input).chain(&self.checkpoint).map(PathBuf::as_path).collect();
        let output = PredictionFile::new(&self.output, self.overwrite, &inputs, || models > 1)?;
        let dump = DumpRequest::of_one(self.dump.as_deref(), models, &inputs, self.overwrite)?;
        // The shape of a .npy file does not tell whether it holds predictions of a task.
        let is_array = |_: &Path| false;
        output.require_free(is_array)?;
        // The settings beside the checkpoint: how its samples are read may depend on them.
        let config = task::settings::<T>(&self.checkpoint[0], &self.settings)?;
        let data = T::read(&self.input, &config)?;
        let (shape, prediction, dtype) = run::once(&config.runtime, |placement| {
            let mut models = Vec::new();
            for checkpoint in &checkpoints {
                models.extend(task::load_models::<T>(checkpoint, placement)?);
            }
            let mut shape = Vec::new();
            let prediction = Ensemble::new(models)?.predict(|model| -> Result<Vec<f64>> {
                let work = || T::predict(model, &data, placement);
                let Predicted { shape: found, values } = run::dumped(dump, model, work)?;
                shape = found;
                Ok(values)
            })?;
            Ok((shape, prediction, placement.dtype))
        })?;
        output.write(&shape, &prediction, dtype, is_array)?;
        output::print(&format!("{}: predictions {shape:?}\n", self.output.display()))
    }
}
