//! Central differences with an estimate of their error.

use crate::Result;

/// The factor between two steps.
const RATIO: f64 = 2.0;
/// Steps that are tried, from the largest on.
const STEPS: usize = 14;
/// The largest step is this many times the usual one.
const WIDEST: f64 = 64.0;

/// A derivative by differences.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Difference {
    pub value: f64,
    /// An estimate of its error, from truncation and rounding.
    pub error: f64,
}

/// The derivative from central differences `central(step)` by extrapolation to step 0 (Ridders 1982, Advances in Engineering Software 4):
/// of all the extrapolated values the one that agrees best with those it was made of. Near a singularity small steps give it, far from one
/// large steps, and where rounding dominates, the error says so.
///
/// # Errors
/// Those of `central`.
pub(crate) fn extrapolated(usual: f64, mut central: impl FnMut(f64) -> Result<f64>) -> Result<Difference> {
    let mut best = Difference { value: f64::NAN, error: f64::INFINITY };
    let mut before: Vec<f64> = Vec::new();
    let mut step = usual * WIDEST;
    for _ in 0..STEPS {
        let mut row = vec![central(step)?];
        let mut power = 1.0;
        for (order, &coarser) in before.iter().enumerate() {
            power *= RATIO * RATIO;
            let finer = row[order];
            let value = (power * finer - coarser) / (power - 1.0);
            let error = (value - finer).abs().max((value - coarser).abs());
            if error < best.error {
                best = Difference { value, error };
            }
            row.push(value);
        }
        before = row;
        step /= RATIO;
    }
    Ok(best)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The derivative of a function at a point, and its true value.
    fn checked(function: impl Fn(f64) -> f64, at: f64, truth: f64) -> Difference {
        let central =
            |step: f64| Ok((function(at + step) - function(at - step)) / ((at + step) - (at - step)));
        let found = extrapolated(1e-5, central).unwrap();
        let actual = (found.value - truth).abs();
        assert!(actual <= 4.0 * found.error + 1e-13 * truth.abs(), "{found:?}, and it is {truth}");
        found
    }

    #[test]
    fn the_error_is_known_near_singularities_too() {
        assert!(checked(f64::sin, 0.7, 0.7f64.cos()).error < 1e-9);
        // √ near 0: the usual step is larger than the distance to the singularity.
        for distance in [1e-2f64, 1e-4, 1e-6] {
            let truth = 0.5 / distance.sqrt();
            let found = checked(|x| (x + distance).max(0.0).sqrt(), 0.0, truth);
            assert!(found.error < 1e-5 * truth, "{distance}: {found:?}");
        }
        // Noise of the size of the function's change: the error says so.
        let noisy = |x: f64| x + 1e-3 * (1e9 * x).sin();
        let central = |step: f64| Ok((noisy(0.3 + step) - noisy(0.3 - step)) / (2.0 * step));
        assert!(extrapolated(1e-5, central).unwrap().error > 1e-4);
    }
}
