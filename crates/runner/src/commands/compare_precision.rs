//! `compare-precision`: a model in two precisions, and the first layers that diverge.

use crate::{
    TaskCommand,
    error::{Error, Result},
    experiment::{Outcome, Probe},
    output,
    task::Task,
};
use clap::Args;
use gradewise_autograd::observe::Pass;
use gradewise_kernels::DType;
use gradewise_nn::choice::Choice;
use gradewise_verify::{
    precision::{Divergence, first_beyond},
    relative_error,
};
use serde_json::json;

/// Run a model in two precisions and name the layers that diverge.
///
/// Runs the loss of a task on a batch, forward and backward, with the same weights. Lists operations in the order in which they ran, with
/// the relative error of their results against the first precision, and the parameters they read; then the gradients. A precision is f64 or
/// f32 (storage), or bf16 or f16 (mixed precision). Exits with 1 if the loss, a result or a gradient is not finite.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gradewise compare-precision nbody
  gradewise compare-precision gpt --precisions f32,f16 --threshold 0.01 --samples 2
  gradewise compare-precision nbody --checkpoint runs/nbody-1/checkpoint.safetensors --json")]
pub struct ComparePrecision {
    #[command(flatten)]
    pub probe: Probe,
    /// The reference precision, and the one that is compared with it.
    #[arg(long, value_name = "A,B", default_value = "f32,bf16")]
    pub precisions: String,
    /// The relative error above which a result counts as diverged.
    #[arg(long, default_value_t = 0.02)]
    pub threshold: f64,
    /// List all operations, not only those with parameters and those that diverge.
    #[arg(long)]
    pub all: bool,
}

impl TaskCommand for ComparePrecision {
    const NAME: &'static str = "compare-precision";
    type Input = ();

    fn start(&self) -> Result<Option<(String, ())>> {
        Ok(Some((self.probe.task.clone(), ())))
    }

    fn run<T: Task>(&self, (): ()) -> Result<()> {
        compare::<T>(self)
    }
}

fn compare<T: Task>(arguments: &ComparePrecision) -> Result<()> {
    let Some((first, second)) = arguments.precisions.split_once(',') else {
        return Err(Error::Usage("--precisions takes two, such as f32,bf16".to_owned()));
    };
    let precision = |name: &str| {
        DType::parse(name.trim()).map_err(|error| Error::Usage(format!("--precisions: {error}")))
    };
    let (first, second) = (precision(first)?, precision(second)?);
    let experiment = arguments.probe.experiment::<T>()?;
    let (right, other) = (experiment.run(first, Ok)?, experiment.run(second, Ok)?);
    let divergences = other.recording.compare(&right.recording);
    let forward: Vec<&Divergence> = divergences.iter().filter(|d| d.pass == Pass::Forward).collect();
    let diverged = first_beyond(&divergences, Pass::Forward, arguments.threshold);
    let expected: std::collections::BTreeMap<&str, &Vec<f64>> =
        right.gradients.iter().map(|(name, values)| (name.as_str(), values)).collect();
    let mut gradients: Vec<Gradient> = Vec::new();
    for (name, values) in &other.gradients {
        let Some(expected) = expected.get(name.as_str()) else { continue };
        gradients.push(Gradient::new(name, values, expected));
    }
    let verdict = Verdict::new(&divergences, &gradients, &other, arguments.threshold);
    if arguments.probe.json {
        let row = |d: &&Divergence| json!({"operation": d.operation, "layer": d.layer(), "parameters": d.parameters, "dtype": d.dtype.to_string(), "error": d.error});
        let record = json!({
            "precisions": [first.name(), second.name()],
            "loss": [right.loss, other.loss],
            "first_diverged": diverged.as_ref().map(row),
            "operations": forward.iter().map(row).collect::<Vec<_>>(),
            "gradients": gradients.iter().map(|g| json!({"parameter": g.name, "error": g.error, "lost": g.lost, "finite": g.is_finite})).collect::<Vec<_>>(),
            "first_gradient_diverged": verdict.gradients.first().map(|gradient| gradient.name),
            "finite": verdict.is_finite(),
        });
        output::print(&format!("{record}\n"))?;
        return verdict.result(second.name());
    }
    let mut text = format!("{second} against {first}: loss {} and {}\n\n", other.loss, right.loss);
    text += &format!("{:<18}{:<8}{:>9}  layer\n", "operation", "dtype", "error");
    for d in &forward {
        let beyond = d.error.is_nan() || d.error > arguments.threshold;
        if arguments.all || beyond || !d.parameters.is_empty() {
            let mark = if beyond { " *" } else { "" };
            let layer = d.layer().unwrap_or("");
            text +=
                &format!("{:<18}{:<8}{:>9.1e}  {layer}{mark}\n", d.operation, d.dtype.to_string(), d.error);
        }
    }
    text += &format!("\n{:<40}{:>9}  lost to zero\n", "gradient of", "error");
    for gradient in &gradients {
        let mark = if gradient.is_beyond(arguments.threshold) { " *" } else { "" };
        text +=
            &format!("{:<40}{:>9.1e}  {:.1}%{mark}\n", gradient.name, gradient.error, 100.0 * gradient.lost);
    }
    text += &match diverged {
        Some(d) => format!(
            "\nthe first to diverge by more than {}: `{}`{}, error {:.1e}\n",
            arguments.threshold,
            d.operation,
            d.layer().map_or_else(String::new, |layer| format!(" of layer {layer}")),
            d.error
        ),
        None => format!("\nno result of the forward pass diverges by more than {}\n", arguments.threshold),
    };
    text += &verdict.of_gradients(gradients.len(), arguments.threshold);
    output::print(&text)?;
    verdict.result(second.name())
}

