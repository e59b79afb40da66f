//! What follows from the order of scores alone.

use super::estimate::Estimate;
use crate::{Error, Result};

const OPERATION: &str = "ranking";

/// The samples of a binary classifier, sorted by score. Nothing here changes under an increasing map of the scores.
#[derive(Clone, Debug)]
pub struct Ranking {
    /// Signal and background at each distinct score, from the highest down.
    steps: Vec<(usize, usize)>,
    signal: usize,
    background: usize,
}

/// A cut on the score.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RocPoint {
    /// The share of the signal that passes.
    pub signal: f64,
    /// The share of the background that passes.
    pub background: f64,
}

impl Ranking {
    /// From a score of each sample, higher for more like signal, and whether it is signal.
    ///
    /// # Errors
    /// [`Error::NotFinite`] for a score that is NaN; [`Error::Argument`] for lengths that differ, and for samples of one class alone, whose
    /// order says nothing.
    pub fn new(scores: &[f64], labels: &[bool]) -> Result<Self> {
        let refuse = |actual: String, expected: &str| {
            let expected = expected.to_owned();
            Err(Error::Argument { operation: OPERATION, argument: "labels", actual, expected })
        };
        if scores.len() != labels.len() {
            return refuse(format!("{} labels", labels.len()), &format!("{}, one a score", scores.len()));
        }
        if let Some(index) = scores.iter().position(|score| score.is_nan()) {
            let (argument, index, value) = ("scores".to_owned(), vec![index], scores[index]);
            return Err(Error::NotFinite { operation: OPERATION, argument, index, value });
        }
        let signal = labels.iter().filter(|&&label| label).count();
        let background = labels.len() - signal;
        if signal == 0 || background == 0 {
            return refuse(format!("{signal} signal, {background} background"), "samples of both classes");
        }
        let mut pairs: Vec<(f64, bool)> = scores.iter().copied().zip(labels.iter().copied()).collect();
        pairs.sort_by(|a, b| b.0.total_cmp(&a.0));
        let mut steps: Vec<(usize, usize)> = Vec::new();
        let mut last = None;
        for (score, label) in pairs {
            // 0 and −0 are one score.
            if last != Some(score) {
                steps.push((0, 0));
                last = Some(score);
            }
            if let Some(step) = steps.last_mut() {
                if label { step.0 += 1 } else { step.1 += 1 }
            }
        }
        Ok(Self { steps, signal, background })
    }

    /// The area under the receiver operating characteristic: the probability that a signal sample scores above a background sample,
    /// ties counting half. Its standard error is that of DeLong, DeLong and Clarke-Pearson (1988, doi:10.2307/2531595): the variance of
    /// each sample's share of pairs won, over the samples of its class. It is 0 for a class of one sample, whose variance is unknown.
    pub fn auc(&self) -> Estimate {
        let (signals, backgrounds) = (self.signal as f64, self.background as f64);
        let (mut above, mut below) = (0.0, backgrounds);
        // Sums of the squared shares; the sum of the shares is the area times the number of samples.
        let (mut won, mut won_squared, mut lost_squared) = (0.0, 0.0, 0.0);
        for &(signal, background) in &self.steps {
            let (signal, background) = (signal as f64, background as f64);
            let share = (below - background / 2.0) / backgrounds;
            won += signal * share;
            won_squared += signal * share * share;
            let beaten = (above + signal / 2.0) / signals;
            lost_squared += background * beaten * beaten;
            above += signal;
            below -= background;
        }
        let value = won / signals;
        let variance = |squares: f64, count: f64| {
            let spread = (squares / count - value * value).max(0.0);
            if count > 1.0 { spread / (count - 1.0) } else { 0.0 }
        };
        let error = (variance(won_squared, signals) + variance(lost_squared, backgrounds)).sqrt();
        Estimate { value, error }
    }

