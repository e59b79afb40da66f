//! Statistics of a model's parameters, for example after initialisation.

use crate::{Module, Result};
use gradewise_core::Shape;
use std::fmt;

/// Statistics of one parameter.
#[derive(Clone, Debug, PartialEq)]
pub struct ParameterSummary {
    /// Full name.
    pub name: String,
    /// Sizes along the axes.
    pub shape: Shape,
    /// Arithmetic mean.
    pub mean: f64,
    /// Standard deviation.
    pub deviation: f64,
    /// Smallest and largest value.
    pub range: (f64, f64),
}

/// The parameters of a model, one row each.
#[derive(Clone, Debug, PartialEq)]
pub struct InitTable(pub Vec<ParameterSummary>);

/// Summarises every parameter of `module`.
///
/// # Errors
/// From the device, if a parameter cannot be copied to the host.
pub fn init_table(module: &dyn Module) -> Result<InitTable> {
    let row = |(name, parameter): (String, crate::Parameter)| {
        let values = parameter.array().to_f64_vec()?;
        let count = values.len().max(1) as f64;
        let mean = values.iter().sum::<f64>() / count;
        let deviation = (values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count).sqrt();
        let range = values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), &value| {
            (low.min(value), high.max(value))
        });
        Ok(ParameterSummary { name, shape: parameter.shape(), mean, deviation, range })
    };
    Ok(InitTable(module.named_parameters().into_iter().map(row).collect::<Result<_>>()?))
}

impl fmt::Display for InitTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.0.iter().map(|row| row.name.len()).max().unwrap_or(0).max("parameter".len());
        writeln!(
            f,
            "{:width$}  {:>14}  {:>10}  {:>10}  {:>10}  {:>10}",
            "parameter", "shape", "mean", "std", "min", "max"
        )?;
        for row in &self.0 {
            let (shape, (low, high)) = (row.shape.to_string(), row.range);
            writeln!(
                f,
                "{:width$}  {shape:>14}  {:>10.4}  {:>10.4}  {low:>10.4}  {high:>10.4}",
                row.name, row.mean, row.deviation
            )?;
        }
        let total: usize = self.0.iter().map(|row| row.shape.elements()).sum();
        write!(f, "{:width$}  {total:>14}", "total")
    }
}
