//! Test error over the number of training samples.

use super::{BLUE, VERMILION, failed, log_chart, range, save, significant, styled};
use crate::error::Result;
use plotters::prelude::*;
use std::path::Path;

/// The results with one number of training samples.
#[derive(Clone, Debug)]
pub struct CurvePoint {
    /// The number of training samples.
    pub samples: usize,
    /// The mean of the errors.
    pub mean: f64,
    /// The error of each seed.
    pub errors: Vec<f64>,
}

/// Draws the curve on logarithmic axes: a line through the means, a dot for each run. Values that such axes cannot show (not
/// positive, not finite) are left out; without any value nothing is drawn.
///
/// # Errors
/// The figure cannot be drawn or written.
pub fn curve(path: &Path, points: &[CurvePoint], title: &str, axis: &str) -> Result<()> {
    let shown = |value: f64| value.is_finite() && value > 0.0;
    let at = |point: &CurvePoint| point.samples as f64;
    let means: Vec<(f64, f64)> =
        points.iter().filter(|point| shown(point.mean)).map(|point| (at(point), point.mean)).collect();
    let dots: Vec<(f64, f64)> = points
        .iter()
        .flat_map(|point| {
            point.errors.iter().filter(|&&error| shown(error)).map(move |&error| (at(point), error))
        })
        .collect();
    let errors = range(dots.iter().map(|&(_, error)| error));
    let samples = range(dots.iter().map(|&(samples, _)| samples));
    if !errors.0.is_finite() {
        return Ok(());
    }
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (760, 500)).into_drawing_area();
        root.fill(&WHITE).map_err(failed(path))?;
        let mut chart = log_chart(&root, title, samples, errors).map_err(failed(path))?;
        styled(&mut chart.configure_mesh())
            .x_desc("training samples")
            .y_desc(axis)
            .x_label_formatter(&|samples| format!("{samples:.0}"))
            .y_label_formatter(&|value| significant(*value))
            .draw()
            .map_err(failed(path))?;
        chart.draw_series(LineSeries::new(means, BLUE.stroke_width(2))).map_err(failed(path))?;
        chart
            .draw_series(dots.into_iter().map(|dot| Circle::new(dot, 4, VERMILION.filled())))
            .map_err(failed(path))?;
        root.present().map_err(failed(path))?;
    }
    save(path, &svg)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_has_its_labels_and_survives_hopeless_values() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("curve.svg");
        let point = |samples: usize, errors: &[f64]| CurvePoint {
            samples,
            mean: errors.iter().sum::<f64>() / errors.len() as f64,
            errors: errors.to_vec(),
        };
        let points = [point(256, &[0.1, 0.2]), point(1024, &[0.01, f64::NAN]), point(4096, &[0.0])];
        curve(&path, &points, "volumes", "test mean squared error").unwrap();
        let svg = std::fs::read_to_string(&path).unwrap();
        for label in ["volumes", "training samples", "test mean squared error"] {
            assert!(svg.contains(label), "{label}");
        }
        assert!(!svg.contains("NaN"));
        curve(&folder.path().join("none.svg"), &[point(1, &[f64::NAN])], "x", "y").unwrap();
        assert!(!folder.path().join("none.svg").exists());
    }
}
