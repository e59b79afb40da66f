//! Volumes of convex hulls in any dimension.

use gradewise_nn::{Error, Result};
use std::collections::HashMap;

const OPERATION: &str = "convex hull volume";
/// Relative size below which a determinant of a facet counts as zero.
const DEGENERATE: f64 = 1e-12;

/// The volume of the convex hull of points in general position: no `dimension + 1` of them lie in one hyperplane, as is almost surely the
/// case for random points. `points` are rows of `dimension` coordinates.
///
/// Points are added one at a time; the facets that a point sees are replaced by those that join it to the horizon ("beneath and
/// beyond", Grünbaum 1961; Edelsbrunner 1987, ch. 8). The volume is the sum of the simplices from an inner point to the facets.
///
/// # Errors
/// [`Error::Argument`] for fewer than `dimension + 1` points, coordinates that are no rows or not finite, or points of which some
/// lie in one hyperplane to within rounding.
pub fn hull_volume(points: &[f64], dimension: usize) -> Result<f64> {
    let refuse = |actual: String, expected: &str| {
        Err(Error::Argument {
            operation: OPERATION,
            argument: "points",
            actual,
            expected: expected.to_owned(),
        })
    };
    if dimension == 0 || !points.len().is_multiple_of(dimension) || points.len() / dimension <= dimension {
        let expected = "whole points, more of them than dimensions, which are at least 1";
        return refuse(format!("{} coordinates in {dimension} dimensions", points.len()), expected);
    }
    if points.iter().any(|x| !x.is_finite()) {
        return refuse("not finite".to_owned(), "finite coordinates");
    }
    match Hull::of(points, dimension) {
        Some(hull) => Ok(hull.volume()),
        None => refuse(
            "points in one hyperplane".to_owned(),
            "general position: move the points by random amounts above rounding",
        ),
    }
}

/// A simplicial facet.
struct Facet {
    /// Indices in ascending order.
    vertices: Vec<usize>,
    /// Outward normal, not normalised.
    normal: Vec<f64>,
    offset: f64,
    /// Magnitude of the terms that are summed to the height over the facet: the scale of its rounding error.
    scale: f64,
}

struct Hull<'a> {
    points: &'a [f64],
    dimension: usize,
    /// The centroid of the first simplex, inside the hull.
    inner: Vec<f64>,
    facets: Vec<Facet>,
}

impl<'a> Hull<'a> {
    fn of(points: &'a [f64], dimension: usize) -> Option<Self> {
        let corners = dimension + 1;
        let inner = (0..dimension)
            .map(|axis| (0..corners).map(|p| points[p * dimension + axis]).sum::<f64>() / corners as f64)
            .collect();
        let mut hull = Self { points, dimension, inner, facets: Vec::new() };
        for left_out in 0..corners {
            let vertices = (0..corners).filter(|&vertex| vertex != left_out).collect();
            let facet = hull.facet(vertices)?;
            hull.facets.push(facet);
        }
        for point in corners..points.len() / dimension {
            hull.add(point)?;
        }
        Some(hull)
    }

