//! Samples of point sets, their sources, and batches of them.

use super::{HULL_DIMENSION, hull::determinant, hull_volume};
use crate::data::npy::NpyArray;
use gradewise_autograd::Tensor;
use gradewise_kernels::{Array, Device};
use gradewise_nn::{
    Error, Placement, Result,
    data::{Batch, Samples, Split, check_finite, overwrite, scaled, to_device},
    symmetry::Isometry,
};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;
use rayon::prelude::*;
use std::path::Path;

/// Mean of the target of the O(5) regression over standard normal vectors: E[sin‖x₁‖] − E[‖x₂‖³]/2.
pub const O5_MEAN: f64 = -5.704_756_766_981_928;
/// Standard deviation of the target of the O(5) regression over standard normal vectors.
pub const O5_STANDARD_DEVIATION: f64 = 6.193_464_000_814_848;

/// Samples of points in a Euclidean space, each with the number to predict.
#[derive(Clone, PartialEq, Debug)]
pub struct PointSets {
    points: usize,
    dimension: usize,
    loc: Vec<f64>,
    target: Vec<f64>,
    orders: Option<Orders>,
}

/// Augmentation: copies of the samples with permuted points.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Orders {
    copies: usize,
    seed: u64,
    /// Whether an odd permutation flips the sign of the target.
    signed: bool,
}

impl PointSets {
    /// Samples from row-major `loc` `[samples, points, dimension]` and `target` `[samples]`.
    ///
    /// # Errors
    /// [`Error::Argument`] if the lengths disagree; [`Error::NotFinite`].
    pub fn new((points, dimension): (usize, usize), loc: Vec<f64>, target: Vec<f64>) -> Result<Self> {
        const OPERATION: &str = "point sets";
        let width = points * dimension;
        if width == 0 || loc.len() != target.len() * width {
            return Err(Error::Argument {
                operation: OPERATION,
                argument: "loc",
                actual: format!("{} numbers", loc.len()),
                expected: format!(
                    "{} samples of {points} points in {dimension} dimensions, neither 0",
                    target.len()
                ),
            });
        }
        check_finite(OPERATION, "loc", &[target.len(), points, dimension], &loc)?;
        check_finite(OPERATION, "target", &[target.len()], &target)?;
        Ok(Self { points, dimension, loc, target, orders: None })
    }

    /// Standard normal points with the target `target(points)`. Sample `i` depends only on `(seed, split, i)`.
    fn sample(
        (points, dimension): (usize, usize),
        samples: usize,
        (seed, split): (u64, Split),
        target: impl Fn(&[f64]) -> Result<f64> + Sync,
    ) -> Result<Self> {
        let width = points * dimension;
        let mut loc = vec![0.0; samples * width];
        let draw = |(index, points): (usize, &mut [f64])| {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            // 2⁵⁶ samples per split before two streams could meet.
            rng.set_stream(((split as u64 + 1) << 56) | index as u64);
            points.iter_mut().for_each(|x| *x = rng.sample::<f64, _>(StandardNormal));
            target(points)
        };
        let target = loc.par_chunks_exact_mut(width).enumerate().map(draw).collect::<Result<_>>()?;
        Self::new((points, dimension), loc, target)
    }

    /// Three vectors in space with a tenth of their determinant, the signed volume of their parallelepiped.
    ///
    /// # Errors
    /// As [`PointSets::new`], for values that are not finite, which do not occur.
    pub fn signed_volumes(samples: usize, seed: u64, split: Split) -> Result<Self> {
        Self::sample((3, 3), samples, (seed, split), |points| Ok(determinant(points.to_vec(), 3) / 10.0))
    }

    /// `points` points in 5 dimensions with the volume of their convex hull.
    ///
    /// # Errors
    /// As [`hull_volume`], for fewer than 6 points, and for points in one hyperplane, which has probability zero.
    pub fn hull_volumes(points: usize, samples: usize, seed: u64, split: Split) -> Result<Self> {
        let shape = (points, HULL_DIMENSION);
        Self::sample(shape, samples, (seed, split), |points| hull_volume(points, HULL_DIMENSION))
    }

    /// Two vectors in 5 dimensions with sin‖x₁‖ − ‖x₂‖³/2 + x₁·x₂/(‖x₁‖‖x₂‖), the O(5)-invariant function of Finzi et al.
    /// (2021, arXiv:2104.09459).
    ///
    /// # Errors
    /// As [`PointSets::new`], for a vector of length zero, which has probability zero.
    pub fn o5_regression(samples: usize, seed: u64, split: Split) -> Result<Self> {
        Self::sample((2, 5), samples, (seed, split), |points| {
            let (a, b) = points.split_at(5);
            let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
            let (length_a, length_b) = (dot(a, a).sqrt(), dot(b, b).sqrt());
            Ok(length_a.sin() - length_b.powi(3) / 2.0 + dot(a, b) / (length_a * length_b))
        })
    }

