//! Norms of gradients, and their limits.

use crate::{Error, Result};
use gradewise_kernels::{Array, ops};

/// Euclidean norms of the gradients of one step.
#[derive(Clone, PartialEq, Debug)]
pub struct GradientNorms {
    /// The norm of all gradients together.
    pub total: f64,
    /// The norm of each gradient, in the order given; 0 for a missing one.
    pub each: Vec<f64>,
}

impl GradientNorms {
    /// Measures the gradients.
    ///
    /// # Errors
    /// From the device.
    pub fn of(gradients: &[Option<Array>]) -> Result<Self> {
        let squares = gradients
            .iter()
            .flatten()
            .map(|gradient| {
                let axes: Vec<usize> = (0..gradient.rank()).collect();
                Ok(ops::sum(&ops::square(gradient)?, &axes, false)?.reshape([1])?)
            })
            .collect::<Result<Vec<_>>>()?;
        // One transfer from the device for all of them.
        let squares = match squares.is_empty() {
            true => Vec::new(),
            false => ops::concat(&squares.iter().collect::<Vec<_>>(), 0)?.to_f64_vec()?,
        };
        let mut squares = squares.into_iter();
        let each: Vec<f64> = gradients
            .iter()
            .map(|g| g.as_ref().and_then(|_| squares.next()).map_or(0.0, f64::sqrt))
            .collect();
        let total = each.iter().map(|norm| norm * norm).sum::<f64>().sqrt();
        Ok(Self { total, each })
    }

    /// Whether no gradient holds NaN or infinity, nor elements whose squares overflow.
    pub fn are_finite(&self) -> bool {
        self.total.is_finite()
    }
}

/// Scales all gradients by one factor so that their norm is at most `limit`; returns whether it was above. Norms that
/// are not finite cannot be clipped and are refused: skip the step.
///
/// # Errors
/// [`Error::Argument`] for a limit that is not positive, or norms that are not finite.
pub fn clip_by_norm(gradients: &mut [Option<Array>], norms: &GradientNorms, limit: f64) -> Result<bool> {
    if !(limit > 0.0 && norms.are_finite()) {
        return Err(Error::Argument {
            operation: "clip by norm",
            argument: if limit > 0.0 { "norms" } else { "limit" },
            actual: if limit > 0.0 { norms.total } else { limit }.to_string(),
            expected: "a positive limit and a finite norm".to_owned(),
        });
    }
    if norms.total <= limit {
        return Ok(false);
    }
    for gradient in gradients.iter_mut().flatten() {
        *gradient = ops::mul_scalar(gradient, limit / norms.total)?;
    }
    Ok(true)
}

/// The largest norm of all gradients together, and the largest element.
pub(crate) type Limits = (Option<f64>, Option<f64>);

/// Applies the limits that are set, the norm's first; returns whether one was exceeded.
///
/// # Errors
/// As [`clip_by_norm`] and [`clip_by_value`].
pub(crate) fn clip(
    gradients: &mut [Option<Array>],
    norms: &GradientNorms,
    (norm, value): Limits,
) -> Result<bool> {
    let mut clipped = false;
    if let Some(limit) = norm {
        clipped = clip_by_norm(gradients, norms, limit)?;
    }
    if let Some(limit) = value {
        clipped |= clip_by_value(gradients, limit)?;
    }
    Ok(clipped)
}

/// Clamps every element of every gradient to ± `limit`; returns whether any was beyond.
///
/// # Errors
/// [`Error::Argument`] for a limit that is not positive.
pub fn clip_by_value(gradients: &mut [Option<Array>], limit: f64) -> Result<bool> {
    if limit.is_nan() || limit <= 0.0 {
        return Err(Error::Argument {
            operation: "clip by value",
            argument: "limit",
            actual: limit.to_string(),
            expected: "greater than 0".to_owned(),
        });
    }
    let mut clipped = false;
    for gradient in gradients.iter_mut().flatten() {
        let axes: Vec<usize> = (0..gradient.rank()).collect();
        // A largest element of none is not defined.
        if gradient.elements() > 0 && ops::max_over(&ops::abs(gradient)?, &axes, false)?.item()? > limit {
            *gradient = ops::clamp(gradient, -limit, limit)?;
            clipped = true;
        }
    }
    Ok(clipped)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gradewise_kernels::Device;

    fn gradients(last: f64) -> Vec<Option<Array>> {
        let array = |values: &[f64]| Some(Array::from_slice(values, [values.len()], &Device::Cpu).unwrap());
        vec![array(&[3.0, -4.0]), None, array(&[0.0, last, 0.0])]
    }

    #[test]
    fn norms_are_per_parameter_and_total() {
        let norms = GradientNorms::of(&gradients(12.0)).unwrap();
        assert_eq!((norms.total, norms.each), (13.0, vec![5.0, 0.0, 12.0]));
        assert_eq!(GradientNorms::of(&[None]).unwrap().total, 0.0);
        for bad in [f64::NAN, f64::INFINITY] {
            assert!(!GradientNorms::of(&gradients(bad)).unwrap().are_finite());
        }
    }

    #[test]
    fn clipping_scales_to_the_limit_and_only_then() {
        let mut clipped = gradients(12.0);
        let norms = GradientNorms::of(&clipped).unwrap();
        assert!(!clip_by_norm(&mut clipped, &norms, 13.0).unwrap());
        assert_eq!(clipped[0].as_ref().unwrap().to_f64_vec().unwrap(), [3.0, -4.0]);
        assert!(clip_by_norm(&mut clipped, &norms, 6.5).unwrap());
        assert_eq!(clipped[0].as_ref().unwrap().to_f64_vec().unwrap(), [1.5, -2.0]);
        assert!((GradientNorms::of(&clipped).unwrap().total - 6.5).abs() < 1e-12);
        let mut bad = gradients(f64::NAN);
        let norms = GradientNorms::of(&bad).unwrap();
        assert!(clip_by_norm(&mut bad, &norms, 1.0).is_err());
        assert!(clip_by_value(&mut bad, f64::NAN).is_err());
        assert!(!clip_by_value(&mut clipped, 6.0).unwrap());
        assert!(clip_by_value(&mut clipped, 1.75).unwrap());
        assert_eq!(clipped[0].as_ref().unwrap().to_f64_vec().unwrap(), [1.5, -1.75]);
    }
}
