//! Lines over a common axis.

use super::{
    BLUE, COLORS, GRAY, VERMILION,
    axis::Axis,
    header::{Entry, Mark, header},
    paper::{Drawing, Paper},
    range, styled,
};
use plotters::{coord::CoordTranslate, prelude::*};
use serde::{Deserialize, Serialize};

/// A line and its name.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Line {
    /// Its name in the legend.
    pub label: String,
    /// (x, y) points. Points that are not finite or, on logarithmic axes, not positive are omitted.
    pub points: Vec<(f64, f64)>,
}

/// The name and the visible points of a line.
type Shown<'a> = (&'a str, Vec<(f64, f64)>);

/// Draws lines over linear axes, up to three of them; or, `is_log`, with their points over logarithmic ones. Values that such axes cannot
/// show are left out; without any value nothing is drawn.
pub fn draw(lines: &[Line], title: &str, names: (&str, &str), is_log: bool, paper: Paper) -> Drawing {
    let lines = shown(lines, |value| value.is_finite() && (!is_log || value > 0.0));
    let Some([(left, right), (low, high)]) = extent(&lines) else { return Ok(None) };
    let (across, up, colors, mark, dots): (_, _, &[RGBColor], _, _) = if is_log {
        let across = Axis::log((left / 1.2, right * 1.2), paper.ticks(9));
        (across, Axis::log((low / 1.6, high * 1.6), 10), &COLORS, Mark::Dotted(2), 4)
    } else {
        let margin = (0.06 * (high - low)).max(1e-12 + 1e-6 * high.abs());
        let right = right.max(left + 1e-9 * (1.0 + left.abs()));
        let across = Axis::linear((left, right), paper.ticks(4));
        (across, Axis::linear((low - margin, high + margin), 4), &[VERMILION, BLUE, GRAY], Mark::Line(2), 0)
    };
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, paper.size((860, 500))).into_drawing_area();
        root.fill(&WHITE)?;
        let body = header(&root, paper.title(title), &marks(&lines, colors, mark))?;
        let mut chart = ChartBuilder::on(&body)
            .margin_left(12)
            .margin_right(24)
            .x_label_area_size(48)
            .y_label_area_size(90)
            .build_cartesian_2d(across, up)?;
        styled(&mut chart.configure_mesh()).x_desc(names.0).y_desc(names.1).draw()?;
        draw_lines(&mut chart, &lines, colors, dots)?;
        root.present()?;
    }
    Ok(Some(svg))
}

type Drawn = Result<(), DrawingAreaErrorKind<std::io::Error>>;

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
fn draw_lines<'b, CT: CoordTranslate<From = (f64, f64)>>(
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
        let both = [line("learned", 0.1), line("exact", 0.0)];
        let svg = draw(&both, "energy", ("time", "error"), false, Paper::Screen).unwrap().unwrap();
        for label in ["learned", "exact", "energy", "time", "error"] {
            assert!(svg.contains(label), "{label}");
        }
        assert!(!svg.contains("NaN"));
        let hopeless = Line { label: "x".to_owned(), points: vec![(0.0, f64::NAN)] };
        assert!(draw(&[hopeless], "x", ("x", "y"), false, Paper::Screen).unwrap().is_none());
    }

    #[test]
    fn lines_on_logarithmic_axes_have_their_labels_and_survive_hopeless_values() {
        let both = [line("cpu", 0.1), line("gpu", 1e-4)];
        let svg = draw(&both, "steps", ("batch", "ms"), true, Paper::Screen).unwrap().unwrap();
        for label in ["cpu", "gpu", "steps", "batch", "ms"] {
            assert!(svg.contains(label), "{label}");
        }
        assert!(!svg.contains("NaN"));
        assert!(draw(&[line("x", -1.0)], "x", ("x", "y"), true, Paper::Screen).unwrap().is_none());
    }
}
