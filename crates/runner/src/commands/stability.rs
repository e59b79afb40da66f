//! `stability`: the input scale at which a model exceeds its tolerance, and the layer at fault.

use crate::{
    TaskCommand,
    error::{Error, Result},
    experiment::{Outcome, Probe},
    output,
    task::{self, Task},
};
use clap::Args;
use gradewise_autograd::observe::Pass;
use gradewise_kernels::DType;
use gradewise_nn::train::Batch;
use gradewise_verify::precision::Divergence;
use serde_json::json;

/// Scale the inputs of a model from 1e-6 to 1e6 and name the first layer that exceeds the tolerance or is not finite.
///
/// Runs the loss of a task on a batch, forward and backward, with all inputs multiplied by each power of ten, and compares it with double
/// precision. Exits with 1 if a result is not finite, or the error of a result of the forward pass exceeds the tolerance.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gradewise stability nbody
  gradewise stability hulls --checkpoint runs/hulls-1/checkpoint.safetensors --precision bf16 --tolerance 0.05
  gradewise stability nbody --from 1e-3 --to 1e3 --json")]
pub struct Stability {
    #[command(flatten)]
    pub probe: Probe,
    /// The smallest factor of the inputs.
    #[arg(long, default_value_t = 1e-6)]
    pub from: f64,
    /// The largest factor.
    #[arg(long, default_value_t = 1e6)]
    pub to: f64,
    /// The largest relative error of a result that passes.
    #[arg(long, default_value_t = 0.01)]
    pub tolerance: f64,
}

impl TaskCommand for Stability {
    const NAME: &'static str = "stability";
    type Input = ();

    fn start(&self) -> Result<Option<(String, ())>> {
        Ok(Some((self.probe.task.clone(), ())))
    }

    fn run<T: Task>(&self, (): ()) -> Result<()> {
        sweep::<T>(self)
    }
}

/// The powers of ten from one factor to another.
fn factors(from: f64, to: f64) -> Result<Vec<f64>> {
    if !(from > 0.0 && to >= from && to.is_finite()) {
        return Err(Error::Usage(format!(
            "--from {from} --to {to}: write factors above 0, the smaller first"
        )));
    }
    let (first, last) = (from.log10().round() as i32, to.log10().round() as i32);
    Ok((first..=last).map(|exponent| 10f64.powi(exponent)).collect())
}

/// The results of a model for inputs of one scale.
struct Row {
    factor: f64,
    loss: f64,
    /// The norm of all gradients together.
    norm: f64,
    /// The largest relative error of a result of the forward pass.
    error: f64,
    left: Option<Divergence>,
}

impl Row {
    fn new(factor: f64, found: &Outcome, reference: &Outcome, tolerance: f64) -> Self {
        let divergences = found.recording.compare(&reference.recording);
        let forward = divergences.iter().filter(|d| d.pass == Pass::Forward).map(|d| d.error);
        let error = super::worst(forward);
        let leaves =
            |d: &&Divergence| !d.error.is_finite() || (d.pass == Pass::Forward && d.error > tolerance);
        let squares = found.gradients.iter().flat_map(|(_, values)| values).map(|value| value * value);
        let left = divergences.iter().find(leaves).cloned();
        Self { factor, loss: found.loss, norm: squares.sum::<f64>().sqrt(), error, left }
    }

    fn leaves(&self) -> bool {
        self.left.is_some() || !self.loss.is_finite() || !self.norm.is_finite()
    }

    /// Names the first operation that left the tolerance.
    fn culprit(&self) -> String {
        match &self.left {
            None if self.leaves() => "the loss or a gradient is not finite".to_owned(),
            None => String::new(),
            Some(d) => {
                let layer = d.layer().map_or_else(String::new, |layer| format!(" of {layer}"));
                let how = if d.error.is_finite() {
                    format!("is off by {:.1e}", d.error)
                } else {
                    "is not finite".to_owned()
                };
                format!("`{}`{layer}, {}, {how}", d.operation, d.pass)
            }
        }
    }
}

fn sweep<T: Task>(arguments: &Stability) -> Result<()> {
    let factors = factors(arguments.from, arguments.to)?;
    let experiment = arguments.probe.experiment::<T>()?;
    let runtime = &experiment.config.runtime;
    let precision = runtime.precision.products().unwrap_or(runtime.dtype);
    let mut rows = Vec::new();
    for factor in factors {
        let scaled = |batch: task::Batch<T>| match batch.scaled(factor)? {
            Some(scaled) => Ok(scaled),
            None => Err(Error::Usage(format!("the inputs of {} have no scale", T::NAME))),
        };
        let (found, reference) = (experiment.run(precision, scaled)?, experiment.run(DType::F64, scaled)?);
        rows.push(Row::new(factor, &found, &reference, arguments.tolerance));
    }
    report::<T>(arguments, precision.name(), &rows)
}

fn report<T: Task>(arguments: &Stability, name: &str, rows: &[Row]) -> Result<()> {
    let left = rows.iter().filter(|row| row.leaves()).count();
    if arguments.probe.json {
        let row = |row: &Row| {
            json!({"factor": row.factor, "loss": row.loss, "gradient_norm": row.norm, "error": row.error,
                   "left": row.left.as_ref().map(|d| json!({"operation": d.operation, "layer": d.layer(), "pass": d.pass.to_string(), "error": d.error}))})
        };
        let rows: Vec<_> = rows.iter().map(row).collect();
        let record =
            json!({"task": T::NAME, "precision": name, "tolerance": arguments.tolerance, "factors": rows});
        output::print(&format!("{record}\n"))?;
    } else {
        let mut text = format!("{} in {name} against f64, inputs multiplied by a factor\n\n", T::NAME);
        text += &format!(
            "{:>7}  {:>10}  {:>13}  {:>8}  first to leave\n",
            "factor", "loss", "gradient norm", "error"
        );
        for row in rows {
            text += &format!(
                "{:>7.0e}  {:>10.2e}  {:>13.2e}  {:>8.1e}  {}\n",
                row.factor,
                row.loss,
                row.norm,
                row.error,
                row.culprit()
            );
        }
        output::print(&text)?;
    }
    if left == 0 {
        return Ok(());
    }
    let tolerance = arguments.tolerance;
    Err(Error::Failed(format!(
        "at {left} of {} scales a result is not finite, or off by more than {tolerance}",
        rows.len()
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_are_powers_of_ten() {
        assert_eq!(factors(1e-6, 1e6).unwrap().len(), 13);
        assert_eq!(factors(0.1, 10.0).unwrap(), [0.1, 1.0, 10.0]);
        for (from, to) in [(0.0, 1.0), (10.0, 1.0), (-1.0, 1.0), (f64::NAN, 1.0), (1.0, f64::INFINITY)] {
            assert!(factors(from, to).is_err());
        }
    }
}
