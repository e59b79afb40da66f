//! The measures of a model.

use super::bootstrap::{Interval, interval};
use crate::error::{Error, Result};
use gradewise_nn::metrics::Estimate;
use serde::Serialize;
use serde_json::{Map, Value};

/// A named number.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Measure {
    /// The key in files, after the split: `mse`.
    pub key: &'static str,
    /// The label in text: `MSE`.
    pub label: &'static str,
    /// The number.
    pub value: f64,
    /// Its standard error over other samples of the same distribution, if that is known.
    pub error: Option<f64>,
}

impl Measure {
    /// The value as text, with its error.
    pub fn text(&self) -> String {
        match self.error {
            Some(error) => format!("{} ± {}", number(self.value), number(error)),
            None => number(self.value),
        }
    }
}

/// The measures of a model on a split. The first is the primary one, by which weights are selected; smaller is better.
#[derive(Clone, PartialEq, Debug)]
pub struct Measures {
    all: Vec<Measure>,
    /// The errors of single samples, whose mean is the first measure, if they are known.
    each: Vec<f64>,
    /// What the measures are drawn from, such as curves.
    tables: Map<String, Value>,
}

impl Measures {
    /// Starts with the primary measure.
    pub fn new(key: &'static str, label: &'static str, value: f64) -> Self {
        Self { all: vec![Measure { key, label, value, error: None }], each: Vec::new(), tables: Map::new() }
    }

    /// Adds a measure.
    #[must_use]
    pub fn and(mut self, key: &'static str, label: &'static str, value: f64) -> Self {
        self.all.push(Measure { key, label, value, error: None });
        self
    }

    /// Adds a measure with its standard error.
    #[must_use]
    pub fn estimated(mut self, key: &'static str, label: &'static str, estimate: Estimate) -> Self {
        let Estimate { value, error } = estimate;
        self.all.push(Measure { key, label, value, error: Some(error) });
        self
    }

    /// Adds a table that belongs to the measures, such as a curve; the records of evaluations during training leave it out.
    #[must_use]
    pub fn table(mut self, key: &str, table: Value) -> Self {
        self.tables.insert(key.to_owned(), table);
        self
    }

    /// The tables, by their keys.
    pub fn tables(&self) -> &Map<String, Value> {
        &self.tables
    }

    /// Adds the errors of single samples, whose mean is the first measure; they determine its [`interval`](Self::interval).
    #[must_use]
    pub fn of_samples(mut self, errors: Vec<f64>) -> Self {
        self.each = errors;
        self
    }

    /// The bootstrap interval of the primary measure, for the choice of samples; `None` if the errors of single samples
    /// are not known.
    pub fn interval(&self) -> Option<Interval> {
        interval(&self.each)
    }

    /// The primary measure.
    pub fn first(&self) -> Measure {
        self.all[0]
    }

    /// All measures.
    pub fn iter(&self) -> impl Iterator<Item = &Measure> {
        self.all.iter()
    }

    /// All measures but the first.
    pub fn others(&self) -> &[Measure] {
        &self.all[1..]
    }

    /// Whether the primary measure is finite, that is, the weights have not diverged. Others may be legitimately infinite, such as a
    /// rejection where no background passes.
    pub fn are_finite(&self) -> bool {
        self.first().value.is_finite()
    }

    /// The verdict on `weights` measured on `split`.
    ///
    /// # Errors
    /// [`Error::Diverged`] if the primary measure is not finite.
    pub fn verdict(&self, split: &str, weights: &str) -> Result<()> {
        if self.are_finite() {
            return Ok(());
        }
        let Measure { label, value, .. } = self.first();
        Err(Error::Diverged {
            measured: format!("the {split} {label} is {value}"),
            weights: weights.to_owned(),
        })
    }

    /// `{"<prefix>mse": …, "<prefix>mse_error": …, "<prefix>verdict": "diverged"}`, the error only where it is known, and the latter only if the weights have diverged: JSON has no NaN, and null alone
    /// does not give the reason.
    pub fn json(&self, prefix: &str) -> Map<String, Value> {
        let mut record: Map<String, Value> = self
            .all
            .iter()
            .map(|measure| (format!("{prefix}{}", measure.key), measure.value.into()))
            .collect();
        for measure in &self.all {
            if let Some(error) = measure.error {
                record.insert(format!("{prefix}{}_error", measure.key), error.into());
            }
        }
        if !self.are_finite() {
            record.insert(format!("{prefix}verdict"), "diverged".into());
        }
        record
    }
}

/// Mean and spread of some numbers, such as those of several seeds.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Statistic {
    /// The arithmetic mean.
    pub mean: f64,
    /// Sample standard deviation; `None` for a single value.
    pub standard_deviation: Option<f64>,
}

impl Statistic {
    /// The statistic of some values.
    pub fn of(values: &[f64]) -> Self {
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let standard_deviation = (values.len() > 1).then(|| (squares / (count - 1.0)).sqrt());
        Self { mean, standard_deviation }
    }
}

/// Formats a measure: four decimals, or three significant digits for small values.
pub fn number(value: f64) -> String {
    if value != 0.0 && value.abs() < 1e-3 { format!("{value:.2e}") } else { format!("{value:.4}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_numbers_keep_their_digits() {
        assert_eq!(number(0.00390), "0.0039");
        assert_eq!(number(0.0), "0.0000");
        assert_eq!(number(1.234e-6), "1.23e-6");
        assert_eq!(number(f64::NAN), "NaN");
        let measures = Measures::new("mse", "MSE", 0.5).and("mae", "MAE", 0.25);
        assert_eq!(
            serde_json::to_string(&measures.json("test_")).unwrap(),
            r#"{"test_mae":0.25,"test_mse":0.5}"#
        );
        assert_eq!((measures.first().value, measures.others().len()), (0.5, 1));
    }

    #[test]
    fn errors_stand_beside_their_measures_and_tables_apart() {
        let estimate = Estimate { value: 0.95, error: 0.002 };
        let measures = Measures::new("loss", "loss", 0.5)
            .estimated("auc", "AUC", estimate)
            .table("roc", serde_json::json!([[0, 0]]));
        assert_eq!(measures.others()[0].text(), "0.9500 ± 0.0020");
        assert_eq!(
            serde_json::to_string(&measures.json("")).unwrap(),
            r#"{"auc":0.95,"auc_error":0.002,"loss":0.5}"#
        );
        assert_eq!(measures.tables()["roc"], serde_json::json!([[0, 0]]));
    }

    #[test]
    fn an_interval_is_known_where_the_errors_of_samples_are() {
        let measures = Measures::new("mse", "MSE", 2.0);
        assert_eq!(measures.interval(), None);
        let Interval { low, high } = measures.of_samples(vec![1.0, 2.0, 3.0]).interval().unwrap();
        assert!((1.0..2.0).contains(&low) && 2.0 < high && high <= 3.0, "{low} {high}");
    }

    #[test]
    fn what_is_not_finite_is_the_fault_of_the_weights() {
        let sound = Measures::new("mse", "MSE", 0.5).and("rejection", "rejection", f64::INFINITY);
        assert!(sound.verdict("test", "the weights").is_ok());
        for value in [f64::NAN, f64::INFINITY] {
            let diverged = Measures::new("mse", "MSE", value);
            let error = diverged.verdict("test", "the weights of step 3").unwrap_err();
            assert!(
                matches!(&error, Error::Diverged { .. }) && error.to_string().contains("the test MSE is")
            );
            assert_eq!(diverged.json("test_")["test_verdict"], "diverged");
        }
    }
}
