//! Lines over a common axis, both axes logarithmic.

use super::{BLUE, FONT, GRAY, INK, VERMILION, failed, legend, range, save, significant, styled, swatch};
use crate::error::Result;
use plotters::prelude::*;
use std::path::Path;

/// A line and its name.
#[derive(Clone, Debug)]
pub struct LogLine {
    pub label: String,
    pub points: Vec<(f64, f64)>,
}

/// Those of the other figures, then the rest of Okabe and Ito's.
const COLORS: [RGBColor; 7] = [
    BLUE,
    VERMILION,
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    GRAY,
];

/// Draws lines with their points. Values that such axes cannot show (not positive, not finite) are left out; without any value nothing
/// is drawn.
///
/// # Errors
/// The figure cannot be drawn or written.
pub fn log_lines(path: &Path, lines: &[LogLine], title: &str, (x, y): (&str, &str)) -> Result<()> {
    let shown = |value: f64| value.is_finite() && value > 0.0;
    let lines: Vec<(&str, Vec<(f64, f64)>)> = lines
        .iter()
        .map(|line| {
            let points = line.points.iter().copied().filter(|&(x, y)| shown(x) && shown(y));
            (line.label.as_str(), points.collect())
        })
        .collect();
    let points = || lines.iter().flat_map(|(_, points)| points);
    let (left, right) = range(points().map(|&(x, _)| x));
    let (low, high) = range(points().map(|&(_, y)| y));
    if left > right {
        return Ok(());
    }
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (860, 520)).into_drawing_area();
        root.fill(&WHITE).map_err(failed(path))?;
        let mut chart = ChartBuilder::on(&root)
            .caption(title, (FONT, 20).into_font().color(&INK))
            .margin(16)
            .x_label_area_size(48)
            .y_label_area_size(86)
            .build_cartesian_2d((left / 1.2..right * 1.2).log_scale(), (low / 1.6..high * 1.6).log_scale())
            .map_err(failed(path))?;
        styled(&mut chart.configure_mesh())
            .x_desc(x)
            .y_desc(y)
            .x_label_formatter(&|value| significant(*value))
            .y_label_formatter(&|value| significant(*value))
            .draw()
            .map_err(failed(path))?;
        for ((label, points), &color) in lines.into_iter().zip(COLORS.iter().cycle()) {
            chart
                .draw_series(LineSeries::new(points, color.stroke_width(2)).point_size(4))
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
        let line = |label: &str, slope: f64| LogLine {
            label: label.to_owned(),
            points: (0..9)
                .map(|t| (f64::from(t), if t == 3 { f64::NAN } else { slope * f64::from(t) }))
                .collect(),
        };
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
