//! Test error over the number of training samples.

use super::{
    BLUE, VERMILION,
    axis::Axis,
    header::{Entry, Mark, header},
    paper::{Drawing, Paper},
    range, styled,
};
use plotters::prelude::*;
use serde::{Deserialize, Deserializer, Serialize};

/// The results with one number of training samples.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct CurvePoint {
    /// The number of training samples.
    pub samples: usize,
    /// The mean of the errors.
    #[serde(deserialize_with = "nan")]
    pub mean: f64,
    /// The error of each seed.
    pub errors: Vec<f64>,
}

/// JSON has no NaN, and null in its place.
fn nan<'de, D: Deserializer<'de>>(json: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(json)?.unwrap_or(f64::NAN))
}

/// Draws the curve on logarithmic axes: a line through the means, a dot for each run, a bar over the range of its seeds. Values that such
/// axes cannot show (not positive, not finite) are left out; without any value nothing is drawn.
pub fn draw(points: &[CurvePoint], title: &str, axis: &str, paper: Paper) -> Drawing {
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
        return Ok(None);
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
        let root = SVGBackend::with_string(&mut svg, paper.size((760, 520))).into_drawing_area();
        root.fill(&WHITE)?;
        let body = header(&root, paper.title(title), &entries)?;
        let sides = (fewest / 1.2, greatest * 1.2);
        let across = match measured(points, sides, paper.ticks(9)) {
            Some(ticks) => Axis::log_with(sides, ticks),
            None => Axis::log(sides, paper.ticks(7)),
        };
        let up = Axis::log((low / 1.6, high * 1.6), 10);
        let mut chart = ChartBuilder::on(&body)
            .margin_left(12)
            .margin_right(24)
            .x_label_area_size(48)
            .y_label_area_size(84)
            .build_cartesian_2d(across, up)?;
        styled(&mut chart.configure_mesh()).x_desc("training samples").y_desc(axis).draw()?;
        chart.draw_series(LineSeries::new(means, BLUE.stroke_width(2)))?;
        chart.draw_series(bars)?;
        chart.draw_series(dots.into_iter().map(|dot| Circle::new(dot, 4, VERMILION.filled())))?;
        root.present()?;
    }
    Ok(Some(svg))
}

/// The measured numbers of samples as ticks, if there are two or more and all fit beside each other, as `most` equally far apart do.
fn measured(points: &[CurvePoint], (left, right): (f64, f64), most: usize) -> Option<Vec<f64>> {
    let mut ticks: Vec<f64> = points.iter().map(|point| point.samples as f64).collect();
    ticks.retain(|tick| (left..=right).contains(tick));
    ticks.sort_by(f64::total_cmp);
    ticks.dedup();
    let apart = (right / left).ln() / most as f64;
    let fits = ticks.windows(2).all(|pair| (pair[1] / pair[0]).ln() >= apart);
    Some(ticks).filter(|ticks| ticks.len() > 1 && fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_has_its_labels_and_survives_hopeless_values() {
        let point = |samples: usize, errors: &[f64]| CurvePoint {
            samples,
            mean: errors.iter().sum::<f64>() / errors.len() as f64,
            errors: errors.to_vec(),
        };
        let points = [point(256, &[0.1, 0.2]), point(1024, &[0.01, f64::NAN]), point(4096, &[0.0])];
        let json = serde_json::to_string(&points).unwrap();
        let points: Vec<CurvePoint> = serde_json::from_str(&json.replace("null]", "0]")).unwrap();
        assert!(points[1].mean.is_nan(), "{json}");
        let svg = draw(&points, "volumes", "test mean squared error", Paper::Screen).unwrap().unwrap();
        for label in
            ["volumes", "training samples", "test mean squared error", "range of the seeds", "1024", "256"]
        {
            assert!(svg.contains(label), "{label}");
        }
        assert!(!svg.contains("NaN"));
        assert!(draw(&[point(1, &[f64::NAN])], "x", "y", Paper::Screen).unwrap().is_none());
    }

    #[test]
    fn ticks_are_the_measured_numbers_where_they_fit() {
        let points = |samples: &[usize]| -> Vec<CurvePoint> {
            samples.iter().map(|&samples| CurvePoint { samples, mean: 1.0, errors: vec![1.0] }).collect()
        };
        assert_eq!(measured(&points(&[1024, 256]), (200.0, 1200.0), 9), Some(vec![256.0, 1024.0]));
        assert_eq!(measured(&points(&[1000, 1010, 4000]), (900.0, 5000.0), 9), None, "too close");
        assert_eq!(measured(&points(&[1000]), (900.0, 1100.0), 9), None, "a single number is no scale");
    }
}
