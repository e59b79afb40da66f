//! Lines over a common axis.

use super::{BLUE, FONT, GRAY, INK, VERMILION, failed, legend, range, save, significant, styled, swatch};
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
    let (left, right) = range(points().map(|&(x, _)| x));
    let (low, high) = range(points().map(|&(_, y)| y));
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
        styled(&mut chart.configure_mesh())
            .x_desc(x)
            .y_desc(y)
            .y_label_formatter(&|value| {
                if value.abs() < 1e-12 { "0".to_owned() } else { significant(*value) }
            })
            .draw()
            .map_err(failed(path))?;
        for ((label, points), color) in lines.into_iter().zip([VERMILION, BLUE, GRAY]) {
            chart
                .draw_series(LineSeries::new(points, color.stroke_width(2)))
                .map_err(failed(path))?
                .label(label)
                .legend(swatch(color));
        }
        legend(&mut chart, SeriesLabelPosition::UpperLeft).map_err(failed(path))?;
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
