//! `symmetry`: whether a checkpoint's predictions move as their inputs do.

use super::eval::{settings, weights_of};
use crate::{
    cli::Symmetry,
    error::{Error, Result},
    output, run,
    tasks::{self, Task, with_task},
};
use gradewise_kernels::DType;
use gradewise_nn::{checkpoint::Checkpoint, data::Split};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use serde_json::json;

pub fn run(arguments: &Symmetry) -> Result<()> {
    let checkpoint = Checkpoint::read(&arguments.checkpoint)?;
    with_task!(&checkpoint.metadata.model, T => check::<T>(arguments, &checkpoint))
}

/// What rounding alone may change.
fn tolerance(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => 1e-9,
        DType::F32 => 1e-3,
        _ => 0.1,
    }
}

fn check<T: Task>(arguments: &Symmetry, checkpoint: &Checkpoint) -> Result<()> {
    let config = settings::<T>(&arguments.checkpoint, &arguments.settings)?;
    let split: Split = arguments.split.parse()?;
    let placement = run::placement(&config.runtime)?;
    let model = tasks::load_model::<T>(checkpoint, &placement)?;
    let data = T::load(&config.data, split)?;
    let mut changes = Vec::new();
    for draw in 0..arguments.draws.max(1) {
        let mut rng = ChaCha8Rng::seed_from_u64(arguments.motions);
        rng.set_stream(draw);
        changes.push(T::asymmetry(&model, &data, &placement, &mut rng)?);
    }
    // Nothing that is not finite passes.
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
            weights: weights_of(std::slice::from_ref(checkpoint)),
        })
    } else {
        Err(Error::Failed(format!("the predictions are not symmetric under {}", T::GROUP)))
    }
}
