//! Lines over a common axis.

use super::{BLUE, FONT, GRAY, GRID, INK, VERMILION, failed, save, significant};
use crate::error::Result;
use plotters::prelude::*;
use std::path::Path;

/// A line and its name.
#[derive(Clone, Debug)]
pub struct Line {
    pub label: &'static str,
    pub points: Vec<(f64, f64)>,
}

/// Draws up to three lines. Values that are not finite are left out; without any value nothing is drawn.
///
/// # Errors
/// The figure cannot be drawn or written.
pub fn lines(path: &Path, lines: &[Line], title: &str, (x, y): (&str, &str)) -> Result<()> {
    let shown = |line: &Line| -> Vec<(f64, f64)> {
        line.points.iter().copied().filter(|(x, y)| x.is_finite() && y.is_finite()).collect()
    };
    let lines: Vec<(&str, Vec<(f64, f64)>)> = lines.iter().map(|line| (line.label, shown(line))).collect();
    let points = || lines.iter().flat_map(|(_, points)| points);
    let range = |values: &mut dyn Iterator<Item = f64>| {
        values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)))
    };
    let (left, right) = range(&mut points().map(|&(x, _)| x));
    let (low, high) = range(&mut points().map(|&(_, y)| y));
    if left > right {
        return Ok(());
    }
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
        chart
            .configure_mesh()
            .x_desc(x)
            .y_desc(y)
            .y_label_formatter(&|value| {
                if value.abs() < 1e-12 { "0".to_owned() } else { significant(*value) }
            })
            .label_style((FONT, 14).into_font().color(&INK))
            .axis_desc_style((FONT, 16).into_font().color(&INK))
            .bold_line_style(GRID)
            .light_line_style(WHITE)
            .axis_style(GRAY)
            .draw()
            .map_err(failed(path))?;
        for ((label, points), color) in lines.into_iter().zip([VERMILION, BLUE, GRAY]) {
            chart
                .draw_series(LineSeries::new(points, color.stroke_width(2)))
                .map_err(failed(path))?
                .label(label)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 24, y)], color.stroke_width(2)));
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .margin(12)
            .legend_area_size(32)
            .label_font((FONT, 15).into_font().color(&INK))
            .background_style(WHITE.mix(0.9))
            .border_style(GRID)
            .draw()
            .map_err(failed(path))?;
        root.present().map_err(failed(path))?;
    }
    save(path, &svg)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_their_labels_and_survive_hopeless_values() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lines.svg");
        let line = |label, slope: f64| Line {
            label,
            points: (0..9)
                .map(|t| (f64::from(t), if t == 3 { f64::NAN } else { slope * f64::from(t) }))
                .collect(),
        };
        lines(&path, &[line("learned", 0.1), line("exact", 0.0)], "energy", ("time", "error")).unwrap();
        let svg = std::fs::read_to_string(&path).unwrap();
        for label in ["learned", "exact", "energy", "time", "error"] {
            assert!(svg.contains(label), "{label}");
        }
        assert!(!svg.contains("NaN"));
        let none = folder.path().join("none.svg");
        lines(&none, &[Line { label: "x", points: vec![(0.0, f64::NAN)] }], "x", ("x", "y")).unwrap();
        assert!(!none.exists());
    }
}
