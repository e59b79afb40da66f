//! Measures of classifiers.

/// The samples of a binary classifier, sorted by score.
#[derive(Clone, Debug)]
pub struct Ranking {
    /// Signal and background at each distinct score, from the highest down.
    steps: Vec<(usize, usize)>,
    signal: usize,
    background: usize,
}

impl Ranking {
    /// From a score of each sample, higher for more like signal, and whether it is signal. Scores that are NaN rank lowest; samples
    /// without a partner in the other slice are left out.
    pub fn new(scores: &[f64], labels: &[bool]) -> Self {
        let key = |score: f64| if score.is_nan() { f64::NEG_INFINITY } else { score };
        let mut pairs: Vec<(f64, bool)> =
            scores.iter().map(|&score| key(score)).zip(labels.iter().copied()).collect();
        pairs.sort_by(|a, b| b.0.total_cmp(&a.0));
        let mut steps: Vec<(usize, usize)> = Vec::new();
        let mut last = None;
        for (score, label) in pairs {
            if last != Some(score) {
                steps.push((0, 0));
                last = Some(score);
            }
            if let Some(step) = steps.last_mut() {
                if label { step.0 += 1 } else { step.1 += 1 }
            }
        }
        let (signal, background) = steps.iter().fold((0, 0), |sum, step| (sum.0 + step.0, sum.1 + step.1));
        Self { steps, signal, background }
    }

    /// The area under the receiver operating characteristic: the probability that a signal sample scores above a background sample,
    /// ties counting half. NaN without samples of both classes.
    pub fn auc(&self) -> f64 {
        let mut above = 0usize;
        let mut twice = 0f64;
        for &(signal, background) in &self.steps {
            twice += background as f64 * (2 * above + signal) as f64;
            above += signal;
        }
        twice / 2.0 / (self.signal as f64 * self.background as f64)
    }

    /// Background rejection: one over the share of background that passes the cut at which at least the share `efficiency` of the signal
    /// passes. If no background passes, it is the number of background samples: the smallest rejection that the samples could have shown.
    /// NaN without samples of both classes.
    pub fn rejection(&self, efficiency: f64) -> f64 {
        if self.signal == 0 || self.background == 0 {
            return f64::NAN;
        }
        let wanted = efficiency * self.signal as f64;
        let (mut signal, mut background) = (0, 0);
        for step in &self.steps {
            signal += step.0;
            background += step.1;
            if signal as f64 >= wanted {
                break;
            }
        }
        self.background as f64 / background.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_rankings_have_their_measures() {
        let labels = [true, true, false, true, false, false];
        let ranking = Ranking::new(&[0.9, 0.8, 0.7, 0.6, 0.5, 0.4], &labels);
        assert!((ranking.auc() - 8.0 / 9.0).abs() < 1e-15);
        assert_eq!(ranking.rejection(0.6), 3.0, "none passes with two of three signals");
        assert_eq!(ranking.rejection(1.0), 3.0, "one of three");
        let constant = Ranking::new(&[0.5; 6], &labels);
        assert_eq!((constant.auc(), constant.rejection(0.5)), (0.5, 1.0));
        assert!(Ranking::new(&[1.0], &[true]).auc().is_nan());
        assert!(Ranking::new(&[], &[]).rejection(0.5).is_nan());
        assert_eq!(Ranking::new(&[f64::NAN, 1.0], &[true, false]).auc(), 0.0);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn the_area_counts_pairs(samples in prop::collection::vec((0u8..6, any::<bool>()), 1..40)) {
            let (scores, labels): (Vec<f64>, Vec<bool>) =
                samples.iter().map(|&(score, label)| (f64::from(score), label)).unzip();
            let (mut won, mut pairs) = (0.0, 0.0);
            for (a, _) in samples.iter().filter(|(_, label)| *label) {
                for (b, _) in samples.iter().filter(|(_, label)| !*label) {
                    pairs += 1.0;
                    won += if a > b { 1.0 } else if a == b { 0.5 } else { 0.0 };
                }
            }
            let area = Ranking::new(&scores, &labels).auc();
            let agrees = if pairs == 0.0 { area.is_nan() } else { (area - won / pairs).abs() < 1e-12 };
            prop_assert!(agrees, "{area}");
        }
    }
}
