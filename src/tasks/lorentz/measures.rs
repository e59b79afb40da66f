//! The measures of a tagger: those of the field, with their statistical errors.

use gradewise_nn::metrics::{Calibration, Estimate, Ranking};
use gradewise_runner::{plots, prelude::*};
use serde_json::{Value, json};

/// Bins of predicted probability, as in Guo et al. 2017.
const BINS: usize = 15;
/// Points of the curve.
const POINTS: usize = 200;
const ROC: &str = "roc";
const RELIABILITY: &str = "reliability";

/// Log odds whose probability is the mean of those of `each` model: ln p̄ − ln(1 − p̄).
pub fn mean_log_odds(each: &[Vec<f64>]) -> Vec<f64> {
    let [first, ..] = each else { return Vec::new() };
    if each.len() == 1 {
        return first.clone();
    }
    // Relative to the first model, so that equal ones say what each says, to the bit.
    let log_mean = |log: &dyn Fn(f64) -> f64, k: usize| {
        let ratios: Vec<f64> = each.iter().map(|scores| log(scores[k]) - log(first[k])).collect();
        let most = ratios.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let mean = ratios.iter().map(|ratio| (ratio - most).exp()).sum::<f64>() / each.len() as f64;
        most + mean.ln()
    };
    let mean = |k: usize| {
        first[k] + (log_mean(&|score| -softplus(-score), k) - log_mean(&|score| -softplus(score), k))
    };
    (0..first.len()).map(mean).collect()
}

/// ln(1 + eˣ), without overflow.
fn softplus(x: f64) -> f64 {
    (-x.abs()).exp().ln_1p() + x.max(0.0)
}

/// The measures of log odds of signal. Scores that are not finite, which diverged weights give, have a cross-entropy that is not; samples of
/// one class alone have cross-entropy and accuracy.
pub fn measures(scores: &[f64], labels: &[bool]) -> gradewise_nn::Result<Measures> {
    let count = labels.len();
    let entropy = |(score, label): (&f64, &bool)| softplus(if *label { -*score } else { *score });
    let correct = scores.iter().zip(labels).filter(|(score, label)| (**score > 0.0) == **label).count();
    let mean = scores.iter().zip(labels).map(entropy).sum::<f64>() / count as f64;
    let measures = Measures::new("cross_entropy", "cross-entropy", mean).estimated(
        "accuracy",
        "accuracy",
        Estimate::share(correct, count),
    );
    let signal = labels.iter().filter(|&&label| label).count();
    if !mean.is_finite() || signal == 0 || signal == count {
        return Ok(measures);
    }
    let ranking = Ranking::new(scores, labels)?;
    let probabilities: Vec<f64> = scores.iter().map(|score| (-softplus(-score)).exp()).collect();
    let calibration = Calibration::new(&probabilities, labels, BINS)?;
    let curve: Vec<[f64; 2]> =
        ranking.roc(POINTS).iter().map(|point| [point.signal, point.background]).collect();
    Ok(measures
        .estimated("auc", "AUC", ranking.auc())
        .estimated("rejection_50", "background rejection at 50% signal efficiency", ranking.rejection(0.5))
        .estimated("rejection_30", "background rejection at 30% signal efficiency", ranking.rejection(0.3))
        .and("calibration_error", "expected calibration error", calibration.error())
        .table(ROC, json!(curve))
        .table(RELIABILITY, json!(calibration.bins())))
}

/// Draws the curves of the measures, where they have any.
pub fn figures(measures: &Measures, title: &str, folder: &RunFolder) -> Result<Vec<&'static str>> {
    const FILES: [&str; 2] = ["roc.svg", "reliability.svg"];
    let pairs = |table: &str, pair: &dyn Fn(&Value) -> Option<(f64, f64)>| -> Vec<(f64, f64)> {
        let rows = measures.tables().get(table).and_then(Value::as_array);
        rows.map_or_else(Vec::new, |rows| rows.iter().filter_map(pair).collect())
    };
    let curve = pairs(ROC, &|point| Some((point[0].as_f64()?, 1.0 / point[1].as_f64()?)));
    let bins = pairs(RELIABILITY, &|bin| Some((bin["predicted"].as_f64()?, bin["observed"].as_f64()?)));
    if curve.is_empty() {
        return Ok(Vec::new());
    }
    plots::roc(&folder.file(FILES[0]), &curve, title)?;
    plots::reliability(&folder.file(FILES[1]), &bins, title)?;
    Ok(FILES.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ensemble_has_the_mean_of_the_probabilities() {
        let probability = |score: f64| 1.0 / (1.0 + (-score).exp());
        let each = [vec![2.0, -800.0, 900.0], vec![-1.0, -700.0, 800.0], vec![0.5, -900.0, 700.0]];
        let together = mean_log_odds(&each);
        let mean = (probability(2.0) + probability(-1.0) + probability(0.5)) / 3.0;
        assert!((probability(together[0]) - mean).abs() < 1e-15);
        // The likeliest of three decides where others underflow.
        assert!((together[1] + 700.0 + 3f64.ln()).abs() < 1e-9, "{}", together[1]);
        assert!((together[2] - 700.0 - 3f64.ln()).abs() < 1e-9, "{}", together[2]);
        assert_eq!(mean_log_odds(&each[..1]), each[0]);
        let uneven = vec![0.1234567, -31.7, 12.345];
        assert_eq!(mean_log_odds(&[uneven.clone(), uneven.clone(), uneven.clone()]), uneven);
    }

    #[test]
    fn measures_of_a_few_scores_are_known() {
        let labels = [true, true, false, true, false, false];
        let found = measures(&[3.0, 2.0, 1.0, 0.5, -2.0, -3.0], &labels).unwrap();
        let value = |key: &str| found.iter().find(|measure| measure.key == key).unwrap().value;
        assert!((value("auc") - 8.0 / 9.0).abs() < 1e-12 && value("rejection_50") == 3.0);
        assert!((value("accuracy") - 5.0 / 6.0).abs() < 1e-12);
        let entropy = |margin: f64| (1.0 + (-margin).exp()).ln();
        let mean = [3.0, 2.0, -1.0, 0.5, 2.0, 3.0].map(entropy).iter().sum::<f64>() / 6.0;
        assert!((value("cross_entropy") - mean).abs() < 1e-12);
        let folder = tempfile::tempdir().unwrap();
        let drawn = figures(&found, "toy", &RunFolder::at(folder.path())).unwrap();
        assert!(drawn.len() == 2 && drawn.iter().all(|file| folder.path().join(file).is_file()));
    }

    #[test]
    fn diverged_scores_and_single_classes_have_no_ranking() {
        let diverged = measures(&[f64::NAN, 1.0], &[true, false]).unwrap();
        assert!(!diverged.are_finite() && diverged.others().len() == 1);
        let single = measures(&[2.0, 1.0], &[true, true]).unwrap();
        assert!(single.are_finite() && single.others().len() == 1 && single.tables().is_empty());
    }
}