    /// Reads `{name}_{split}_input.npy` `[samples, points, dimension]` and `{name}_{split}_target.npy` `[samples]` of `folder`,
    /// with `val` for the valid split, as the paper's scripts write them.
    ///
    /// # Errors
    /// [`Error::Io`] or [`Error::Format`] for files that are missing, damaged, or of another shape; [`Error::NotFinite`].
    pub fn load(
        folder: &Path,
        name: &str,
        split: Split,
        (points, dimension): (usize, usize),
    ) -> Result<Self> {
        let split = if split == Split::Valid { "val" } else { split.name() };
        let path = |kind: &str| folder.join(format!("{name}_{split}_{kind}.npy"));
        let loc = NpyArray::read(path("input"))?;
        let expected = [None, Some(points), Some(dimension)];
        loc.expect_shape(&path("input"), &expected, "samples, points, coordinates")?;
        let target = NpyArray::read(path("target"))?;
        target.expect_shape(&path("target"), &[Some(loc.shape[0])], "samples, as in the input file")?;
        Self::new((points, dimension), loc.values, target.values)
    }

    /// The first `samples` samples, or all if there are fewer.
    #[must_use]
    pub fn take(mut self, samples: usize) -> Self {
        self.loc.truncate(samples * self.points * self.dimension);
        self.target.truncate(samples);
        self
    }

    /// Repeats the samples `copies` times. All copies but the first have the points of each sample in a random order, which is computed
    /// when a batch is made, so no memory is used for the copies. Set `signed` for a target whose sign flips under odd permutations, such
    /// as a signed volume.
    #[must_use]
    pub fn in_orders(mut self, copies: usize, seed: u64, signed: bool) -> Self {
        self.orders = (copies > 1).then_some(Orders { copies, seed, signed });
        self
    }

    /// For an index over all copies: the sample, the order of its points, and the sign of its target.
    fn ordered(&self, index: usize) -> (usize, Vec<usize>, f64) {
        let samples = self.target.len();
        let mut order: Vec<usize> = (0..self.points).collect();
        let Some(Orders { seed, signed, .. }) = self.orders.filter(|_| index >= samples) else {
            return (index, order, 1.0);
        };
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(index as u64);
        let mut sign = 1.0;
        for last in (1..self.points).rev() {
            let other = rng.random_range(0..=last);
            if other != last {
                order.swap(last, other);
                sign = -sign;
            }
        }
        (index % samples, order, if signed { sign } else { 1.0 })
    }

    /// Points of each sample.
    pub fn points(&self) -> usize {
        self.points
    }

    /// Coordinates of each point.
    pub fn dimension(&self) -> usize {
        self.dimension
    }

    /// Coordinates, `[samples, points, dimension]`.
    pub fn loc(&self) -> &[f64] {
        &self.loc
    }

    /// Numbers to predict, `[samples]`.
    pub fn target(&self) -> &[f64] {
        &self.target
    }

    /// Applies an isometry to the points; targets are unchanged.
    ///
    /// # Errors
    /// [`Error::Argument`] for an isometry of another dimension.
    pub fn moved(mut self, isometry: &Isometry) -> Result<Self> {
        isometry.apply_all(&mut self.loc)?;
        Ok(self)
    }
}

/// A batch of point sets in the layout of models in a Clifford algebra.
#[derive(Clone, Debug)]
pub struct PointBatch {
    /// The points as vectors: `[blades, batch, points]`.
    pub points: Tensor,
    /// `[batch]`
    pub target: Tensor,
}

impl Samples for PointSets {
    type Batch = PointBatch;

    fn len(&self) -> usize {
        self.target.len() * self.orders.map_or(1, |orders| orders.copies)
    }

    fn batch(&self, indices: &[usize], placement: &Placement) -> Result<PointBatch> {
        let (n, points, batch) = (self.dimension, self.points, indices.len());
        let mut values = vec![0.0; (batch * points) << n];
        let mut target = Vec::with_capacity(batch);
        for (row, &index) in indices.iter().enumerate() {
            let (index, order, sign) = self.ordered(index);
            let sample = &self.loc[index * points * n..][..points * n];
            for (point, &from) in order.iter().enumerate() {
                for (axis, &x) in sample[from * n..][..n].iter().enumerate() {
                    values[((1 + axis) * batch + row) * points + point] = x;
                }
            }
            target.push(sign * self.target[index]);
        }
        let Placement { device, dtype } = placement;
        Ok(PointBatch {
            points: Tensor::new(Array::from_f64(&values, [1 << n, batch, points], *dtype, device)?),
            target: Tensor::new(Array::from_f64(&target, [batch], *dtype, device)?),
        })
    }
}

impl Batch for PointBatch {
    fn to_device(&self, device: &Device) -> Result<Self> {
        Ok(Self { points: to_device(&self.points, device)?, target: to_device(&self.target, device)? })
    }

    fn overwrite(&self, source: &Self) -> Result<bool> {
        overwrite(&[(&self.points, &source.points), (&self.target, &source.target)])
    }

