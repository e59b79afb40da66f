//! Fewer products: the algebra as matrices.
//!
//! Right multiplication by w leaves each right ideal of the algebra alone. With an idempotent e = ½(1 + S), S a blade that squares to +1,
//! and an invertible blade u that anticommutes with S, the algebra is the sum of the ideals eA and u·eA, on which right multiplication
//! acts by the same matrices: Cl(2,0) and Cl(1,1) are real 2×2 matrices, whose two rows are two samples of one convolution between
//! vectors of 2. That is 8 products of channels instead of 16; Cl(3,0) and Cl(1,2) need 32 instead of 64. If the pseudoscalar Z is central
//! and squares to +1, ½(1 ± Z) splits every ideal once more into two that do not mix: 16 in Cl(2,1), 32 in Cl(0,3), 2 instead of 4 in
//! Cl(1,0). All changes of basis are orthogonal up to a factor, with entries ±1 and powers of 2.

use super::{
    convolution::{ConvolutionOptions, correlate, correlate_transposed},
    matrix::blade_matrix,
    prelude::*,
};
use std::{
    collections::HashMap,
    sync::{Arc, LazyLock, Mutex, PoisonError},
};

/// A multivector by its coefficients.
type Coefficients = Vec<f64>;

/// An algebra as a sum of ideals.
pub(super) struct Representation {
    blades: usize,
    /// Copies of each ideal, on which right multiplication acts alike.
    rows: usize,
    /// Dimension of an ideal.
    dimension: usize,
    /// Coordinates `[part, dimension, row]` of a multivector, and the multivector of coordinates: `[I, I]` each.
    analysis: Vec<f64>,
    synthesis: Vec<f64>,
    /// For each part, the matrices of right multiplication by the blades: `[dimension (to), dimension (from), I]`.
    parts: Vec<Vec<f64>>,
}

fn product(metric: &OrderedMetric, a: &Coefficients, b: &Coefficients) -> Coefficients {
    let mut out = vec![0.0; a.len()];
    for (i, &a) in a.iter().enumerate().filter(|(_, a)| **a != 0.0) {
        for (k, &b) in b.iter().enumerate().filter(|(_, b)| **b != 0.0) {
            let (j, sign) = metric.product(i, k);
            out[j] += f64::from(sign) * a * b;
        }
    }
    out
}

fn dot(a: &Coefficients, b: &Coefficients) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

impl Representation {
    /// The representation that needs the fewest products, if it needs fewer than the algebra itself. Made once for each metric.
    pub fn of(metric: &OrderedMetric) -> Option<Arc<Self>> {
        type Known = HashMap<Vec<i8>, Option<Arc<Representation>>>;
        static KNOWN: LazyLock<Mutex<Known>> = LazyLock::new(Mutex::default);
        // A panic while the lock is held leaves the map as it was: entries are inserted complete.
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        known.entry(metric.squares().to_vec()).or_insert_with(|| Self::new(metric).map(Arc::new)).clone()
    }

    fn new(metric: &OrderedMetric) -> Option<Self> {
        let blades = metric.blade_count();
        let unit = |blade: usize| -> Coefficients {
            (0..blades).map(|at| f64::from(u8::from(at == blade))).collect()
        };
        let half = |blade: usize, sign: f64| -> Coefficients {
            let mut e = unit(0);
            e[0] = 0.5;
            e[blade] = 0.5 * sign;
            e
        };
        let square = |blade: usize| metric.product(blade, blade).1;
        let anticommute = |a: usize, b: usize| metric.product(a, b).1 == -metric.product(b, a).1;
        let pair = (1..blades).filter(|&s| square(s) == 1).find_map(|s| {
            let inverter =
                (1..blades).find(|&u| square(u) != 0 && metric.product(s, u).1 != 0 && anticommute(s, u));
            inverter.map(|u| (s, u))
        });
        let last = blades - 1;
        let central = metric.dimension() % 2 == 1 && square(last) == 1;
        let idempotents = match central {
            true => vec![half(last, 1.0), half(last, -1.0)],
            false => vec![unit(0)],
        };
        let (first, rows) = match pair {
            Some((s, u)) => (half(s, 1.0), vec![unit(0), unit(u)]),
            None => (unit(0), vec![unit(0)]),
        };
        if rows.len() * idempotents.len() == 1 {
            return None;
        }
        // The ideal of each part: its elements e·f·b, one for each set of blades that they hold.
        let ideal = |f: &Coefficients| -> Vec<Coefficients> {
            let generator = product(metric, &first, f);
            let mut covered = vec![false; blades];
            let mut basis = Vec::new();
            for blade in 0..blades {
                if covered[blade] {
                    continue;
                }
                let element = product(metric, &generator, &unit(blade));
                element.iter().enumerate().filter(|(_, v)| **v != 0.0).for_each(|(at, _)| covered[at] = true);
                basis.push(element);
            }
            basis
        };
        let ideals: Vec<Vec<Coefficients>> = idempotents.iter().map(ideal).collect();
        let dimension = ideals[0].len();
        let elements: Vec<Coefficients> = ideals
            .iter()
            .flatten()
            .flat_map(|element| rows.iter().map(|row| product(metric, row, element)))
            .collect();
        let norm = dot(&elements[0], &elements[0]);
        let analysis = elements.iter().flatten().map(|value| value / norm).collect();
        let synthesis = (0..blades * blades).map(|at| elements[at % blades][at / blades]).collect();
        let matrices = |basis: &Vec<Coefficients>| -> Vec<f64> {
            let mut matrices = Vec::with_capacity(dimension * dimension * blades);
            for to in basis {
                for from in basis {
                    matrices.extend((0..blades).map(|r| dot(to, &product(metric, from, &unit(r))) / norm));
                }
            }
            matrices
        };
        let parts = ideals.iter().map(matrices).collect();
        Some(Self { blades, rows: rows.len(), dimension, analysis, synthesis, parts })
    }

