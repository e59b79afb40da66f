//! The arguments of checks of operators: `gradcheck`, `verify`, `bisect`, `compare-precision`.

use super::{RuntimeOptions, Settings};
use clap::Args;
use std::path::PathBuf;

/// Check gradients against central differences, in double precision.
///
/// Every operator, element by element; also second derivatives with --second. Exits with 1 if one disagrees.
/// Norms of algebras with an indefinite metric are nearly singular where a square crosses zero: inputs drawn there
/// can fail without a fault in the operator; try another seed.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gradewise gradcheck
  gradewise gradcheck --signature 3,0,1 --second
  gradewise gradcheck --only sgp --samples 500")]
pub struct Gradcheck {
    /// Signature of the algebra: p,q,r.
    #[arg(long, default_value = "3,0,0", value_name = "P,Q,R")]
    pub signature: String,
    /// Only operators whose name contains this.
    #[arg(long, value_name = "NAME")]
    pub only: Option<String>,
    /// Second derivatives too.
    #[arg(long)]
    pub second: bool,
    /// Elements checked per input.
    #[arg(long, default_value_t = 64)]
    pub samples: usize,
    /// cpu, cuda or cuda:N.
    #[arg(long, default_value = "cpu")]
    pub device: String,
    /// Seed of the inputs.
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
}

/// Check operators and their gradients against golden vectors.
///
/// Runs every .safetensors file under a folder and compares the output and every gradient. Files that cannot be run
/// count as failures. Exits with 1 if anything is past its tolerance.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gradewise verify golden/clifford
  gradewise verify golden/clifford --dtype f64")]
pub struct Verify {
    /// The folder.
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
    #[command(flatten)]
    pub runtime: RuntimeOptions,
}

/// Find the operation that is wrong: the first whose result or gradient leaves the tolerance.
///
/// Runs the loss of a task on a batch, forward and backward. Every operation is compared with the CPU in double precision, on the same
/// inputs; the first that is too far off is named, and written with its inputs to a file that --replay runs again. Exits with 1 if
/// one is found, and also if all agree on a loss or on gradients that are not finite.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gradewise bisect nbody --device cuda
  gradewise bisect gpt --device cuda --dtype bf16 --checkpoint runs/gpt-1/checkpoint.safetensors
  gradewise bisect nbody --device cuda --precision bf16 train.batch_size=4
  gradewise bisect --replay bisect.safetensors --device cuda")]
pub struct Bisect {
    /// nbody, volumes, hulls, o5, forces, lorentz or gpt.
    #[arg(required_unless_present = "replay")]
    pub task: Option<String>,
    /// Run the operation of such a file again instead.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["task", "checkpoint"])]
    pub replay: Option<PathBuf>,
    /// Weights other than fresh ones.
    #[arg(long, value_name = "FILE")]
    pub checkpoint: Option<PathBuf>,
    /// Where the operation that is found is written.
    #[arg(long, value_name = "FILE", default_value = "bisect.safetensors")]
    pub out: PathBuf,
    #[command(flatten)]
    pub settings: Settings,
}

/// Run a model in two precisions and name the layers that diverge.
///
/// The loss of a task on a batch, forward and backward, with the same weights. Lists operations in the order in which they ran, with the
/// relative error of their results against the first precision, and the parameters they read; then the gradients. A precision is f64
/// or f32 (storage), or bf16 or f16 (mixed precision). Exits with 1 if the loss, a result or a gradient is not finite.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gradewise compare-precision nbody
  gradewise compare-precision gpt --precisions f32,f16 --threshold 0.01 --samples 2
  gradewise compare-precision nbody --checkpoint runs/nbody-1/checkpoint.safetensors --json")]
pub struct ComparePrecision {
    /// nbody, volumes, hulls, o5, forces, lorentz or gpt.
    pub task: String,
    /// The precision that is taken to be right, and the one that is compared with it.
    #[arg(long, value_name = "A,B", default_value = "f32,bf16")]
    pub precisions: String,
    /// The relative error from which on a result counts as diverged.
    #[arg(long, default_value_t = 0.02)]
    pub threshold: f64,
    /// Samples of the batch.
    #[arg(long, default_value_t = 8)]
    pub samples: usize,
    /// Weights other than fresh ones.
    #[arg(long, value_name = "FILE")]
    pub checkpoint: Option<PathBuf>,
    /// All operations instead of those with parameters and those that diverge.
    #[arg(long)]
    pub all: bool,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub settings: Settings,
}