    fn scaled(&self, factor: f64) -> Result<Option<Self>> {
        Ok(Some(Self { points: scaled(&self.points, factor)?, target: self.target.clone() }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::points::HULL_POINTS;
    use gradewise_kernels::{DType, Device};

    #[test]
    fn targets_are_those_of_their_points() {
        let volumes = PointSets::signed_volumes(9, 3, Split::Train).unwrap();
        for (points, target) in volumes.loc().chunks_exact(9).zip(volumes.target()) {
            let cross = |a: &[f64], b: &[f64]| {
                [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]]
            };
            let triple: f64 =
                cross(&points[..3], &points[3..6]).iter().zip(&points[6..]).map(|(a, b)| a * b).sum();
            assert!((triple / 10.0 - target).abs() < 1e-14);
        }
        let o5 = PointSets::o5_regression(200_000, 1, Split::Train).unwrap();
        let count = o5.target().len() as f64;
        let mean = o5.target().iter().sum::<f64>() / count;
        let deviation = (o5.target().iter().map(|y| (y - mean).powi(2)).sum::<f64>() / count).sqrt();
        assert!((mean - O5_MEAN).abs() < 5.0 * O5_STANDARD_DEVIATION / count.sqrt(), "{mean}");
        assert!((deviation / O5_STANDARD_DEVIATION - 1.0).abs() < 0.02, "{deviation}");
    }

    #[test]
    fn a_sample_depends_on_nothing_but_its_number() {
        let few = PointSets::hull_volumes(HULL_POINTS, 3, 5, Split::Test).unwrap();
        let many = PointSets::hull_volumes(HULL_POINTS, 8, 5, Split::Test).unwrap();
        assert_eq!(many.clone().take(3), few);
        assert_eq!(few.clone().take(9), few);
        assert_ne!(PointSets::hull_volumes(HULL_POINTS, 3, 5, Split::Valid).unwrap(), few);
        assert_ne!(PointSets::hull_volumes(HULL_POINTS, 3, 6, Split::Test).unwrap(), few);
        assert!(few.target().iter().all(|&volume| volume > 0.0));
    }

    #[test]
    fn copies_have_other_orders_and_the_targets_of_these() {
        let plain = PointSets::signed_volumes(40, 3, Split::Train).unwrap();
        let copies = plain.clone().in_orders(5, 9, true);
        assert_eq!((Samples::len(&plain), Samples::len(&copies), copies.target().len()), (40, 200, 40));
        let placement = Placement::new(&Device::Cpu, DType::F64);
        let all: Vec<usize> = (0..200).collect();
        let batch = copies.batch(&all, &placement).unwrap();
        let (points, targets) =
            (batch.points.to_vec::<f64>().unwrap(), batch.target.to_vec::<f64>().unwrap());
        let mut orders = std::collections::BTreeSet::new();
        for (row, target) in targets.iter().enumerate() {
            let at = |axis: usize, point: usize| points[((1 + axis) * 200 + row) * 3 + point];
            let matrix: Vec<f64> = (0..9).map(|k| at(k % 3, k / 3)).collect();
            assert!((determinant(matrix, 3) / 10.0 - target).abs() < 1e-14, "the sign follows the order");
            let first =
                |point: usize| (0..3).find(|&from| plain.loc()[row % 40 * 9 + 3 * from] == at(0, point));
            orders.insert([first(0).unwrap(), first(1).unwrap(), first(2).unwrap()]);
            assert!(row >= 40 || first(0) == Some(0), "the first copy is as it was");
        }
        assert_eq!(orders.len(), 6, "all orders of three");
        let unsigned = plain.clone().in_orders(5, 9, false).batch(&all, &placement).unwrap();
        assert_eq!(unsigned.target.to_vec::<f64>().unwrap(), plain.target().repeat(5));
        assert_eq!(plain.clone().in_orders(1, 9, true), plain);
    }

    #[test]
    fn batches_hold_points_as_vectors() {
        let data = PointSets::new((2, 3), (0..18).map(f64::from).collect(), vec![0.5, 1.5, 2.5]).unwrap();
        let batch = data.batch(&[2, 0], &Placement::new(&Device::Cpu, DType::F64)).unwrap();
        assert_eq!(batch.points.shape().dims(), [8, 2, 2]);
        let values = batch.points.to_vec::<f64>().unwrap();
        let blade = |blade: usize| &values[4 * blade..][..4];
        assert_eq!(blade(1), [12.0, 15.0, 0.0, 3.0], "e1 of both points of sample 2, then of sample 0");
        assert_eq!(blade(3), [14.0, 17.0, 2.0, 5.0]);
        assert!([0, 4, 5, 6, 7].iter().all(|&other| blade(other).iter().all(|&x| x == 0.0)));
        assert_eq!(batch.target.to_vec::<f64>().unwrap(), [2.5, 0.5]);
        assert!(PointSets::new((2, 3), vec![0.0; 17], vec![0.0; 3]).is_err());
        assert!(PointSets::new((1, 1), vec![f64::NAN], vec![0.0]).is_err());
    }
}