    /// The convolution of `x` `[I, batch, *space, in]` by the geometric product with weights `[I, first, second, *taps]`: `[out, in]`
    /// forward, `[in, out]` transposed, where `output_padding` says so. Plus the bias `[I, out]` if there is one.
    pub fn convolve(
        &self,
        x: &Tensor,
        weights: &Tensor,
        bias: Option<&Tensor>,
        options: &ConvolutionOptions,
        output_padding: Option<&[usize]>,
    ) -> Result<Tensor> {
        let (Self { blades, rows, dimension, .. }, shape) = (self, x.shape().to_vec());
        let (count, batch) = (dimension * rows, shape[1]);
        let coordinates = blade_matrix(&self.analysis, x, None)?;
        let &[_, a, b, ref taps @ ..] = weights.shape().dims() else {
            return refuse("clifford_conv", format!("`weights` has shape {}", weights.shape()));
        };
        let (taps, volume) = (taps.to_vec(), taps.iter().product::<usize>());
        let flat = weights.reshape([*blades, a * b * volume])?;
        let mut results = Vec::with_capacity(self.parts.len());
        for (part, matrices) in self.parts.iter().enumerate() {
            let matrices = constant(matrices, &[dimension * dimension, *blades], weights)?;
            // [to, from, first, second, taps] → the kernel of `correlate`, or of its transpose.
            let kernel = matrices.matmul(&flat)?.reshape([*dimension, *dimension, a, b, volume])?;
            let kernel = match output_padding {
                None => kernel.permute(&[0, 2, 1, 4, 3])?,
                Some(_) => kernel.permute(&[1, 2, 0, 4, 3])?,
            };
            let kernel = kernel.reshape([&[*dimension, a, *dimension], &taps[..], &[b]].concat())?;
            // The rows of the matrix are samples.
            let field = coordinates.slice(0, part * count..(part + 1) * count)?;
            let field = field.reshape([&[*dimension, rows * batch], &shape[2..]].concat())?;
            let y = match output_padding {
                None => correlate(&field, &kernel, options)?,
                Some(padding) => correlate_transposed(&field, &kernel, options, padding)?,
            };
            let mut shape = y.shape().to_vec();
            (shape[0], shape[1]) = (count, batch);
            results.push(y.reshape(shape)?);
        }
        let joined;
        let y = match &results[..] {
            [y] => y,
            parts => {
                joined = crate::concat(&parts.iter().collect::<Vec<_>>(), 0)?;
                &joined
            }
        };
        blade_matrix(&self.synthesis, y, bias)
    }

    /// Whether the changes of basis cost less than the products that they save.
    pub fn pays(&self, weights: &Tensor) -> bool {
        /// Channels on either side of a group: fewer do not fill a tile of a matrix product.
        const LEAST: usize = 8;
        matches!(weights.shape().dims(), [_, a, b, ..] if *a.min(b) >= LEAST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many products of channels an algebra needs.
    fn products(text: &str) -> usize {
        let metric: OrderedMetric = text.parse().unwrap();
        let blades = metric.blade_count();
        Representation::of(&metric)
            .map_or(blades * blades, |r| r.parts.len() * r.rows * r.dimension * r.dimension)
    }

    #[test]
    fn algebras_need_as_many_products_as_their_matrices() {
        for (text, expected) in [
            ("1", 2),
            ("-1", 4),
            ("1,1", 8),
            ("1,-1", 8),
            ("-1,1", 8),
            ("-1,-1", 16),
            ("0,1", 16),
            ("1,1,1", 32),
            ("1,-1,-1", 32),
            ("-1,1,1", 16),
            ("1,1,-1", 16),
            ("-1,-1,-1", 32),
        ] {
            assert_eq!(products(text), expected, "{text}");
        }
    }

    #[test]
    fn coordinates_carry_right_multiplication() {
        for text in ["1", "1,1", "1,-1", "1,1,1", "1,-1,-1", "-1,1,1", "-1,-1,-1", "0,1,1", "1,1,0"] {
            let metric: OrderedMetric = text.parse().unwrap();
            let Some(r) = Representation::of(&metric) else { panic!("{text} has a representation") };
            let blades = r.blades;
            let apply = |matrix: &[f64], x: &[f64]| -> Vec<f64> {
                matrix.chunks_exact(blades).map(|row| row.iter().zip(x).map(|(m, x)| m * x).sum()).collect()
            };
            for (i, k) in (0..blades).flat_map(|i| (0..blades).map(move |k| (i, k))) {
                let x: Vec<f64> = (0..blades).map(|at| f64::from(u8::from(at == i))).collect();
                let coordinates = apply(&r.analysis, &x);
                // Coordinates are [part, dimension, row].
                let d = r.dimension;
                let mut turned = vec![0.0; blades];
                for (part, matrices) in r.parts.iter().enumerate() {
                    for (to, from, row) in
                        (0..d * d * r.rows).map(|at| (at / r.rows / d, at / r.rows % d, at % r.rows))
                    {
                        let at = |index: usize| (part * d + index) * r.rows + row;
                        turned[at(to)] += matrices[(to * d + from) * blades + k] * coordinates[at(from)];
                    }
                }
                let (j, sign) = metric.product(i, k);
                for (at, value) in apply(&r.synthesis, &turned).into_iter().enumerate() {
                    let expected = if at == j { f64::from(sign) } else { 0.0 };
                    assert!((value - expected).abs() < 1e-15, "{text}: blade {i} times {k} at {at}: {value}");
                }
            }
        }
    }
}
