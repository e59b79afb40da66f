//! Whether predicted probabilities are frequencies.

use crate::{Error, Result};
use serde::Serialize;

const OPERATION: &str = "calibration";

/// Samples whose predicted probability of signal lies in one interval.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Bin {
    /// The lower end of the interval.
    pub low: f64,
    /// Its upper end, which belongs to the next one, but for the last.
    pub high: f64,
    /// The number of samples.
    pub samples: usize,
    /// Their mean predicted probability.
    pub predicted: f64,
    /// The share of signal among them.
    pub observed: f64,
}

/// Predicted probabilities beside observed frequencies, in bins of equal width.
#[derive(Clone, PartialEq, Debug)]
pub struct Calibration {
    bins: Vec<Bin>,
}

impl Calibration {
    /// From the predicted probability of signal of each sample, and whether it is signal, in `bins` intervals of [0, 1].
    ///
    /// # Errors
    /// [`Error::Argument`] for lengths that differ, no sample, no bin, or a probability outside [0, 1], NaN among them.
    pub fn new(probabilities: &[f64], labels: &[bool], bins: usize) -> Result<Self> {
        let refuse = |argument, actual: String, expected: &str| {
            Err(Error::Argument { operation: OPERATION, argument, actual, expected: expected.to_owned() })
        };
        if probabilities.len() != labels.len() || labels.is_empty() {
            let lengths = format!("{} probabilities, {} labels", probabilities.len(), labels.len());
            return refuse("labels", lengths, "one a probability, and at least one");
        }
        if bins == 0 {
            return refuse("bins", "0".to_owned(), "at least 1");
        }
        if let Some(k) = probabilities.iter().position(|p| !(0.0..=1.0).contains(p)) {
            return refuse("probabilities", format!("{} of sample {k}", probabilities[k]), "from 0 to 1");
        }
        let mut sums = vec![(0usize, 0.0, 0usize); bins];
        for (&probability, &label) in probabilities.iter().zip(labels) {
            let sum = &mut sums[((probability * bins as f64) as usize).min(bins - 1)];
            *sum = (sum.0 + 1, sum.1 + probability, sum.2 + usize::from(label));
        }
        let edge = |k: usize| k as f64 / bins as f64;
        let filled = sums.iter().enumerate().filter(|(_, (samples, ..))| *samples > 0);
        let bins = filled.map(|(k, &(samples, predicted, signal))| Bin {
            low: edge(k),
            high: edge(k + 1),
            samples,
            predicted: predicted / samples as f64,
            observed: signal as f64 / samples as f64,
        });
        Ok(Self { bins: bins.collect() })
    }

    /// The bins that have samples, ascending.
    pub fn bins(&self) -> &[Bin] {
        &self.bins
    }

    /// The expected calibration error (Naeini et al. 2015, doi:10.1609/aaai.v29i1.9602; Guo et al. 2017, arXiv:1706.04599), for the
    /// probability of signal: the mean over samples of their bin's |predicted − observed|. Samples without a fault give more than 0, by
    /// chance: about √(2p(1 − p)/(πn)) for a bin of n samples.
    pub fn error(&self) -> f64 {
        let samples: usize = self.bins.iter().map(|bin| bin.samples).sum();
        let weighted = |bin: &Bin| bin.samples as f64 * (bin.predicted - bin.observed).abs();
        self.bins.iter().map(weighted).sum::<f64>() / samples as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_hold_what_they_should() {
        let (p, labels) = ([0.0, 0.05, 0.5, 0.99, 1.0], [false, true, true, true, false]);
        let calibration = Calibration::new(&p, &labels, 10).unwrap();
        let counts: Vec<(f64, usize)> = calibration.bins().iter().map(|bin| (bin.low, bin.samples)).collect();
        assert_eq!(counts, [(0.0, 2), (0.5, 1), (0.9, 2)]);
        // (2·|0.025 − 0.5| + |0.5 − 1| + 2·|0.995 − 0.5|)/5
        assert!((calibration.error() - 0.488).abs() < 1e-12, "{}", calibration.error());
    }

    #[test]
    fn probabilities_that_are_frequencies_have_no_error() {
        let p: Vec<f64> = (0..100).map(|k| if k < 50 { 0.2 } else { 0.8 }).collect();
        let labels: Vec<bool> = (0..100).map(|k| k % 50 < if k < 50 { 10 } else { 40 }).collect();
        assert!(Calibration::new(&p, &labels, 15).unwrap().error() < 1e-12);
        let sure: Vec<f64> = p.iter().map(|&p| if p < 0.5 { 0.0 } else { 1.0 }).collect();
        assert!((Calibration::new(&sure, &labels, 15).unwrap().error() - 0.2).abs() < 1e-12);
    }

    #[test]
    fn what_is_no_probability_is_refused() {
        for bad in [f64::NAN, -0.1, 1.1] {
            let error = Calibration::new(&[0.5, bad], &[true, false], 10).unwrap_err().to_string();
            assert!(error.contains("of sample 1"), "{error}");
        }
        assert!(Calibration::new(&[0.5], &[], 10).is_err() && Calibration::new(&[], &[], 10).is_err());
        assert!(Calibration::new(&[0.5], &[true], 0).is_err());
    }
}
