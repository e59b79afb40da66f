//! Figures of a binary classifier, of the width of a column.

use super::{
    BLUE, GRAY, VERMILION,
    axis::Axis,
    header::{Entry, Mark, header},
    paper::{Drawing, Paper},
    range, styled,
};
use plotters::prelude::*;

/// In a column of 86 mm the labels are about 7 points high.
const SIZE: (u32, u32) = (440, 410);

/// Draws the background rejection 1/ε_B, on a logarithmic axis, over the signal efficiency ε_S: `curve` are such pairs. Beside it is the
/// rejection 1/ε_S of a classifier that guesses. Rejections that are not finite are left out; without any nothing is drawn.
pub fn roc(curve: &[(f64, f64)], title: &str, paper: Paper) -> Drawing {
    let curve: Vec<(f64, f64)> =
        curve.iter().copied().filter(|(signal, rejection)| *signal > 0.0 && rejection.is_finite()).collect();
    let (_, highest) = range(curve.iter().map(|&(_, rejection)| rejection));
    if !highest.is_finite() {
        return Ok(None);
    }
    let top = 1.6 * highest.max(10.0);
    let guess: Vec<(f64, f64)> = (1..=100).map(|k| (f64::from(k) / 100.0, 100.0 / f64::from(k))).collect();
    let guess = guess.into_iter().filter(|&(_, rejection)| rejection <= top).collect();
    let axes = (Axis::linear((0.0, 1.0), 4), Axis::log((1.0, top), 9));
    drawn(paper.title(title), axes, ROC, ("classifier", curve), guess)
}

/// Draws observed over predicted frequencies, with a diagonal. Without points nothing is drawn.
pub fn reliability(points: &[(f64, f64)], title: &str, paper: Paper) -> Drawing {
    if points.is_empty() {
        return Ok(None);
    }
    let axes = (Axis::linear((0.0, 1.0), 4), Axis::linear((0.0, 1.0), 4));
    drawn(
        paper.title(title),
        axes,
        RELIABILITY,
        ("classifier", points.to_vec()),
        vec![(0.0, 0.0), (1.0, 1.0)],
    )
}

/// The axes of [`roc`] and of [`reliability`].
pub const ROC: (&str, &str) = ("signal efficiency", "background rejection");
pub const RELIABILITY: (&str, &str) = ("predicted probability of signal", "observed share of signal");

type Points = Vec<(f64, f64)>;

fn drawn(
    title: &str,
    (across, up): (Axis, Axis),
    names: (&str, &str),
    (label, line): (&str, Points),
    reference: Points,
) -> Drawing {
    let other = if up.is_log() { "guess" } else { "calibrated" };
    let entries = [
        Entry { label, color: BLUE, mark: Mark::Line(2) },
        Entry { label: other, color: GRAY, mark: Mark::Line(1) },
    ];
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        root.fill(&WHITE)?;
        let body = header(&root, title, &entries)?;
        let mut chart = ChartBuilder::on(&body)
            .margin_left(8)
            .margin_right(20)
            .x_label_area_size(46)
            .y_label_area_size(76)
            .build_cartesian_2d(across, up)?;
        styled(&mut chart.configure_mesh()).x_desc(names.0).y_desc(names.1).draw()?;
        chart.draw_series(LineSeries::new(reference, GRAY.stroke_width(1)))?;
        chart.draw_series(LineSeries::new(line.clone(), BLUE.stroke_width(2)))?;
        // A curve has too many points for dots of their own.
        if line.len() <= DOTS {
            let dots = line.into_iter().map(|point| Circle::new(point, 4, VERMILION.filled()));
            chart.draw_series(dots)?;
        }
        root.present()?;
    }
    Ok(Some(svg))
}

/// The most points that are drawn as dots.
const DOTS: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_their_labels_and_survive_hopeless_values() {
        let curve = [(0.0, f64::INFINITY), (0.3, 2000.0), (0.5, 300.0), (1.0, 1.0)];
        let svg = roc(&curve, "tops against QCD", Paper::Screen).unwrap().unwrap();
        for label in ["tops against QCD", "signal efficiency", "background rejection", "guess", "1000"] {
            assert!(svg.contains(label), "{label}");
        }
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
        let svg = reliability(&[(0.1, 0.2), (0.9, 0.8)], "calibration", Paper::Screen).unwrap().unwrap();
        assert!(svg.contains("observed share of signal"));
        assert!(roc(&[(0.0, f64::INFINITY)], "x", Paper::Screen).unwrap().is_none());
        assert!(reliability(&[], "x", Paper::Column).unwrap().is_none());
    }
}
