//! `infer`: predictions of a checkpoint for systems in a file.

mod nbody;
mod potential;

use crate::tasks::{NBodyTask, PotentialTask};
use clap::Args;
use gradewise_nn::checkpoint::Checkpoint;
use gradewise_runner::{
    Command, Program,
    error::{Error, Result},
    options::Settings,
    run::DumpRequest,
    task::Task,
};
use std::path::{Path, PathBuf};

/// Predict with a checkpoint.
///
/// Of `nbody`: the input is a safetensors file with `loc` and `vel` [systems, 3, particles] and `charges` [systems, particles]; or a .npy file
/// [systems, 7, particles] with the rows x y z vx vy vz charge. Output: predicted positions [systems, 3, particles], as tensor `prediction` or
/// .npy by the name's ending. Of `potential`: frames as extended XYZ or .npz; output: extended XYZ with energies (eV), forces (eV/Å) and, of
/// crystals, stresses (eV/Å³). For an ensemble, or several checkpoints: the mean prediction and, as tensor `deviation`, as NAME.deviation.npy,
/// or as energy_deviation and forces_deviation, the standard deviation over the models, which estimates the uncertainty.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gradewise infer --checkpoint runs/nbody-1/checkpoint.safetensors --input systems.npy --output predicted.npy
  gradewise infer --checkpoint runs/nbody-3/ensemble.safetensors --input systems.npy --output predicted.safetensors
  gradewise infer --checkpoint runs/potential-1/checkpoint.safetensors --input new.xyz --output predicted.xyz")]
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
        let first =
            self.checkpoint.first().ok_or_else(|| Error::Usage("--checkpoint is missing".to_owned()))?;
        match Checkpoint::read(first)?.metadata.model.as_str() {
            NBodyTask::NAME => nbody::run(self),
            PotentialTask::NAME => potential::run(self),
            other => Err(Error::Usage(format!(
                "{} is a checkpoint of `{other}`; infer takes those of {} and {}, and eval measures any",
                first.display(),
                NBodyTask::NAME,
                PotentialTask::NAME
            ))),
        }
    }
}

impl Infer {
    /// The files that the command reads.
    fn inputs(&self) -> Vec<&Path> {
        std::iter::once(&self.input).chain(&self.checkpoint).map(PathBuf::as_path).collect()
    }

    /// The request of --dump, which is of one model.
    fn dump_request<'a>(&'a self, models: usize, inputs: &'a [&'a Path]) -> Result<Option<DumpRequest<'a>>> {
        DumpRequest::of_one(self.dump.as_deref(), models, inputs, self.overwrite)
    }
}

fn extension(path: &Path) -> Option<String> {
    Some(path.extension()?.to_str()?.to_ascii_lowercase())
}
