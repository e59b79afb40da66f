//! The arguments of `compare`, `stability` and `symmetry`.

use super::Settings;
use clap::Args;
use std::path::PathBuf;

/// Compare two runs, or two checkpoints: where their parameters, numbers and settings differ.
///
/// Of two folders of runs: the relative difference of each parameter, the first step at which each number of metrics.jsonl parts, and the
/// settings that differ. Of files: the parameters. With --tolerance, what is past it, the largest first. Exits with 1 if anything but settings differs by more than the tolerance, so that
/// it tells whether two runs have the same bits.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gradewise compare runs/nbody-1 runs/nbody-2
  gradewise compare a/checkpoint.safetensors b/checkpoint.safetensors --tolerance 1e-6
  gradewise compare runs/cpu runs/gpu --tolerance 1e-3 --json")]
pub struct Compare {
    /// The folder of a run, or a file of tensors.
    #[arg(value_name = "A")]
    pub first: PathBuf,
    /// Another one.
    #[arg(value_name = "B")]
    pub second: PathBuf,
    /// The relative difference that passes.
    #[arg(long, default_value_t = 0.0)]
    pub tolerance: f64,
    /// Parameters that are listed, those that differ most first.
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub limit: usize,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// Scale the inputs of a model from 1e-6 to 1e6 and name the first layer that leaves the tolerance, or what is finite.
///
/// The loss of a task on a batch, forward and backward, with all inputs multiplied by each power of ten, beside the same in double
/// precision. Exits with 1 if a result is not finite, or one of the forward pass is further off than the tolerance.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gradewise stability nbody
  gradewise stability hulls --checkpoint runs/hulls-1/checkpoint.safetensors --precision bf16 --tolerance 0.05
  gradewise stability nbody --from 1e-3 --to 1e3 --json")]
pub struct Stability {
    /// nbody, volumes, hulls, o5, forces or lorentz.
    pub task: String,
    /// The smallest factor of the inputs.
    #[arg(long, default_value_t = 1e-6)]
    pub from: f64,
    /// The largest one.
    #[arg(long, default_value_t = 1e6)]
    pub to: f64,
    /// The relative error of a result that passes.
    #[arg(long, default_value_t = 0.01)]
    pub tolerance: f64,
    /// Samples of the batch.
    #[arg(long, default_value_t = 8)]
    pub samples: usize,
    /// Weights other than fresh ones.
    #[arg(long, value_name = "FILE")]
    pub checkpoint: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub settings: Settings,
}

/// Check that the predictions of a checkpoint have the symmetry of its task.
///
/// Predictions for moved inputs are compared with what motions make of the predictions: rotations, reflections, translations or boosts, as
/// the task has them; for text, that nothing changes before a change. Exits with 1 if they differ by more than the tolerance.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gradewise symmetry --checkpoint runs/nbody-1/checkpoint.safetensors
  gradewise symmetry --checkpoint c.safetensors --dtype f64 --draws 20
  gradewise symmetry --checkpoint c.safetensors --device cuda --dtype bf16 --json")]
pub struct Symmetry {
    /// The checkpoint.
    #[arg(long, value_name = "FILE")]
    pub checkpoint: PathBuf,
    /// The relative change that passes [default: 1e-9 in f64, 1e-3 in f32, 0.1 in 16 bits]
    #[arg(long)]
    pub tolerance: Option<f64>,
    /// How often motions are drawn.
    #[arg(long, default_value_t = 5)]
    pub draws: u64,
    /// Seed of the motions.
    #[arg(long, default_value_t = 0)]
    pub motions: u64,
    /// train, valid or test.
    #[arg(long, default_value = "test")]
    pub split: String,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub settings: Settings,
}
