//! Confidence intervals and robust means of the errors of single samples.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;
use serde::Serialize;

/// Number of bootstrap resamples.
const RESAMPLES: u64 = 2000;
/// The fraction of resampled means below the interval, and above it.
const TAIL: f64 = 0.025;
/// A fixed seed, so that equal errors have equal intervals.
const SEED: u64 = 0xb007;

/// A confidence interval.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Interval {
    /// Its lower end.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
}

/// The 95% bootstrap confidence interval of the mean of the population from which `values` are a sample: the 2.5% and 97.5% percentiles of
/// the means of resamples with replacement (Efron & Tibshirani 1993, chapter 13). It covers the uncertainty from the choice of test
/// samples, not from the seed of the training. `None` for fewer than two values, or if one is not finite.
pub fn interval(values: &[f64]) -> Option<Interval> {
    if values.len() < 2 || values.iter().any(|value| !value.is_finite()) {
        return None;
    }
    let mean = |resample: u64| {
        let mut rng = ChaCha8Rng::seed_from_u64(SEED);
        rng.set_stream(resample);
        let sum: f64 = (0..values.len()).map(|_| values[rng.random_range(0..values.len())]).sum();
        sum / values.len() as f64
    };
    let mut means: Vec<f64> = (0..RESAMPLES).into_par_iter().map(mean).collect();
    means.sort_unstable_by(f64::total_cmp);
    let rank = (TAIL * RESAMPLES as f64) as usize;
    Some(Interval { low: means[rank], high: means[means.len() - 1 - rank] })
}

/// The median, for an even number the mean of the two middle values; NaN without values.
pub fn median(values: &[f64]) -> f64 {
    let sorted = sorted(values);
    let middle = sorted.len() / 2;
    match sorted.get(middle) {
        None => f64::NAN,
        Some(upper) if sorted.len().is_multiple_of(2) => (sorted[middle - 1] + upper) / 2.0,
        Some(upper) => *upper,
    }
}

/// The trimmed mean, without the fraction `part` of the smallest and of the largest values, such as 0.01 for a 1%-trimmed mean; NaN without
/// values. It is robust against a few extremes.
pub fn trimmed_mean(values: &[f64], part: f64) -> f64 {
    let sorted = sorted(values);
    let cut = (part * sorted.len() as f64) as usize;
    let kept = sorted.get(cut..sorted.len().saturating_sub(cut)).unwrap_or_default();
    kept.iter().sum::<f64>() / kept.len() as f64
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A uniform variate of mean 0 and variance 1.
    fn uniform(rng: &mut ChaCha8Rng) -> f64 {
        (rng.random::<f64>() - 0.5) * 12f64.sqrt()
    }

    #[test]
    fn the_interval_of_many_values_is_that_of_their_standard_error() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let values: Vec<f64> = (0..1000).map(|_| 3.0 + uniform(&mut rng)).collect();
        let mean = values.iter().sum::<f64>() / 1000.0;
        let Interval { low, high } = interval(&values).unwrap();
        let half = 1.96 / 1000f64.sqrt();
        assert!(
            ((mean - low) / half - 1.0).abs() < 0.1 && ((high - mean) / half - 1.0).abs() < 0.1,
            "{low} {high}"
        );
        assert_eq!(interval(&values), interval(&values), "the same each time");
    }

    #[test]
    fn it_covers_the_mean_in_nineteen_of_twenty_cases() {
        let covered = (0..200).filter(|&case| {
            let mut rng = ChaCha8Rng::seed_from_u64(case);
            let values: Vec<f64> = (0..200).map(|_| uniform(&mut rng)).collect();
            let Interval { low, high } = interval(&values).unwrap();
            (low..high).contains(&0.0)
        });
        // 190 ± 3.
        let covered = covered.count();
        assert!((180..=199).contains(&covered), "{covered}");
    }

    #[test]
    fn where_there_is_nothing_to_say_there_is_no_interval() {
        assert_eq!((interval(&[]), interval(&[1.0]), interval(&[1.0, f64::NAN])), (None, None, None));
        assert_eq!(interval(&[2.0; 5]), Some(Interval { low: 2.0, high: 2.0 }));
    }

    #[test]
    fn the_median_and_the_trimmed_mean_do_not_see_extremes() {
        let mut values: Vec<f64> = (1..=199).map(f64::from).collect();
        assert_eq!((median(&values), trimmed_mean(&values, 0.01)), (100.0, 100.0));
        values.push(1e9);
        // The smallest two and the largest two of 200 values are omitted.
        assert_eq!(
            (median(&values), trimmed_mean(&values, 0.01)),
            (100.5, (3..=198).sum::<u32>() as f64 / 196.0)
        );
        assert!(median(&[]).is_nan() && trimmed_mean(&[], 0.01).is_nan());
    }
}
