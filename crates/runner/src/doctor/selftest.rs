//! Every operator once on a device, forward and backward, compared with the CPU.

use super::report::Check;
use gradewise_autograd::{
    AnySample, BackwardOptions, Input, Result, Sizes, Tensor,
    registry::{self, Entry},
};
use gradewise_core::Signature;
use gradewise_kernels::{Array, DType, Device};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

/// Rows and features of the samples.
const SIZES: [usize; 2] = [3, 5];
/// Largest relative error that passes. A faulty kernel is off by far more; `verify` checks the accuracy of operators.
const TOLERANCE: f64 = 1e-4;
/// The most operators that a failed check names.
const SHOWN: usize = 4;

/// Runs one operator: its result and the gradients of its inputs.
fn compute(sample: &AnySample, inputs: &[Tensor]) -> Result<Vec<Array>> {
    let inputs: Vec<Tensor> = inputs.iter().map(Tensor::requires_grad).collect();
    let output = sample.run(&inputs)?;
    // A random cotangent, exactly representable in f32. The output itself would not do: the norm of a normalised output is constant, so its
    // gradient would be 0.
    let direction =
        Input::normal(output.shape().clone()).draw(DType::F32, &mut ChaCha8Rng::seed_from_u64(1))?;
    let direction = Tensor::new(direction.cast(output.dtype())?.to_device(&output.device())?);
    let gradients = output.backward_with(&BackwardOptions::seed(direction))?;
    let mut values = vec![output.array().clone()];
    for input in &inputs {
        values.push(gradients.get(input)?.array().clone());
    }
    Ok(values)
}

/// The largest relative error of an operator's samples in f32 on `device` against f64 on the CPU, from the same rounded inputs.
fn error(entry: &Entry, sizes: &Sizes, device: &Device) -> Result<f64> {
    let mut worst = 0f64;
    for sample in entry.samples(sizes)? {
        let drawn = sample.draw(DType::F32, &mut ChaCha8Rng::seed_from_u64(0))?;
        let tested = compute(&sample, &sample.place(&drawn, DType::F32, device)?)?;
        device.synchronize()?;
        let expected = compute(&sample, &sample.place(&drawn, DType::F64, &Device::Cpu)?)?;
        for (tested, expected) in tested.iter().zip(&expected) {
            // Values that are not finite count as an infinite error.
            worst = worst.max(tested.relative_error(expected)?);
        }
    }
    Ok(worst)
}

/// Allocates, launches, synchronises and compares.
pub fn run(device: &Device) -> Check {
    let name = format!("{device} self-test");
    let [batch, features] = SIZES;
    let sizes = match Sizes::new(Signature::CL3, batch, features) {
        Ok(sizes) => sizes,
        Err(error) => return Check::fail(name, error.to_string(), "report this as a bug"),
    };
    let outcomes: Vec<(&str, Result<f64>)> =
        registry::entries().iter().map(|entry| (entry.name(), error(entry, &sizes, device))).collect();
    judge(name, &outcomes)
}

fn judge(name: String, outcomes: &[(&str, Result<f64>)]) -> Check {
    let failure = |(operator, outcome): &(&str, Result<f64>)| match outcome {
        Ok(error) if *error <= TOLERANCE => None,
        Ok(error) => Some((operator.to_string(), format!("{operator} is off by {error:.1e}"))),
        Err(error) => Some((operator.to_string(), error.to_string())),
    };
    let (failures, reasons): (Vec<String>, Vec<String>) = outcomes.iter().filter_map(failure).unzip();
    if failures.is_empty() {
        let errors =
            outcomes.iter().filter_map(|(operator, outcome)| Some((outcome.as_ref().ok()?, operator)));
        let worst = errors.max_by(|a, b| a.0.total_cmp(b.0));
        let worst = worst
            .map_or_else(String::new, |(error, operator)| format!(", at most {error:.1e} off ({operator})"));
        return Check::ok(
            name,
            format!(
                "{} operators, forward and backward in f32, agree with f64 on the CPU{worst}",
                outcomes.len()
            ),
        );
    }
    let more = failures.len().saturating_sub(SHOWN);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let shown = failures[..failures.len().min(SHOWN)].join(", ");
    // The first failure is the most informative: a sticky error fails everything after it.
    let first = reasons.first().map_or("", String::as_str);
    Check::fail(
        name,
        format!("{} of {} operators fail: {shown}{more}; the first: {first}", failures.len(), outcomes.len()),
        "run gradewise doctor again with GRADEWISE_LAUNCH_BLOCKING=1, and under compute-sanitizer; if only this device \
         fails, suspect it; otherwise report it with the output of gradewise doctor --json",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::report::Verdict;

    #[test]
    fn the_cpu_in_f32_passes_against_itself_in_f64() {
        let check = run(&Device::Cpu);
        assert_eq!(check.verdict, Verdict::Ok, "{check:?}");
        assert!(check.detail.contains("operators, forward and backward"), "{check:?}");
    }

    #[test]
    fn wrong_numbers_and_errors_fail_by_name() {
        let wrong = Err(gradewise_kernels::Error::InCapture { operation: "fcgp" }.into());
        let outcomes = [("sgp", Ok(1e-7)), ("add", Ok(0.3)), ("mul", Ok(f64::INFINITY)), ("fcgp", wrong)];
        let check = judge("cuda:0 self-test".to_owned(), &outcomes);
        assert_eq!(check.verdict, Verdict::Fail);
        for part in ["3 of 4", "add, mul, fcgp; ", "add is off by 3.0e-1"] {
            assert!(check.detail.contains(part), "`{part}` is not in: {check:?}");
        }
        for (outcome, part) in [(2, "mul is off by inf"), (3, "fcgp: cannot be captured")] {
            let check = judge("cuda:0 self-test".to_owned(), &outcomes[outcome..=outcome]);
            assert!(check.detail.contains(part), "`{part}` is not in: {check:?}");
        }
        let passing = judge("cuda:0 self-test".to_owned(), &outcomes[..1]);
        assert!(passing.verdict == Verdict::Ok && passing.detail.contains("1.0e-7 off (sgp)"), "{passing:?}");
    }
}
