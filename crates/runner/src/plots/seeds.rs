//! A measure of runs that differ in their seed alone, over their steps: the mean, and a band of one standard deviation.

use super::{
    COLORS,
    axis::Axis,
    header::{Entry, Mark, header},
    paper::{Drawing, Paper},
    range, styled,
};
use plotters::prelude::*;
use serde::{Deserialize, Serialize};

/// A measure of several seeds at the steps that all of them have evaluated.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Band {
    /// What the runs are called; empty if there is one group of runs.
    pub name: String,
    /// The number of runs.
    pub seeds: usize,
    /// Step, mean, and the ends of the band, which the least and the greatest value bound.
    pub points: Vec<BandPoint>,
}

/// A step of a [`Band`].
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct BandPoint {
    /// The optimiser step.
    pub step: u64,
    /// The mean over the seeds.
    pub mean: f64,
    /// The mean less the standard deviation, or the least value if that is more.
    pub low: f64,
    /// The mean and the standard deviation.
    pub high: f64,
}

/// Draws the bands on a logarithmic scale. Values that such a scale cannot show (not positive, not finite) are left out; without any
/// value nothing is drawn.
pub fn draw(bands: &[Band], title: &str, axis: &str, paper: Paper) -> Drawing {
    let shown =
        |point: &&BandPoint| [point.low, point.mean, point.high].iter().all(|v| v.is_finite() && *v > 0.0);
    let bands: Vec<(String, Vec<BandPoint>)> = bands
        .iter()
        .map(|band| {
            let among = format!("mean of {} seeds, band of ± 1 standard deviation", band.seeds);
            let label = if band.name.is_empty() { among } else { format!("{}: {among}", band.name) };
            (label, band.points.iter().filter(shown).copied().collect::<Vec<_>>())
        })
        .filter(|(_, points)| !points.is_empty())
        .collect();
    let points = || bands.iter().flat_map(|(_, points)| points);
    let (low, high) = (range(points().map(|p| p.low)).0, range(points().map(|p| p.high)).1);
    if !low.is_finite() {
        return Ok(None);
    }
    let last = points().map(|point| point.step).max().unwrap_or(1).max(1) as f64;
    let colors = || COLORS.iter().cycle();
    let entries: Vec<Entry<'_>> =
        bands.iter().zip(colors()).map(|(band, &color)| entry(band, color)).collect();
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, paper.size((860, 500))).into_drawing_area();
        root.fill(&WHITE)?;
        let body = header(&root, paper.title(title), &entries)?;
        let mut chart = ChartBuilder::on(&body)
            .margin_left(12)
            .margin_right(24)
            .x_label_area_size(48)
            .y_label_area_size(84)
            .build_cartesian_2d(
                Axis::linear((0.0, last), paper.ticks(4)),
                Axis::log((low / 1.2, high * 1.2), 10),
            )?;
        styled(&mut chart.configure_mesh()).x_desc("optimiser step").y_desc(axis).draw()?;
        for ((_, points), &color) in bands.iter().zip(colors()) {
            let at =
                |value: fn(&BandPoint) -> f64| move |point: &BandPoint| (point.step as f64, value(point));
            let mut around: Vec<(f64, f64)> = points.iter().map(at(|point| point.high)).collect();
            around.extend(points.iter().rev().map(at(|point| point.low)));
            let mean: Vec<(f64, f64)> = points.iter().map(at(|point| point.mean)).collect();
            if let [only] = mean[..] {
                chart.draw_series([Circle::new(only, 3, color.filled())])?;
            }
            chart.draw_series([Polygon::new(around, color.mix(0.2))])?;
            chart.draw_series(LineSeries::new(mean, color.stroke_width(2)))?;
        }
        root.present()?;
    }
    Ok(Some(svg))
}

/// The name of a band in the legend.
fn entry((label, _): &(String, Vec<BandPoint>), color: RGBColor) -> Entry<'_> {
    Entry { label, color, mark: Mark::Line(2) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn band(name: &str, points: &[(u64, f64, f64)]) -> Band {
        let point = |&(step, mean, deviation): &(u64, f64, f64)| BandPoint {
            step,
            mean,
            low: mean - deviation,
            high: mean + deviation,
        };
        Band { name: name.to_owned(), seeds: 3, points: points.iter().map(point).collect() }
    }

    #[test]
    fn bands_have_names_areas_and_lines() {
        let bands = [
            band("a", &[(10, 1.0, 0.1), (20, 0.5, 0.1), (30, 0.4, 0.05)]),
            band("b", &[(10, 2.0, 0.1), (20, f64::NAN, 0.1), (30, 0.8, 0.9)]),
        ];
        let svg = draw(&bands, "three seeds", "MSE", Paper::Screen).unwrap().unwrap();
        for part in ["three seeds", "a: mean of 3 seeds", "b: mean of 3 seeds", "optimiser step", "MSE"] {
            assert!(svg.contains(part), "{part}");
        }
        assert_eq!(svg.matches("<polygon").count(), 2);
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
    }

    #[test]
    fn nothing_is_drawn_of_what_no_logarithmic_axis_shows() {
        let bands = [band("", &[(10, -1.0, 0.1), (20, f64::INFINITY, 1.0)]), band("x", &[])];
        assert!(draw(&bands, "", "", Paper::Screen).unwrap().is_none());
    }
}
