//! `symmetry`: checks the equivariance of a checkpoint's predictions.

use crate::{
    TaskCommand,
    error::{Error, Result},
    options::{Settings, one_of},
    output, run,
    task::{self, Task},
};
use clap::Args;
use gradewise_kernels::DType;
use gradewise_nn::{checkpoint::Checkpoint, data::Split};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use serde_json::json;
use std::path::PathBuf;

/// Check that the predictions of a checkpoint have the symmetry of its task.
///
/// Compares predictions for transformed inputs with the transformed predictions, for the rotations, reflections, translations or boosts of
/// the task. For text, checks that later bytes do not affect earlier predictions. Exits with 1 if they differ by more than the tolerance.
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
    /// The largest relative change that passes [default: 1e-9 in f64, 1e-3 in f32, 0.1 in 16 bits]
    #[arg(long)]
    pub tolerance: Option<f64>,
    /// Number of random motions.
    #[arg(long, default_value_t = 5)]
    pub draws: u64,
    /// Seed of the motions.
    #[arg(long, default_value_t = 0)]
    pub motions: u64,
    /// train, valid or test.
    #[arg(long, default_value = "test", value_parser = one_of::<Split>(), hide_possible_values = true)]
    pub split: Split,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub settings: Settings,
}

impl TaskCommand for Symmetry {
    const NAME: &'static str = "symmetry";
    type Input = Checkpoint;

    fn start(&self) -> Result<Option<(String, Checkpoint)>> {
        let checkpoint = Checkpoint::read(&self.checkpoint)?;
        Ok(Some((checkpoint.metadata.model.clone(), checkpoint)))
    }

    fn run<T: Task>(&self, checkpoint: Checkpoint) -> Result<()> {
        check::<T>(self, &checkpoint)
    }
}

/// The relative change that rounding may cause.
fn tolerance(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => 1e-9,
        DType::F32 => 1e-3,
        _ => 0.1,
    }
}

fn check<T: Task>(arguments: &Symmetry, checkpoint: &Checkpoint) -> Result<()> {
    if T::GROUP.is_empty() {
        return Err(Error::Usage(format!(
            "the task `{}` says of no symmetry that its models have it",
            T::NAME
        )));
    }
    let config = task::settings::<T>(&arguments.checkpoint, &arguments.settings)?;
    let split = arguments.split;
    let placement = run::placement(&config.runtime)?;
    let model = task::load_model::<T>(checkpoint, &placement)?;
    let data = T::load(&config.data, split)?;
    let mut changes = Vec::new();
    for draw in 0..arguments.draws.max(1) {
        let mut rng = ChaCha8Rng::seed_from_u64(arguments.motions);
        rng.set_stream(draw);
        changes.push(T::asymmetry(&model, &data, &placement, &mut rng)?);
    }
    // Changes that are not finite count as the worst.
    let worst = super::worst(changes.iter().copied());
    let tolerance = arguments.tolerance.unwrap_or_else(|| tolerance(placement.dtype));
    let holds = worst <= tolerance;
    if arguments.json {
        let record = json!({
            "model": T::NAME, "group": T::GROUP, "dtype": placement.dtype.to_string(), "changes": changes, "worst": worst,
            "tolerance": tolerance, "holds": holds,
        });
        output::print(&format!("{record}\n"))?;
    } else {
        output::print(&format!(
            "symmetry of {} under {}: {worst:.1e} relative change at most in {} draws, {} on {}, tolerance {tolerance:.1e}: {}\n",
            T::NAME,
            T::GROUP,
            changes.len(),
            placement.dtype,
            placement.device,
            if holds { "holds" } else { "does NOT hold" }
        ))?;
    }
    if holds {
        Ok(())
    } else if !worst.is_finite() {
        Err(Error::Diverged {
            measured: format!("the relative change is {worst}"),
            weights: task::weights_of(std::slice::from_ref(checkpoint)),
        })
    } else {
        Err(Error::Failed(format!("the predictions are not symmetric under {}", T::GROUP)))
    }
}
