//! Lines over a common axis.

use super::{
    BLUE, COLORS, GRAY, VERMILION,
    axis::Axis,
    failed,
    header::{Entry, Mark, header},
    range, save, styled,
};
use crate::error::Result;
use plotters::{
    coord::{CoordTranslate, Shift},
    prelude::*,
};
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

/// Draws up to three lines. Values that are not finite are omitted; without any value, nothing is drawn.
///
/// # Errors
/// The figure cannot be drawn or written.
pub fn lines(path: &Path, lines: &[Line], title: &str, names: (&str, &str)) -> Result<()> {
    let lines = shown(lines, f64::is_finite);
    let Some([(left, right), (low, high)]) = extent(&lines) else { return Ok(()) };
    let margin = (0.06 * (high - low)).max(1e-12 + 1e-6 * high.abs());
    let colors = [VERMILION, BLUE, GRAY];
    let across = Axis::linear((left, right.max(left + 1e-9 * (1.0 + left.abs()))), 4);
    let up = Axis::linear((low - margin, high + margin), 4);
    drawn(path, (title, &marks(&lines, &colors, Mark::Line(2))), |body| {
        let mut chart = builder(body).build_cartesian_2d(across, up)?;
        styled(&mut chart.configure_mesh()).x_desc(names.0).y_desc(names.1).draw()?;
        draw(&mut chart, &lines, &colors, 0)
    })
}

/// Draws lines with their points, both axes logarithmic. Values that such axes cannot show (not positive, not finite) are left out;
/// without any value nothing is drawn.
///
/// # Errors
/// The figure cannot be drawn or written.
pub fn log_lines(path: &Path, lines: &[Line], title: &str, names: (&str, &str)) -> Result<()> {
    let lines = shown(lines, |value| value.is_finite() && value > 0.0);
    let Some([(left, right), (low, high)]) = extent(&lines) else { return Ok(()) };
    let across = Axis::log((left / 1.2, right * 1.2), 9);
    let up = Axis::log((low / 1.6, high * 1.6), 10);
    drawn(path, (title, &marks(&lines, &COLORS, Mark::Dotted(2))), |body| {
        let mut chart = builder(body).build_cartesian_2d(across, up)?;
        styled(&mut chart.configure_mesh()).x_desc(names.0).y_desc(names.1).draw()?;
        draw(&mut chart, &lines, &COLORS, 4)
    })
}

type Area<'b> = DrawingArea<SVGBackend<'b>, Shift>;
type Drawn = Result<(), DrawingAreaErrorKind<std::io::Error>>;

/// Draws a figure with its title and the names of its series, and saves it.
fn drawn(
    path: &Path,
    (title, entries): (&str, &[Entry<'_>]),
    content: impl FnOnce(&Area<'_>) -> Drawn,
) -> Result<()> {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (860, 500)).into_drawing_area();
        root.fill(&WHITE).map_err(failed(path))?;
        content(&header(&root, title, entries).map_err(failed(path))?).map_err(failed(path))?;
        root.present().map_err(failed(path))?;
    }
    save(path, &svg)
}

/// The axes of both kinds of figures, before their ranges.
fn builder<'a, 'b>(area: &'a Area<'b>) -> ChartBuilder<'a, 'b, SVGBackend<'b>> {
    let mut builder = ChartBuilder::on(area);
    builder.margin_left(12).margin_right(24).x_label_area_size(48).y_label_area_size(90);
    builder
}

/// The entries of the legend.
fn marks<'a>(lines: &[Shown<'a>], colors: &[RGBColor], mark: Mark) -> Vec<Entry<'a>> {
    let entry = |((label, _), &color): (&Shown<'a>, &RGBColor)| Entry { label, color, mark };
    lines.iter().zip(colors.iter().cycle()).map(entry).collect()
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

/// Draws the lines, with dots of the given radius in pixels at their points.
fn draw<'b, CT: CoordTranslate<From = (f64, f64)>>(
    chart: &mut ChartContext<'_, SVGBackend<'b>, CT>,
    lines: &[Shown<'_>],
    colors: &[RGBColor],
    dots: u32,
) -> Drawn {
    for ((_, points), color) in lines.iter().zip(colors.iter().cycle()) {
        chart.draw_series(LineSeries::new(points.clone(), color.stroke_width(2)))?;
        if dots > 0 || points.len() == 1 {
            let circle = |&point| Circle::new(point, dots.max(3), color.filled());
            chart.draw_series(points.iter().map(circle))?;
        }
    }
    Ok(())
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
