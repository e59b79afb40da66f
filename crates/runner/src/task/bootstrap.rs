//! What the errors of single samples say about their mean.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;
use serde::Serialize;

/// Times that samples are drawn again.
const RESAMPLES: u64 = 2000;
/// The part of the means of redrawn samples that lies below an interval, and as much above it.
const TAIL: f64 = 0.025;
/// The same redraws each time, so that equal errors have equal intervals.
const SEED: u64 = 0xb007;

/// A confidence interval.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Interval {
    /// Its lower end.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
}

/// In which the mean of the population lies, with a confidence of 95%, from which `values` are a sample: between the 2.5% and the 97.5%
/// percentile of the means of as many values drawn from them with replacement (Efron & Tibshirani 1993, chapter 13). It is what the choice
/// of test samples leaves open, and says nothing about other seeds of the training. `None` of fewer than two values, or where one is not
/// finite.
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

/// The middle one of the values, or the mean of the two in the middle; NaN of none.
pub fn median(values: &[f64]) -> f64 {
    let sorted = sorted(values);
    let middle = sorted.len() / 2;
    match sorted.get(middle) {
        None => f64::NAN,
        Some(upper) if sorted.len().is_multiple_of(2) => (sorted[middle - 1] + upper) / 2.0,
        Some(upper) => *upper,
    }
}

/// The mean of the values without the `part` that is smallest and the `part` that is largest, such as 0.01 for a 1%-trimmed mean; NaN
/// of none. It is what the mean would be but for a few extremes.
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

    /// Of mean 0 and variance 1.
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
        // Of 200 values the smallest two and the largest two are left out.
        assert_eq!(
            (median(&values), trimmed_mean(&values, 0.01)),
            (100.5, (3..=198).sum::<u32>() as f64 / 196.0)
        );
        assert!(median(&[]).is_nan() && trimmed_mean(&[], 0.01).is_nan());
    }
}
