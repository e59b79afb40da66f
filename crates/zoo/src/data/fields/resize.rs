//! Coarser grids.

use super::FieldSet;
use gradewise_nn::{Error, Result};

/// For each coarse point, the fine points that contribute and their weights: a triangle as wide as two coarse cells (linear interpolation
/// with anti-aliasing), cut off at the ends. Weights sum to 1.
fn weights(fine: usize, factor: usize) -> Vec<Vec<(usize, f64)>> {
    let weights_of = |coarse: usize| {
        let centre = (coarse as f64 + 0.5) * factor as f64;
        let weight = |at: usize| (at, 1.0 - ((at as f64 + 0.5 - centre) / factor as f64).abs());
        let of: Vec<(usize, f64)> = (0..fine).map(weight).filter(|&(_, weight)| weight > 0.0).collect();
        let total: f64 = of.iter().map(|(_, weight)| weight).sum();
        of.into_iter().map(|(at, weight)| (at, weight / total)).collect()
    };
    (0..fine / factor).map(weights_of).collect()
}

/// `[outer, fine, inner]` to `[outer, fine / factor, inner]`.
fn resize_axis(values: &[f64], fine: usize, inner: usize, factor: usize) -> Vec<f64> {
    let weights = weights(fine, factor);
    let mut coarse = Vec::with_capacity(values.len() / factor);
    for block in values.chunks_exact(fine * inner) {
        for of in &weights {
            coarse.extend(
                (0..inner)
                    .map(|k| of.iter().map(|&(at, weight)| weight * block[at * inner + k]).sum::<f64>()),
            );
        }
    }
    coarse
}

/// A frame `[*space, components]` on a grid coarser by `factor` along each axis, which divides the extents.
pub(super) fn resized(frame: &[f64], space: &[usize], components: usize, factor: usize) -> Vec<f64> {
    let mut values = frame.to_vec();
    for (axis, &fine) in space.iter().enumerate() {
        let inner = space[axis + 1..].iter().product::<usize>() * components;
        values = resize_axis(&values, fine, inner, factor);
    }
    values
}

impl FieldSet {
    /// On a grid coarser by `factor` along each axis, by linear interpolation with anti-aliasing, as image libraries resize.
    ///
    /// # Errors
    /// [`Error::Argument`] for a factor that does not divide the extents of the grid.
    pub fn coarser(&self, factor: usize) -> Result<Self> {
        if factor == 1 {
            return Ok(self.clone());
        }
        if factor == 0 || self.space().iter().any(|extent| !extent.is_multiple_of(factor)) {
            return Err(Error::Argument {
                operation: "FieldSet::coarser",
                argument: "factor",
                actual: factor.to_string(),
                expected: format!("a divisor of the extents {:?}", self.space()),
            });
        }
        let components = self.layout().components();
        let mut values = Vec::with_capacity(self.values().len() / factor.pow(self.space().len() as u32));
        for trajectory in 0..self.trajectories() {
            for frame in 0..self.frames() {
                let fine: Vec<f64> =
                    self.frame(trajectory, frame).iter().map(|&value| f64::from(value)).collect();
                values.extend(
                    resized(&fine, self.space(), components, factor).iter().map(|&value| value as f32),
                );
            }
        }
        let space: Vec<usize> = self.space().iter().map(|extent| extent / factor).collect();
        Self::new(self.layout(), (self.trajectories(), self.frames()), &space, values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coarser_points_are_weighted_means() {
        let inner: Vec<f64> = weights(8, 2)[1].iter().map(|&(_, weight)| weight * 8.0).collect();
        assert_eq!(inner, [1.0, 3.0, 3.0, 1.0]);
        assert_eq!(
            weights(8, 2)[0].iter().map(|&(_, weight)| weight * 7.0).collect::<Vec<_>>(),
            [3.0, 3.0, 1.0]
        );
        // Two axes, two components: constants are preserved; a slope is preserved away from the ends.
        let space = [8, 4];
        let fine: Vec<f64> = (0..32).flat_map(|at| [5.0, (at / 4) as f64]).collect();
        let coarse = resized(&fine, &space, 2, 2);
        assert_eq!(coarse.len(), 4 * 2 * 2);
        assert!(coarse.iter().step_by(2).all(|value| (value - 5.0).abs() < 1e-14));
        assert!((coarse[2 * 2 + 1] - 2.5).abs() < 1e-14, "{coarse:?}");
    }
}
