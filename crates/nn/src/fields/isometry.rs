//! The symmetries that a grid shares with a metric.

use super::refuse;
use crate::Result;
use gradewise_autograd::Tensor;
use gradewise_core::OrderedMetric;
use gradewise_kernels::{Array, Index};

/// A permutation of the axes of a grid with optional reversals that preserves the metric: quarter turns, reflections, and their products.
///
/// It acts on a field as (T·f)(x) = ρ(T) f(T⁻¹x) about the centre of the grid, with ρ(T) its action on blades.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GridIsometry {
    metric: OrderedMetric,
    /// The axis that each axis of the result comes from.
    source: Vec<usize>,
    /// Whether each axis is reversed.
    reversed: Vec<bool>,
}

impl GridIsometry {
    /// All isometries of a metric, the identity first: 8 for 1,1; 48 for 1,1,1; 16 for −1,1,1.
    pub fn all(metric: &OrderedMetric) -> Vec<Self> {
        let n = metric.dimension();
        let mut permutations: Vec<Vec<usize>> = vec![vec![]];
        for axis in 0..n {
            let like = |other: &usize| metric.squares()[*other] == metric.squares()[axis];
            permutations = permutations
                .iter()
                .flat_map(|chosen| {
                    let free = (0..n).filter(|other| like(other) && !chosen.contains(other));
                    free.map(|other| [&chosen[..], &[other]].concat()).collect::<Vec<_>>()
                })
                .collect();
        }
        let signs = |source: &Vec<usize>| {
            let of = |mask: usize| Self {
                metric: metric.clone(),
                source: source.clone(),
                reversed: (0..n).map(|axis| mask >> axis & 1 == 1).collect(),
            };
            (0..1usize << n).map(of).collect::<Vec<_>>()
        };
        permutations.iter().flat_map(signs).collect()
    }

    /// Whether it reverses an axis of the result.
    pub fn reverses(&self, axis: usize) -> bool {
        self.reversed.get(axis).is_some_and(|&reversed| reversed)
    }

    /// For each blade of the result, its source blade and sign.
    fn blades(&self) -> Vec<(usize, f64)> {
        let n = self.metric.dimension();
        // Blades by their generators, in the order of the metric.
        let mut sets: Vec<Vec<usize>> = (0..1usize << n)
            .map(|mask| (0..n).filter(|generator| mask >> generator & 1 == 1).collect())
            .collect();
        sets.sort_by_key(|set: &Vec<usize>| (set.len(), set.clone()));
        let image = |set: &Vec<usize>| {
            // e_source maps to ±e_axis, so the blade of these axes comes from the blade of their sources.
            let from: Vec<usize> = set.iter().map(|&axis| self.source[axis]).collect();
            let later = |at: usize| from[at + 1..].iter().filter(|&&other| other < from[at]).count();
            let odd = (0..from.len()).map(later).sum::<usize>()
                + set.iter().filter(|&&axis| self.reversed[axis]).count();
            let mut sorted = from.clone();
            sorted.sort_unstable();
            let blade = sets.iter().position(|other| *other == sorted).unwrap_or(0);
            (blade, if odd.is_multiple_of(2) { 1.0 } else { -1.0 })
        };
        sets.iter().map(image).collect()
    }