    /// Background rejection: one over the share ε of background that passes the cut at which at least the share `efficiency` of the signal
    /// passes. Its standard error is that of ε as a binomial share, √(ε(1 − ε)/n), carried over: √((1 − ε)/(εn))/ε. If no background
    /// passes, both are those of one that does: the smallest rejection that the samples could have shown.
    pub fn rejection(&self, efficiency: f64) -> Estimate {
        let wanted = efficiency * self.signal as f64;
        let (mut signal, mut background) = (0, 0);
        for step in &self.steps {
            signal += step.0;
            background += step.1;
            if signal as f64 >= wanted {
                break;
            }
        }
        let Estimate { value: passed, error } = Estimate::share(background.max(1), self.background);
        Estimate { value: 1.0 / passed, error: error / (passed * passed) }
    }

    /// The receiver operating characteristic: the shares that pass at cuts where the signal's grows by at least `1 / points`, from none
    /// to all.
    pub fn roc(&self, points: usize) -> Vec<RocPoint> {
        let apart = self.signal as f64 / points.max(1) as f64;
        let at = |(signal, background): (usize, usize)| RocPoint {
            signal: signal as f64 / self.signal as f64,
            background: background as f64 / self.background as f64,
        };
        let (mut passed, mut next) = ((0, 0), 0.0);
        let mut curve = vec![at(passed)];
        for &(signal, background) in &self.steps {
            passed = (passed.0 + signal, passed.1 + background);
            if passed.0 as f64 >= next && signal > 0 {
                curve.push(at(passed));
                next = passed.0 as f64 + apart;
            }
        }
        if curve.last().is_some_and(|last| last.signal < 1.0 || last.background < 1.0) {
            curve.push(at(passed));
        }
        curve
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_rankings_have_their_measures() {
        let labels = [true, true, false, true, false, false];
        let ranking = Ranking::new(&[0.9, 0.8, 0.7, 0.6, 0.5, 0.4], &labels).unwrap();
        assert!((ranking.auc().value - 8.0 / 9.0).abs() < 1e-15);
        assert_eq!(ranking.rejection(0.6).value, 3.0, "none passes with two of three signals");
        // One of three: ε = 1/3, so the error is √(2/9/3)·9.
        let Estimate { value, error } = ranking.rejection(1.0);
        assert!(value == 3.0 && (error - 9.0 * (2.0f64 / 27.0).sqrt()).abs() < 1e-12, "{error}");
        let constant = Ranking::new(&[0.5, 0.5, 0.5, 0.5, 0.0, -0.0], &labels).unwrap();
        assert_eq!((constant.auc().value, constant.rejection(0.5).value), (5.0 / 6.0, 3.0));
        assert_eq!(constant.roc(10).len(), 3, "zeros of both signs are one cut");
    }

    #[test]
    fn scores_without_an_order_are_refused() {
        let scores = Ranking::new(&[1.0, f64::NAN], &[true, false]).unwrap_err();
        assert!(matches!(scores, Error::NotFinite { index, .. } if index == [1]));
        for (scores, labels) in [(&[1.0][..], &[true][..]), (&[], &[]), (&[1.0, 2.0], &[false, false])] {
            let error = Ranking::new(scores, labels).unwrap_err();
            assert!(error.to_string().contains("both classes"), "{error}");
        }
        assert!(Ranking::new(&[1.0, 2.0], &[true]).unwrap_err().to_string().contains("one a score"));
    }

    fn samples() -> impl Strategy<Value = Vec<(u8, bool)>> {
        prop::collection::vec((0u8..6, any::<bool>()), 2..40).prop_filter("both classes", |samples| {
            samples.iter().any(|s| s.1) && samples.iter().any(|s| !s.1)
        })
    }

    fn split(samples: &[(u8, bool)]) -> (Vec<f64>, Vec<bool>) {
        samples.iter().map(|&(score, label)| (f64::from(score), label)).unzip()
    }

    /// The mean, and its variance, of numbers.
    fn moments(values: &[f64]) -> (f64, f64) {
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        (mean, if count > 1.0 { squares / (count - 1.0) / count } else { 0.0 })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        #[test]
        fn the_area_and_its_error_count_pairs(samples in samples()) {
            let of = |wanted: bool| samples.iter().filter(move |s| s.1 == wanted).map(|s| s.0);
            let won = |a: u8, b: u8| if a > b { 1.0 } else if a == b { 0.5 } else { 0.0 };
            let (signals, backgrounds) = (of(true).count() as f64, of(false).count() as f64);
            let shares: Vec<f64> =
                of(true).map(|a| of(false).map(|b| won(a, b)).sum::<f64>() / backgrounds).collect();
            let beaten: Vec<f64> =
                of(false).map(|b| of(true).map(|a| won(a, b)).sum::<f64>() / signals).collect();
            let ((mean, first), (_, second)) = (moments(&shares), moments(&beaten));
            let (scores, labels) = split(&samples);
            let area = Ranking::new(&scores, &labels).unwrap().auc();
            prop_assert!((area.value - mean).abs() < 1e-12, "{area:?}");
            prop_assert!((area.error - (first + second).sqrt()).abs() < 1e-7, "{area:?} {first} {second}");
        }

        #[test]
        fn rejection_falls_with_efficiency_and_is_that_of_the_curve(samples in samples(), cut in 0.01f64..1.0) {
            let (scores, labels) = split(&samples);
            let ranking = Ranking::new(&scores, &labels).unwrap();
            let rejections: Vec<f64> = (1..=20).map(|k| ranking.rejection(f64::from(k) / 20.0).value).collect();
            prop_assert!(rejections.is_sorted_by(|a, b| a >= b), "{rejections:?}");
            let curve = ranking.roc(scores.len());
            prop_assert!(curve.is_sorted_by(|a, b| a.signal <= b.signal && a.background <= b.background));
            let passed = curve.iter().find(|point| point.signal >= cut - 1e-12).unwrap().background;
            let least = 1.0 / labels.iter().filter(|label| !**label).count() as f64;
            let expected = 1.0 / passed.max(least);
            prop_assert!((ranking.rejection(cut).value - expected).abs() < 1e-9 * expected);
        }

        #[test]
        fn an_increasing_map_of_the_scores_changes_nothing(samples in samples(), slope in 0.1f64..9.0) {
            let (scores, labels) = split(&samples);
            let bent: Vec<f64> = scores.iter().map(|score| (slope * score).exp() - 3.0).collect();
            let (a, b) = (Ranking::new(&scores, &labels).unwrap(), Ranking::new(&bent, &labels).unwrap());
            prop_assert_eq!((a.auc(), a.rejection(0.3), a.roc(9)), (b.auc(), b.rejection(0.3), b.roc(9)));
        }
    }

    /// 400 sets of samples: the spread of the estimates is the mean of their errors.
    #[test]
    fn errors_are_the_spread_over_other_samples() {
        use rand::{RngExt, SeedableRng};
        use rand_distr::StandardNormal;
        let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(5);
        let mut estimates: [Vec<Estimate>; 2] = [Vec::new(), Vec::new()];
        for _ in 0..400 {
            let labels: Vec<bool> = (0..2000).map(|k| k % 2 == 0).collect();
            let scores: Vec<f64> = labels
                .iter()
                .map(|&label| rng.sample::<f64, _>(StandardNormal) + if label { 1.5 } else { 0.0 })
                .collect();
            let ranking = Ranking::new(&scores, &labels).unwrap();
            estimates[0].push(ranking.auc());
            estimates[1].push(ranking.rejection(0.8));
        }
        // The cut's own spread comes on top for the rejection, as in the publications' errors, which leave it out.
        for (estimates, bounds) in estimates.iter().zip([0.9..1.1, 0.6..1.1]) {
            let values: Vec<f64> = estimates.iter().map(|estimate| estimate.value).collect();
            let spread = (moments(&values).1 * values.len() as f64).sqrt();
            let error = estimates.iter().map(|e| e.error).sum::<f64>() / estimates.len() as f64;
            assert!(bounds.contains(&(error / spread)), "{error} {spread}");
        }
    }
}
