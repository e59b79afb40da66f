//! Diagnosis of the gradients of a step, parameter by parameter.

use crate::{Error, Parameter, Result};
use gradewise_kernels::{Array, Validation};
use std::fmt;

/// The state of one parameter's gradient.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GradientState {
    /// Every element is finite.
    Finite,
    /// There is no gradient: the loss does not depend on the parameter.
    Missing,
    /// Some elements are NaN or infinite.
    NotFinite {
        /// Number of NaN.
        nan: usize,
        /// Number of ±∞.
        infinite: usize,
    },
}

/// The gradients of the trained parameters of a model, one row each.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GradientReport(pub Vec<(String, GradientState)>);

impl GradientReport {
    /// Checks the gradient of every parameter. Copies all of them to the host: for diagnosis, not for every step.
    ///
    /// # Errors
    /// [`Error::Argument`] if there are not as many gradients as parameters.
    pub fn of(parameters: &[(String, Parameter)], gradients: &[Option<Array>]) -> Result<Self> {
        if parameters.len() != gradients.len() {
            return Err(Error::Argument {
                operation: "gradient report",
                argument: "gradients",
                actual: gradients.len().to_string(),
                expected: format!("{}, the number of parameters", parameters.len()),
            });
        }
        let state = |gradient: &Option<Array>| -> Result<GradientState> {
            let Some(gradient) = gradient else { return Ok(GradientState::Missing) };
            let Validation { nan, infinite, .. } = gradient.validate()?;
            let finite = nan + infinite == 0;
            Ok(if finite { GradientState::Finite } else { GradientState::NotFinite { nan, infinite } })
        };
        let row = |((name, _), gradient): (&(String, Parameter), _)| Ok((name.clone(), state(gradient)?));
        let trained = |((_, parameter), _): &(&(String, Parameter), _)| parameter.is_trained();
        Ok(Self(parameters.iter().zip(gradients).filter(trained).map(row).collect::<Result<_>>()?))
    }

    /// The parameters whose gradient is missing, NaN or infinite somewhere.
    pub fn faults(&self) -> impl Iterator<Item = (&str, GradientState)> {
        let faulty = |(_, state): &&(String, GradientState)| *state != GradientState::Finite;
        self.0.iter().filter(faulty).map(|(name, state)| (name.as_str(), *state))
    }
}

/// One line per fault; a single line if there is none.
impl fmt::Display for GradientReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.faults().next().is_none() {
            return write!(f, "all {} gradients are finite", self.0.len());
        }
        let mut separator = "";
        for (name, state) in self.faults() {
            write!(f, "{separator}{name}: ")?;
            match state {
                GradientState::Missing => f.write_str("no gradient; the loss does not depend on it")?,
                GradientState::NotFinite { nan, infinite } => write!(f, "{nan} NaN, {infinite} infinite")?,
                GradientState::Finite => {}
            }
            separator = "\n";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gradewise_kernels::Device;

    #[test]
    fn missing_nan_and_infinite_gradients_are_named() {
        let array = |values: &[f64]| Array::from_slice(values, [values.len()], &Device::Cpu).unwrap();
        let parameters: Vec<(String, Parameter)> =
            ["a", "b", "c"].map(|name| (name.to_owned(), Parameter::new(array(&[1.0, 2.0, 3.0])))).into();
        let fine = vec![Some(array(&[0.0, 1.0, 2.0])); 3];
        let report = GradientReport::of(&parameters, &fine).unwrap();
        assert_eq!((report.faults().count(), report.to_string().as_str()), (0, "all 3 gradients are finite"));

        let bad = [None, Some(array(&[f64::NAN, f64::INFINITY, f64::NEG_INFINITY])), fine[2].clone()];
        let report = GradientReport::of(&parameters, &bad).unwrap();
        let expected =
            [("a", GradientState::Missing), ("b", GradientState::NotFinite { nan: 1, infinite: 2 })];
        assert_eq!(report.faults().collect::<Vec<_>>(), expected);
        let text = report.to_string();
        assert!(text.contains("a: no gradient") && text.contains("b: 1 NaN, 2 infinite"), "{text}");
        assert!(GradientReport::of(&parameters, &fine[..2]).is_err());
    }
}
