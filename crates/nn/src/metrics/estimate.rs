//! Numbers with their statistical error.

use serde::Serialize;

/// A number with its standard error: one standard deviation over other samples of the same distribution.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Estimate {
    /// The number.
    pub value: f64,
    /// Its standard error.
    pub error: f64,
}

impl Estimate {
    /// A share of `count` samples, `part` of them, with the standard error √(p(1 − p)/n) of a binomial distribution. NaN for no samples.
    pub fn share(part: usize, count: usize) -> Self {
        let (count, value) = (count as f64, part as f64 / count as f64);
        Self { value, error: (value * (1.0 - value) / count).sqrt() }
    }
}
