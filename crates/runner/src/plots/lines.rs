//! Lines over a common axis.

use super::{
    BLUE, FONT, GRAY, INK, VERMILION, failed, legend, log_chart, range, save, significant, styled, swatch,
};
use crate::error::Result;
use plotters::{coord::CoordTranslate, prelude::*};
use std::path::Path;

/// A line and its name.
#[derive(Clone, Debug)]
pub struct Line {
    /// Its name in the legend.
    pub label: String,
    /// (x, y) points. Points that are not finite or, on logarithmic axes, not positive are omitted.
    pub points: Vec<(f64, f64)>,
}

/// The name and the visible points of a line.
type Shown<'a> = (&'a str, Vec<(f64, f64)>);

/// The colours of lines on logarithmic axes: those of the other figures, then the rest of Okabe and Ito's.
const COLORS: [RGBColor; 7] = [
    BLUE,
    VERMILION,
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    GRAY,
];

/// Draws up to three lines. Values that are not finite are omitted; without any value, nothing is drawn.
///
/// # Errors
/// The figure cannot be drawn or written.
pub fn lines(path: &Path, lines: &[Line], title: &str, (x, y): (&str, &str)) -> Result<()> {
    let lines = shown(lines, f64::is_finite);
    let Some([(left, right), (low, high)]) = extent(&lines) else { return Ok(()) };
    let margin = (0.06 * (high - low)).max(1e-12 + 1e-6 * high.abs());
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (860, 480)).into_drawing_area();
        root.fill(&WHITE).map_err(failed(path))?;
        let mut chart = ChartBuilder::on(&root)
            .caption(title, (FONT, 20).into_font().color(&INK))
            .margin(16)
            .x_label_area_size(48)
            .y_label_area_size(90)
            .build_cartesian_2d(left..right.max(left + 1e-12), low - margin..high + margin)
            .map_err(failed(path))?;
        styled(&mut chart.configure_mesh())
            .x_desc(x)
            .y_desc(y)
            .y_label_formatter(&|value| {
                if value.abs() < 1e-12 { "0".to_owned() } else { significant(*value) }
            })
            .draw()
            .map_err(failed(path))?;
        draw(&mut chart, lines, [VERMILION, BLUE, GRAY].into_iter(), 0).map_err(failed(path))?;
        root.present().map_err(failed(path))?;
    }
    save(path, &svg)
}

/// Draws lines with their points, both axes logarithmic. Values that such axes cannot show (not positive, not finite) are left out;
/// without any value nothing is drawn.
///
/// # Errors
/// The figure cannot be drawn or written.
pub fn log_lines(path: &Path, lines: &[Line], title: &str, (x, y): (&str, &str)) -> Result<()> {
    let lines = shown(lines, |value| value.is_finite() && value > 0.0);
    let Some([across, up]) = extent(&lines) else { return Ok(()) };
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (860, 520)).into_drawing_area();
        root.fill(&WHITE).map_err(failed(path))?;
        let mut chart = log_chart(&root, title, across, up).map_err(failed(path))?;
        styled(&mut chart.configure_mesh())
            .x_desc(x)
            .y_desc(y)
            .x_label_formatter(&|value| significant(*value))
            .y_label_formatter(&|value| significant(*value))
            .draw()
            .map_err(failed(path))?;
        draw(&mut chart, lines, COLORS.into_iter().cycle(), 4).map_err(failed(path))?;
        root.present().map_err(failed(path))?;
    }
    save(path, &svg)
}

fn shown(lines: &[Line], can_be: impl Fn(f64) -> bool) -> Vec<Shown<'_>> {
    let points = |line: &Line| line.points.iter().copied().filter(|&(x, y)| can_be(x) && can_be(y)).collect();
    lines.iter().map(|line| (line.label.as_str(), points(line))).collect()
}

/// The ranges of x and of y; `None` without any point.
fn extent(lines: &[Shown<'_>]) -> Option<[(f64, f64); 2]> {
    let points = || lines.iter().flat_map(|(_, points)| points);
    let (across, up) = (range(points().map(|&(x, _)| x)), range(points().map(|&(_, y)| y)));
    (across.0 <= across.1).then_some([across, up])
}

/// Draws the lines, dots of the given radius in pixels at their points, and their names.
fn draw<'a, 'b: 'a, CT: CoordTranslate<From = (f64, f64)>>(
    chart: &mut ChartContext<'a, SVGBackend<'b>, CT>,
    lines: Vec<Shown<'_>>,
    colors: impl Iterator<Item = RGBColor>,
    dots: u32,
) -> Result<(), DrawingAreaErrorKind<std::io::Error>> {
    for ((label, points), color) in lines.into_iter().zip(colors) {
        chart
            .draw_series(LineSeries::new(points, color.stroke_width(2)).point_size(dots))?
            .label(label)
            .legend(swatch(color));
    }
    legend(chart, SeriesLabelPosition::UpperLeft)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(label: &str, slope: f64) -> Line {
        let at = |t: i32| (f64::from(t), if t == 3 { f64::NAN } else { slope * f64::from(t) });
        Line { label: label.to_owned(), points: (0..9).map(at).collect() }
    }

    #[test]
    fn lines_have_their_labels_and_survive_hopeless_values() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lines.svg");
        lines(&path, &[line("learned", 0.1), line("exact", 0.0)], "energy", ("time", "error")).unwrap();
        let svg = std::fs::read_to_string(&path).unwrap();
        for label in ["learned", "exact", "energy", "time", "error"] {
            assert!(svg.contains(label), "{label}");
        }
        assert!(!svg.contains("NaN"));
        let none = folder.path().join("none.svg");
        let hopeless = Line { label: "x".to_owned(), points: vec![(0.0, f64::NAN)] };
        lines(&none, &[hopeless], "x", ("x", "y")).unwrap();
        assert!(!none.exists());
    }

    #[test]
    fn lines_on_logarithmic_axes_have_their_labels_and_survive_hopeless_values() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lines.svg");
        log_lines(&path, &[line("cpu", 0.1), line("gpu", 1e-4)], "steps", ("batch", "ms")).unwrap();
        let svg = std::fs::read_to_string(&path).unwrap();
        for label in ["cpu", "gpu", "steps", "batch", "ms"] {
            assert!(svg.contains(label), "{label}");
        }
        assert!(!svg.contains("NaN"));
        let none = folder.path().join("none.svg");
        log_lines(&none, &[line("x", -1.0)], "x", ("x", "y")).unwrap();
        assert!(!none.exists());
    }
}