/// The gradient of a parameter in two precisions.
struct Gradient<'a> {
    name: &'a str,
    /// ‖gradient − reference‖ / ‖reference‖.
    error: f64,
    /// The fraction of elements that are zero, but not in the reference.
    lost: f64,
    is_finite: bool,
}

impl<'a> Gradient<'a> {
    fn new(name: &'a str, values: &[f64], expected: &[f64]) -> Self {
        let zero =
            |values: &[f64]| values.iter().filter(|&&v| v == 0.0).count() as f64 / values.len().max(1) as f64;
        Self {
            name,
            error: relative_error(values, expected),
            lost: (zero(values) - zero(expected)).max(0.0),
            is_finite: values.iter().all(|value| value.is_finite()),
        }
    }

    fn is_beyond(&self, threshold: f64) -> bool {
        !self.is_finite || self.error.is_nan() || self.error > threshold
    }
}

/// The outcome of the comparison, gradients included.
struct Verdict<'a> {
    /// Gradients beyond the threshold, the worst first.
    gradients: Vec<&'a Gradient<'a>>,
    /// Results that are not finite in the compared precision.
    not_finite: Vec<String>,
}

impl<'a> Verdict<'a> {
    fn new(
        divergences: &[Divergence],
        gradients: &'a [Gradient<'a>],
        other: &Outcome,
        threshold: f64,
    ) -> Self {
        let mut past: Vec<&Gradient> = gradients.iter().filter(|g| g.is_beyond(threshold)).collect();
        let size = |gradient: &Gradient| if gradient.is_finite { gradient.error } else { f64::INFINITY };
        past.sort_by(|a, b| size(b).total_cmp(&size(a)));
        let mut not_finite = Vec::new();
        if !other.loss.is_finite() {
            not_finite.push(format!("the loss ({})", other.loss));
        }
        // A relative error is finite if both results are, unless squares overflow.
        let result = divergences.iter().find(|d| d.pass == Pass::Forward && !d.error.is_finite());
        not_finite.extend(result.map(|d| format!("a result of `{}`", d.operation)));
        let gradients: Vec<&str> = past.iter().filter(|g| !g.is_finite).map(|g| g.name).collect();
        match gradients[..] {
            [] => {}
            [one] => not_finite.push(format!("the gradient of `{one}`")),
            [first, ..] => {
                not_finite.push(format!("{} gradients, such as that of `{first}`", gradients.len()))
            }
        }
        Self { gradients: past, not_finite }
    }

    fn is_finite(&self) -> bool {
        self.not_finite.is_empty()
    }

    fn of_gradients(&self, all: usize, threshold: f64) -> String {
        match self.gradients.first() {
            None => format!("no gradient diverges by more than {threshold}\n"),
            Some(worst) => format!(
                "{} of {all} gradients diverge by more than {threshold}, most that of `{}`, error {:.1e}\n",
                self.gradients.len(),
                worst.name,
                worst.error
            ),
        }
    }

    /// # Errors
    /// [`Error::Failed`] if something is not finite. Rounding errors are reported, but are not a failure.
    fn result(&self, precision: &str) -> Result<()> {
        if self.is_finite() {
            return Ok(());
        }
        Err(Error::Failed(format!("in {precision} not finite: {}", self.not_finite.join("; "))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gradewise_verify::precision::Recording;

    #[test]
    fn gradients_count_for_the_verdict() {
        let gradients = [
            Gradient::new("near", &[1.0, 2.0], &[1.0, 2.0]),
            Gradient::new("far", &[1.0, 3.0], &[1.0, 2.0]),
            Gradient::new("lost", &[0.0, 0.0], &[1.0, 2.0]),
            Gradient::new("gone", &[1.0, f64::INFINITY], &[1.0, 2.0]),
        ];
        let outcome = |loss| Outcome { loss, recording: Recording::new([]), gradients: Vec::new() };
        let verdict = |gradients: &'static [Gradient<'static>], loss| {
            Verdict::new(&[], gradients, &outcome(loss), 0.02)
        };
        let gradients: &'static [Gradient<'static>] = Vec::from(gradients).leak();
        let found = verdict(gradients, 1.0);
        assert_eq!(found.gradients.iter().map(|g| g.name).collect::<Vec<_>>(), ["gone", "lost", "far"]);
        let message = found.result("f16").unwrap_err().to_string();
        assert!(message.contains("in f16 not finite: the gradient of `gone`"), "{message}");
        assert!(
            found.of_gradients(4, 0.02).contains("3 of 4 gradients diverge"),
            "{}",
            found.of_gradients(4, 0.02)
        );
        assert_eq!(gradients[2].lost, 1.0);
        // Rounding is not a failure, and agreement of gradients is reported, too.
        assert!(verdict(&gradients[..3], 1.0).result("f16").is_ok());
        assert!(verdict(&gradients[..1], 1.0).of_gradients(1, 0.02).contains("no gradient diverges"));
        assert!(verdict(&gradients[..1], f64::NAN).result("f16").is_err());
    }
}
