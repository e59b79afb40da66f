//! The arguments of what uses checkpoints and runs: `eval`, `infer`, `sample`, `inspect`, `export`.

use super::{RuntimeOptions, Settings};
use clap::Args;
use std::path::PathBuf;

/// Measure the error of a checkpoint.
///
/// Of several: the error of the mean of what they predict. The data are those of the config.toml beside the (first) checkpoint, if there
/// is one.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gradewise eval --checkpoint runs/nbody-1/checkpoint.safetensors
  gradewise eval --checkpoint c.safetensors --split valid data.source=path/to/npy
  gradewise eval --checkpoint c.safetensors --dump layers.1.edge.0    what that layer computes, as dump/layers.1.edge.0.npy
  gradewise eval --checkpoint runs/nbody-2/checkpoint.safetensors --rollout motion --rollout-steps 30
  gradewise eval --checkpoint seed-0/best.safetensors --checkpoint seed-1/best.safetensors")]
pub struct Eval {
    /// The checkpoint; several times for an ensemble.
    #[arg(long, value_name = "FILE", required = true)]
    pub checkpoint: Vec<PathBuf>,
    /// train, valid or test.
    #[arg(long, default_value = "test")]
    pub split: String,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
    /// Write what layers compute for the first samples into dump/LAYER.npy: names such as layers.1.edge.0, separated by commas. Of one
    /// checkpoint.
    #[arg(long, value_name = "LAYERS", conflicts_with = "rollout")]
    pub dump: Option<String>,
    /// Follow the test systems of an n-body model that predicts velocities (model.velocities=true) on its own predictions, beside the
    /// simulator, and write an animation, the error over time, and a table into this folder.
    #[arg(long, value_name = "DIR", conflicts_with = "json")]
    pub rollout: Option<PathBuf>,
    /// Steps of the model, each of 10 frames or one unit of time.
    #[arg(long, value_name = "N", default_value_t = 20, requires = "rollout")]
    pub rollout_steps: usize,
    #[command(flatten)]
    pub settings: Settings,
}

/// Predict with a checkpoint.
///
/// Input: a safetensors file with `loc` and `vel` [systems, 3, particles] and `charges` [systems, particles]; or a .npy
/// file [systems, 7, particles] with the rows x y z vx vy vz charge. Output: predicted positions
/// [systems, 3, particles], as tensor `prediction` or .npy by the name's ending. Of several checkpoints: their mean and, as tensor
/// `deviation`, the standard deviation among them, which tells where they know little.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gradewise infer --checkpoint runs/nbody-1/checkpoint.safetensors --input systems.npy --output predicted.npy")]
pub struct Infer {
    /// The checkpoint; several times for an ensemble.
    #[arg(long, value_name = "FILE", required = true)]
    pub checkpoint: Vec<PathBuf>,
    /// The systems.
    #[arg(long, value_name = "FILE")]
    pub input: PathBuf,
    /// Where the predictions go.
    #[arg(long, value_name = "FILE")]
    pub output: PathBuf,
    /// Write what layers compute for the first systems into dump/LAYER.npy: names such as layers.1.edge.0, separated by commas. Of one
    /// checkpoint.
    #[arg(long, value_name = "LAYERS")]
    pub dump: Option<String>,
    #[command(flatten)]
    pub settings: Settings,
}

/// Show what a file holds: names, shapes and statistics of its tensors.
///
/// Reads checkpoints, any safetensors file, and NumPy .npy files.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gradewise inspect runs/nbody-1/checkpoint.safetensors
  gradewise inspect data/loc_train_charged5_initvel1small.npy
  gradewise inspect weights.safetensors --json")]
pub struct Inspect {
    /// The file.
    pub file: PathBuf,
    /// Print one JSON object instead of a table.
    #[arg(long)]
    pub json: bool,
}

/// Write the record of a run for TensorBoard, and as one page with its figures.
///
/// Into the run's folder: events.out.tfevents.… with every number of metrics.jsonl, and report.html, which needs nothing beside
/// itself; both unless one is asked for. A second export replaces the first. A run that goes on can be exported at any time.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gradewise export runs/nbody-1
  gradewise export runs/nbody-1 --tensorboard && tensorboard --logdir runs")]
pub struct Export {
    /// The folder of the run.
    #[arg(value_name = "RUN")]
    pub run: PathBuf,
    /// Write events for TensorBoard.
    #[arg(long)]
    pub tensorboard: bool,
    /// Write the page.
    #[arg(long)]
    pub html: bool,
}

/// Write text with a trained transformer.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gradewise sample --checkpoint runs/gpt-1/checkpoint.safetensors
  gradewise sample --checkpoint c.safetensors --prompt \"The product of\" --bytes 1000 --temperature 0.5
  gradewise sample --checkpoint c.safetensors --temperature 0          the likeliest byte each time")]
pub struct Sample {
    /// The checkpoint.
    #[arg(long, value_name = "FILE")]
    pub checkpoint: PathBuf,
    /// What the text begins with.
    #[arg(long, default_value = "\n")]
    pub prompt: String,
    /// How many bytes to write.
    #[arg(long, default_value_t = 500)]
    pub bytes: usize,
    /// Below 1 prefers what is likely; 0 takes the likeliest byte each time.
    #[arg(long, default_value_t = 0.8)]
    pub temperature: f64,
    /// Choose among so many of the likeliest bytes; 0 for all.
    #[arg(long, default_value_t = 40)]
    pub top_k: usize,
    /// Seed of the choices.
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    #[command(flatten)]
    pub runtime: RuntimeOptions,
}
