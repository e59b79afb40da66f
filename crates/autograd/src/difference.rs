//! Central differences with an estimate of their error.

use crate::Result;

/// The factor between two steps.
const RATIO: f64 = 2.0;
/// Steps that are tried, from the largest on.
const STEPS: usize = 18;
/// The largest step is this many times the usual one.
const WIDEST: f64 = 64.0;

/// A number with an estimate of its error.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Estimate {
    pub value: f64,
    pub error: f64,
}

/// The derivative from central differences `central(step)`, which come with their error by rounding, by extrapolation to step 0 (Ridders
/// 1982, Advances in Engineering Software 4).
///
/// Of all extrapolated values it is the one with the smallest error: how far it is from the values that it was made of, and from the
/// differences of every smaller step, beyond their rounding. The latter refute what large steps agree on across a singularity. Near a
/// singularity small steps give the derivative, far from one large steps; where none does, the error says so.
///
/// # Errors
/// Those of `central`.
pub(crate) fn extrapolated(usual: f64, mut central: impl FnMut(f64) -> Result<Estimate>) -> Result<Estimate> {
    let mut differences = Vec::with_capacity(STEPS);
    let mut step = usual * WIDEST;
    for _ in 0..STEPS {
        differences.push(central(step)?);
        step /= RATIO;
    }
    let mut best = Estimate { value: f64::NAN, error: f64::INFINITY };
    let mut before: Vec<f64> = Vec::new();
    for (number, difference) in differences.iter().enumerate() {
        let finer = &differences[number + 1..];
        let mut row = vec![difference.value];
        let mut power = 1.0;
        for (order, &coarser) in before.iter().enumerate() {
            power *= RATIO * RATIO;
            let last = row[order];
            let value = (power * last - coarser) / (power - 1.0);
            let beyond = |other: &Estimate| (other.value - value).abs() - other.error;
            let refuted = finer.iter().map(beyond).fold(0.0, f64::max);
            let error = (value - last).abs().max((value - coarser).abs()).max(refuted);
            // The last steps have none smaller that could refute them.
            if error < best.error && finer.len() >= WITNESSES {
                best = Estimate { value, error };
            }
            row.push(value);
        }
        before = row;
    }
    Ok(best)
}

/// Smaller steps that an extrapolated value must stand.
const WITNESSES: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;

    /// The derivative of a function by differences.
    fn found(function: impl Fn(f64) -> f64, at: f64) -> Estimate {
        let central = |step: f64| {
            let (above, below) = (at + step, at - step);
            let (high, low) = (function(above), function(below));
            let error = 8.0 * f64::EPSILON * high.abs().max(low.abs()) / (above - below);
            Ok(Estimate { value: (high - low) / (above - below), error })
        };
        extrapolated(1e-5, central).unwrap()
    }

    #[test]
    fn the_error_is_known_near_singularities_too() {
        let smooth = found(f64::sin, 0.7);
        assert!((smooth.value - 0.7f64.cos()).abs() < 1e-10 && smooth.error < 1e-8, "{smooth:?}");
        // √|x| at some distance of 0, which the larger steps are on both sides of.
        for distance in [1e-2f64, 1e-4, 1e-6] {
            let truth = 0.5 / distance.sqrt();
            let near = found(|x| (x + distance).abs().sqrt(), 0.0);
            assert!(
                (near.value - truth).abs() <= 4.0 * near.error + 1e-12 * truth,
                "{distance}: {near:?}, not {truth}"
            );
            assert!(near.error < 1e-4 * truth, "{distance}: {near:?}");
        }
        // Closer than every step: nothing shows the derivative, and the error is no small part of what is found.
        let at_it = found(|x| (x + 1e-12).abs().sqrt(), 0.0);
        assert!(at_it.error > 1e-2 * at_it.value.abs(), "{at_it:?}");
        // Noise of the size of the function's change.
        assert!(found(|x| x + 1e-3 * (1e9 * x).sin(), 0.3).error > 1e-4);
    }
}
