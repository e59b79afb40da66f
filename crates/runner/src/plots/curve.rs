//! Test error over the number of training samples.

use super::{
    BLUE, VERMILION,
    axis::Axis,
    failed,
    header::{Entry, Mark, header},
    range, save, styled,
};
use crate::error::Result;
use plotters::prelude::*;
use std::path::Path;

/// The results with one number of training samples.
#[derive(Clone, PartialEq, Debug)]
pub struct CurvePoint {
    /// The number of training samples.
    pub samples: usize,
    /// The mean of the errors.
    pub mean: f64,
    /// The error of each seed.
    pub errors: Vec<f64>,
}

/// Draws the curve on logarithmic axes: a line through the means, a dot for each run, a bar over the range of its seeds. Values that such
/// axes cannot show (not positive, not finite) are left out; without any value nothing is drawn.
///
/// # Errors
/// The figure cannot be drawn or written.
pub fn curve(path: &Path, points: &[CurvePoint], title: &str, axis: &str) -> Result<()> {
    let shown = |value: &f64| value.is_finite() && *value > 0.0;
    let at = |point: &CurvePoint| point.samples as f64;
    let means: Vec<(f64, f64)> =
        points.iter().filter(|point| shown(&point.mean)).map(|point| (at(point), point.mean)).collect();
    let errors = |point: &CurvePoint| point.errors.iter().copied().filter(shown).collect::<Vec<f64>>();
    let dots: Vec<(f64, f64)> = points
        .iter()
        .flat_map(|point| errors(point).into_iter().map(move |error| (at(point), error)))
        .collect();
    let (low, high) = range(dots.iter().map(|&(_, error)| error));
    let (fewest, greatest) = range(dots.iter().map(|&(samples, _)| samples));
    if !low.is_finite() {
        return Ok(());
    }
    let bars = points.iter().filter_map(|point| {
        let (low, high) = range(errors(point).into_iter());
        (low < high)
            .then(|| PathElement::new([(at(point), low), (at(point), high)], VERMILION.stroke_width(2)))
    });
    let bars: Vec<_> = bars.collect();
    let mut entries = vec![
        Entry { label: "mean", color: BLUE, mark: Mark::Line(2) },
        Entry { label: "a seed", color: VERMILION, mark: Mark::Dots },
    ];
    if !bars.is_empty() {
        entries.push(Entry { label: "range of the seeds", color: VERMILION, mark: Mark::Bars });
    }
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (760, 520)).into_drawing_area();
        root.fill(&WHITE).map_err(failed(path))?;
        let body = header(&root, title, &entries).map_err(failed(path))?;
        let sides = (fewest / 1.2, greatest * 1.2);
        let across = match measured(points, sides) {
            Some(ticks) => Axis::log_with(sides, ticks),
            None => Axis::log(sides, 7),
        };
        let up = Axis::log((low / 1.6, high * 1.6), 10);
        let mut chart = ChartBuilder::on(&body)
            .margin_left(12)
            .margin_right(24)
            .x_label_area_size(48)
            .y_label_area_size(84)
            .build_cartesian_2d(across, up)
            .map_err(failed(path))?;
        styled(&mut chart.configure_mesh())
            .x_desc("training samples")
            .y_desc(axis)
            .draw()
            .map_err(failed(path))?;
        chart.draw_series(LineSeries::new(means, BLUE.stroke_width(2))).map_err(failed(path))?;
        chart.draw_series(bars).map_err(failed(path))?;
        chart
            .draw_series(dots.into_iter().map(|dot| Circle::new(dot, 4, VERMILION.filled())))
            .map_err(failed(path))?;
        root.present().map_err(failed(path))?;
    }
    save(path, &svg)
}

/// The measured numbers of samples as ticks, if there are two or more and all fit beside each other.
fn measured(points: &[CurvePoint], (left, right): (f64, f64)) -> Option<Vec<f64>> {
    let mut ticks: Vec<f64> = points.iter().map(|point| point.samples as f64).collect();
    ticks.retain(|tick| (left..=right).contains(tick));
    ticks.sort_by(f64::total_cmp);
    ticks.dedup();
    let apart = (right / left).ln() / 9.0;
    let fits = ticks.windows(2).all(|pair| (pair[1] / pair[0]).ln() >= apart);
    Some(ticks).filter(|ticks| ticks.len() > 1 && fits)
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
        for label in
            ["volumes", "training samples", "test mean squared error", "range of the seeds", "1024", "256"]
        {
            assert!(svg.contains(label), "{label}");
        }
        assert!(!svg.contains("NaN"));
        curve(&folder.path().join("none.svg"), &[point(1, &[f64::NAN])], "x", "y").unwrap();
        assert!(!folder.path().join("none.svg").exists());
    }

    #[test]
    fn ticks_are_the_measured_numbers_where_they_fit() {
        let points = |samples: &[usize]| -> Vec<CurvePoint> {
            samples.iter().map(|&samples| CurvePoint { samples, mean: 1.0, errors: vec![1.0] }).collect()
        };
        assert_eq!(measured(&points(&[1024, 256]), (200.0, 1200.0)), Some(vec![256.0, 1024.0]));
        assert_eq!(measured(&points(&[1000, 1010, 4000]), (900.0, 5000.0)), None, "too close");
        assert_eq!(measured(&points(&[1000]), (900.0, 1100.0)), None, "a single number is no scale");
    }
}