    fn point(&self, index: usize) -> &'a [f64] {
        &self.points[index * self.dimension..][..self.dimension]
    }

    /// `None` if its vertices, or its vertices with the inner point, are degenerate.
    fn facet(&self, vertices: Vec<usize>) -> Option<Facet> {
        let base = self.point(*vertices.first()?);
        let edges: Vec<Vec<f64>> = vertices[1..]
            .iter()
            .map(|&vertex| self.point(vertex).iter().zip(base).map(|(x, b)| x - b).collect())
            .collect();
        let mut normal = orthogonal(&edges, self.dimension);
        let mut offset = dot(&normal, base);
        let scale = normal.iter().zip(base).map(|(n, b)| (n * b).abs()).sum::<f64>() + norm(&normal);
        let depth = offset - dot(&normal, &self.inner);
        let size: f64 = edges.iter().map(|edge| norm(edge)).product();
        // Written so that NaN counts as degenerate.
        if !(norm(&normal) > DEGENERATE * size && depth.abs() > DEGENERATE * scale) {
            return None;
        }
        if depth < 0.0 {
            normal.iter_mut().for_each(|n| *n = -*n);
            offset = -offset;
        }
        Some(Facet { vertices, normal, offset, scale })
    }

    fn add(&mut self, index: usize) -> Option<()> {
        let point = self.point(index);
        let mut sees = Vec::with_capacity(self.facets.len());
        for facet in &self.facets {
            let height = dot(&facet.normal, point) - facet.offset;
            if height.abs() <= DEGENERATE * facet.scale {
                return None;
            }
            sees.push(height > 0.0);
        }
        // A ridge of the horizon belongs to exactly one visible facet; other ridges belong to two or none.
        let mut ridges: HashMap<Vec<usize>, usize> = HashMap::new();
        for facet in self.facets.iter().zip(&sees).filter_map(|(facet, sees)| sees.then_some(facet)) {
            for &left_out in &facet.vertices {
                let ridge = facet.vertices.iter().copied().filter(|&vertex| vertex != left_out).collect();
                *ridges.entry(ridge).or_default() += 1;
            }
        }
        let mut horizon: Vec<Vec<usize>> =
            ridges.into_iter().filter_map(|(ridge, count)| (count == 1).then_some(ridge)).collect();
        // Sorted, so that the iteration order of the hash map does not affect the rounding of the volume.
        horizon.sort_unstable();
        let mut seen = sees.iter();
        self.facets.retain(|_| !seen.next().is_some_and(|&sees| sees));
        for mut vertices in horizon {
            vertices.push(index);
            let facet = self.facet(vertices)?;
            self.facets.push(facet);
        }
        Some(())
    }

    fn volume(&self) -> f64 {
        let factorial: f64 = (1..=self.dimension).map(|k| k as f64).product();
        // The normal is the cross product of a facet's edges: its height times its length is d! times the simplex.
        let depths = self.facets.iter().map(|facet| facet.offset - dot(&facet.normal, &self.inner));
        depths.sum::<f64>() / factorial
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn norm(a: &[f64]) -> f64 {
    dot(a, a).sqrt()
}

/// The cross product of `dimension − 1` vectors: orthogonal to all, with the volume of their parallelepiped as its length.
fn orthogonal(edges: &[Vec<f64>], dimension: usize) -> Vec<f64> {
    let minor = |left_out: usize| {
        let columns = || (0..dimension).filter(|&axis| axis != left_out);
        let matrix = edges.iter().flat_map(|edge| columns().map(|axis| edge[axis])).collect();
        let sign = if left_out.is_multiple_of(2) { 1.0 } else { -1.0 };
        sign * determinant(matrix, dimension - 1)
    };
    (0..dimension).map(minor).collect()
}

/// The determinant of a row-major square matrix, by elimination with partial pivoting.
pub(super) fn determinant(mut matrix: Vec<f64>, size: usize) -> f64 {
    let mut determinant = 1.0;
    for column in 0..size {
        let pivot = (column..size)
            .max_by(|&a, &b| matrix[a * size + column].abs().total_cmp(&matrix[b * size + column].abs()))
            .unwrap_or(column);
        if pivot != column {
            determinant = -determinant;
            (0..size).for_each(|k| matrix.swap(pivot * size + k, column * size + k));
        }
        let diagonal = matrix[column * size + column];
        if diagonal == 0.0 {
            return 0.0;
        }
        determinant *= diagonal;
        for row in column + 1..size {
            let factor = matrix[row * size + column] / diagonal;
            (column..size).for_each(|k| matrix[row * size + k] -= factor * matrix[column * size + k]);
        }
    }
    determinant
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::numpy::RandomState;
    use proptest::prelude::*;
    use rand::{SeedableRng, seq::SliceRandom};
    use rand_chacha::ChaCha8Rng;
    use rand_distr::{Distribution, StandardNormal};

    fn random(count: usize, dimension: usize, seed: u64) -> Vec<f64> {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        (0..count * dimension).map(|_| StandardNormal.sample(&mut rng)).collect()
    }

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() <= 1e-10 * b.abs()
    }

    /// Volumes by Qhull of `numpy.random.RandomState(0).randn(count, 5)`, for the sizes of the two hull experiments.
    #[test]
    fn volumes_are_those_of_qhull() {
        for (count, volume) in [(16, 8.931043292816847), (8, 0.7805794792274459)] {
            let mut numpy = RandomState::new(0);
            let points: Vec<f64> = (0..count * 5).map(|_| numpy.normal()).collect();
            let ours = hull_volume(&points, 5).unwrap();
            assert!(close(ours, volume), "{count} points: {ours}");
        }
    }

    /// The subsets of size `size` of 0..`count`.
    fn subsets(count: usize, size: usize) -> Vec<Vec<usize>> {
        if size == 0 {
            return vec![Vec::new()];
        }
        let extend = |last: usize| {
            subsets(last, size - 1).into_iter().map(move |mut subset| {
                subset.push(last);
                subset
            })
        };
        (0..count).flat_map(extend).collect()
    }

    /// The volume by exhaustive search: a facet is a set of points whose hyperplane has all others on one side.
    fn by_exhaustion(points: &[f64], d: usize) -> f64 {
        let count = points.len() / d;
        let row = |p: usize| &points[p * d..][..d];
        let center: Vec<f64> =
            (0..d).map(|axis| (0..count).map(|p| row(p)[axis]).sum::<f64>() / count as f64).collect();
        let with = |facet: &[usize], last: &[f64]| {
            let difference =
                |x: &[f64]| -> Vec<f64> { x.iter().zip(row(facet[0])).map(|(x, b)| x - b).collect() };
            let mut matrix: Vec<f64> = facet[1..].iter().flat_map(|&p| difference(row(p))).collect();
            matrix.extend(difference(last));
            determinant(matrix, d)
        };
        let factorial: f64 = (1..=d).map(|k| k as f64).product();
        let facets = subsets(count, d).into_iter().filter(|facet| {
            let signs: Vec<bool> =
                (0..count).filter(|p| !facet.contains(p)).map(|p| with(facet, row(p)) > 0.0).collect();
            signs.iter().all(|&sign| sign) || signs.iter().all(|&sign| !sign)
        });
        facets.map(|facet| with(&facet, &center).abs()).sum::<f64>() / factorial
    }

    #[test]
    fn it_agrees_with_the_enumeration_of_all_facets() {
        for (count, dimension, sets) in [(5, 1, 8), (9, 2, 8), (11, 3, 8), (10, 4, 6), (16, 5, 4), (9, 6, 3)]
        {
            for seed in 0..sets {
                let points = random(count, dimension, seed);
                let (fast, slow) =
                    (hull_volume(&points, dimension).unwrap(), by_exhaustion(&points, dimension));
                assert!(close(fast, slow), "{count} points in {dimension}: {fast} {slow}");
            }
        }
    }

    /// Volumes from Qhull (SciPy 1.17), for points given by a formula.
    #[test]
    fn it_agrees_with_qhull() {
        for (count, dimension, expected) in [
            (10, 2, 2.4443737489739683),
            (20, 3, 3.9761890012335748),
            (12, 4, 1.6294135233541727),
            (16, 5, 2.2872670565797755),
            (24, 5, 4.442_501_129_900_61),
            (12, 6, 0.142_641_553_872_478_04),
        ] {
            let at = |k: usize| (1.7 * (k * k) as f64 + 0.3 * k as f64 + 0.1 * dimension as f64).sin();
            let points: Vec<f64> = (0..count * dimension).map(at).collect();
            let volume = hull_volume(&points, dimension).unwrap();
            assert!(close(volume, expected), "{count} points in {dimension}: {volume}, not {expected}");
        }
    }

    #[test]
    fn known_bodies_have_their_volumes() {
        let factorial = |d: usize| (1..=d).map(|k| k as f64).product::<f64>();
        for d in 1..=6 {
            let unit = |axis: usize, sign: f64| (0..d).map(move |k| if k == axis { sign } else { 0.0 });
            let simplex: Vec<f64> =
                std::iter::repeat_n(0.0, d).chain((0..d).flat_map(|axis| unit(axis, 1.0))).collect();
            assert!(close(hull_volume(&simplex, d).unwrap(), 1.0 / factorial(d)), "simplex in {d}");
            // The vertices of these bodies are in general position only after a random perturbation, and barely so in higher dimensions.
            let cross = (0..d).flat_map(|axis| unit(axis, 1.0).chain(unit(axis, -1.0))).collect();
            let cube = (0..d << d).map(|index| ((index / d) >> (index % d) & 1) as f64).collect();
            let bodies: [(&str, Vec<f64>, f64); 2] =
                [("cross", cross, 2f64.powi(d as i32) / factorial(d)), ("cube", cube, 1.0)];
            for (body, mut points, expected) in bodies.into_iter().filter(|_| d <= 4) {
                let noise = random(points.len(), 1, 7);
                points.iter_mut().zip(noise).for_each(|(x, noise)| *x += 1e-4 * noise);
                let volume = hull_volume(&points, d).unwrap();
                assert!((volume / expected - 1.0).abs() < 5e-3, "{body} in {d}: {volume}, not {expected}");
            }
        }
    }

    #[test]
    fn what_has_no_hull_is_refused() {
        assert!(
            hull_volume(&random(5, 5, 0), 5)
                .unwrap_err()
                .to_string()
                .contains("more of them than dimensions")
        );
        assert!(hull_volume(&[0.0; 7], 2).is_err());
        assert!(hull_volume(&[], 0).is_err());
        assert!(hull_volume(&[0.0, f64::NAN, 1.0], 1).unwrap_err().to_string().contains("finite"));
        let mut flat = random(9, 3, 1);
        flat.chunks_exact_mut(3).for_each(|point| point[2] = point[0] - 2.0 * point[1]);
        assert!(hull_volume(&flat, 3).unwrap_err().to_string().contains("one hyperplane"));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn volumes_follow_the_laws_of_measure(dimension in 1usize..6, extra in 1usize..9, seed: u64) {
            let points = random(dimension + extra, dimension, seed);
            let volume = hull_volume(&points, dimension).unwrap();
            // Linear maps scale it by their determinant, translations not at all.
            let (map, shift) = (random(dimension, dimension, !seed), random(1, dimension, seed ^ 5));
            let image: Vec<f64> = points
                .chunks_exact(dimension)
                .flat_map(|x| map.chunks_exact(dimension).zip(&shift).map(|(row, s)| dot(row, x) + s).collect::<Vec<_>>())
                .collect();
            let scaled = volume * determinant(map, dimension).abs();
            let moved = hull_volume(&image, dimension).unwrap();
            prop_assert!((moved - scaled).abs() <= 1e-8 * scaled.max(1e-3), "{moved} {scaled}");
            // The order of the points does not matter, nor does a point inside.
            let mut rows: Vec<Vec<f64>> = points.chunks_exact(dimension).map(<[f64]>::to_vec).collect();
            let inside: Vec<f64> = (0..dimension)
                .map(|axis| rows.iter().enumerate().map(|(k, row)| row[axis] * (k + 1) as f64).sum::<f64>())
                .map(|sum| sum / (rows.len() * (rows.len() + 1) / 2) as f64)
                .collect();
            rows.shuffle(&mut ChaCha8Rng::seed_from_u64(seed));
            rows.push(inside);
            let again = hull_volume(&rows.concat(), dimension).unwrap();
            prop_assert!(close(again, volume), "{again} {volume}");
        }
    }
}
