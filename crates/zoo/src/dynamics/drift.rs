//! Statistics of a motion.

/// Parts of a series whose means are taken as independent.
const BLOCKS: usize = 10;

/// A mean with its standard error.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Mean {
    /// The mean.
    pub value: f64,
    /// Its standard error by the means of ten blocks, which neighbours in time do not make too small; 0 for less than two blocks.
    pub error: f64,
}

/// The mean of a series; 0 of none.
pub fn mean(values: &[f64]) -> Mean {
    let of = |values: &[f64]| values.iter().sum::<f64>() / values.len().max(1) as f64;
    let value = of(values);
    let size = values.len() / BLOCKS;
    if size == 0 {
        return Mean { value, error: 0.0 };
    }
    let blocks: Vec<f64> = values.chunks_exact(size).map(of).collect();
    let centre = of(&blocks);
    let square = blocks.iter().map(|x| (x - centre).powi(2)).sum::<f64>();
    let count = blocks.len() as f64;
    Mean { value, error: (square / (count - 1.0).max(1.0) / count).sqrt() }
}

/// The slope of the least-squares line through points (x, y); 0 for less than two different x.
pub fn drift(points: &[(f64, f64)]) -> f64 {
    let count = points.len().max(1) as f64;
    let (x0, y0) = points.iter().fold((0.0, 0.0), |(a, b), (x, y)| (a + x / count, b + y / count));
    let (both, square) =
        points.iter().fold((0.0, 0.0), |(a, b), (x, y)| (a + (x - x0) * (y - y0), b + (x - x0).powi(2)));
    if square > 0.0 { both / square } else { 0.0 }
}
