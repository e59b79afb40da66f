//! What is measured of a model.

use serde_json::{Map, Value};

/// One number.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Measure {
    /// In files, after the split: `mse`.
    pub key: &'static str,
    /// In text: `MSE`.
    pub label: &'static str,
    pub value: f64,
}

/// The measures of a model on a split; the first decides, and smaller is better.
#[derive(Clone, PartialEq, Debug)]
pub struct Measures(Vec<Measure>);

impl Measures {
    /// With the measure that decides.
    pub fn new(key: &'static str, label: &'static str, value: f64) -> Self {
        Self(vec![Measure { key, label, value }])
    }

    /// With one more.
    #[must_use]
    pub fn and(mut self, key: &'static str, label: &'static str, value: f64) -> Self {
        self.0.push(Measure { key, label, value });
        self
    }

    /// The one that decides.
    pub fn first(&self) -> Measure {
        self.0[0]
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Measure> {
        self.0.iter()
    }

    /// Those after the first.
    pub fn others(&self) -> &[Measure] {
        &self.0[1..]
    }

    /// `{"<prefix>mse": …}`
    pub fn json(&self, prefix: &str) -> Map<String, Value> {
        self.0.iter().map(|measure| (format!("{prefix}{}", measure.key), measure.value.into())).collect()
    }
}

/// A measure for readers: four decimals, or three digits where these would be zeros.
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
}