    /// Applies the isometry to a field `[blades, batch, *space, channels]`, whose blades begin with `first`.
    ///
    /// # Errors
    /// A field with the wrong number of axes, with exchanged axes of different lengths, or without all blades of its grades.
    pub fn apply(&self, x: &Tensor, first: usize) -> Result<Tensor> {
        const NAME: &str = "GridIsometry";
        let (n, shape) = (self.metric.dimension(), x.shape());
        let fits = |axis: usize| shape[2 + axis] == shape[2 + self.source[axis]];
        if shape.rank() != n + 3 || !(0..n).all(fits) {
            return refuse(
                NAME,
                "x",
                shape,
                format!("{n} axes of space, equally long where they are exchanged"),
            );
        }
        let count = shape[0];
        let blades = self.blades();
        let within = blades.get(first..first + count).unwrap_or_default();
        if within.len() != count || within.iter().any(|(blade, _)| !(first..first + count).contains(blade)) {
            return refuse(NAME, "blades", first..first + count, "all blades of their grades");
        }
        let (from, signs): (Vec<usize>, Vec<f64>) =
            within.iter().map(|(blade, sign)| (blade - first, *sign)).unzip();
        let mut ones = vec![1; n + 3];
        ones[0] = count;
        let device = x.device();
        let signs = Tensor::new(Array::from_f64(&signs, ones, x.dtype(), &device)?);
        let mut moved = x.index_select(0, &Index::new(&from, count, &device)?)?.mul(&signs)?;
        let axes: Vec<usize> =
            [0, 1].into_iter().chain(self.source.iter().map(|axis| axis + 2)).chain([n + 2]).collect();
        moved = moved.permute(&axes)?;
        for axis in (0..n).filter(|&axis| self.reversed[axis]) {
            let size = moved.shape()[axis + 2];
            let back: Vec<usize> = (0..size).rev().collect();
            moved = moved.index_select(axis + 2, &Index::new(&back, size, &device)?)?;
        }
        Ok(moved)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gradewise_kernels::{DType, Device};

    #[test]
    fn there_are_as_many_as_the_grid_has() {
        for (text, count) in [("1,1", 8), ("1,-1", 4), ("1,1,1", 48), ("-1,1,1", 16)] {
            let all = GridIsometry::all(&text.parse().unwrap());
            assert_eq!(all.len(), count);
            assert!(all.iter().enumerate().all(|(at, isometry)| !all[..at].contains(isometry)));
        }
    }

    /// A vector field x ↦ (x − centre) is invariant under all isometries, and e12 changes its sign with the orientation.
    #[test]
    fn radial_vectors_stay_and_planes_turn_over() {
        let metric: OrderedMetric = "1,1".parse().unwrap();
        let n = 4;
        let centred = |index: usize| index as f64 - 1.5;
        let place = |at: usize| [at / n, at % n];
        let mut values = vec![1.0; n * n];
        values.extend((0..n * n).map(|at| centred(place(at)[0])));
        values.extend((0..n * n).map(|at| centred(place(at)[1])));
        values.extend(vec![2.0; n * n]);
        let field = Tensor::new(Array::from_f64(&values, [4, 1, n, n, 1], DType::F64, &Device::Cpu).unwrap());
        let mut turned_over = 0;
        for isometry in GridIsometry::all(&metric) {
            let moved = isometry.apply(&field, 0).unwrap().array().to_f64_vec().unwrap();
            assert_eq!(moved[..3 * n * n], values[..3 * n * n], "{isometry:?}");
            assert!(moved[3 * n * n..].iter().all(|value| value.abs() == 2.0));
            turned_over += usize::from(moved[3 * n * n] < 0.0);
        }
        assert_eq!(turned_over, 4);
        // A quarter turn of a single vector: from e1 at the end of the first axis to ±e2 at an end of the second.
        let turn = GridIsometry { metric: metric.clone(), source: vec![1, 0], reversed: vec![true, false] };
        let mut values = vec![0.0; 2 * n * n];
        values[3 * n + 1] = 1.0;
        let vectors =
            Tensor::new(Array::from_f64(&values, [2, 1, n, n, 1], DType::F64, &Device::Cpu).unwrap());
        let moved = turn.apply(&vectors, 1).unwrap().array().to_f64_vec().unwrap();
        let places: Vec<usize> = (0..2 * n * n).filter(|&at| moved[at] != 0.0).collect();
        // e2 at (−(1 − 1.5), 1.5) from the centre.
        assert_eq!((places, moved[n * n + 2 * n + 3]), (vec![n * n + 2 * n + 3], 1.0));
        assert!(turn.apply(&vectors, 2).is_err(), "e2 and e12 without e1");
    }
}
