//! `stability`: the scale of the inputs at which a model leaves its tolerance, and the layer that does.

use super::compare_precision::{Experiment, Outcome};
use crate::{
    cli::Stability,
    error::{Error, Result},
    output,
    tasks::{self, Task, with_task},
};
use gradewise::verify::precision::Divergence;
use gradewise_autograd::observe::Pass;
use gradewise_nn::{data::Split, train::Batch};
use serde_json::json;

pub fn run(arguments: &Stability) -> Result<()> {
    with_task!(&arguments.task, T => sweep::<T>(arguments))
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

/// What a model gives for inputs of one scale.
struct Row {
    factor: f64,
    loss: f64,
    /// Of all gradients together.
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

    /// The first that left, for readers.
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
    let config = tasks::configure::<T>(None, &arguments.settings)?;
    let data = T::load(&config.data, Split::Train)?;
    let experiment = Experiment::<T> {
        checkpoint: arguments.checkpoint.as_deref(),
        samples: arguments.samples,
        config: &config,
        data: &data,
    };
    let runtime = &config.runtime;
    let name = match runtime.precision.trim_end_matches("-mixed") {
        "full" => runtime.dtype.as_str(),
        mixed => mixed,
    };
    let mut rows = Vec::new();
    for factor in factors {
        let scaled = |batch: tasks::Batch<T>| match batch.scaled(factor)? {
            Some(scaled) => Ok(scaled),
            None => Err(Error::Usage(format!("the inputs of {} have no scale", T::NAME))),
        };
        let (found, reference) = (experiment.run(name, scaled)?, experiment.run("f64", scaled)?);
        rows.push(Row::new(factor, &found, &reference, arguments.tolerance));
    }
    report::<T>(arguments, name, &rows)
}

fn report<T: Task>(arguments: &Stability, name: &str, rows: &[Row]) -> Result<()> {
    let left = rows.iter().filter(|row| row.leaves()).count();
    if arguments.json {
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
