//! True and predicted motion of a few systems.

use super::{BLUE, FONT, GRAY, GRID, INK, VERMILION, failed, save};
use crate::{error::Result, output::write_json};
use plotters::{coord::Shift, prelude::*};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// One particle of a panel.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Particle {
    /// Its charge, whose sign determines the colour.
    pub charge: f64,
    /// True positions from the model's input to its target.
    pub path: Vec<[f64; 3]>,
    /// Predicted final position.
    pub predicted: [f64; 3],
}

/// One system.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Panel {
    /// Heading.
    pub title: String,
    /// The mean squared error of the prediction.
    pub error: f64,
    /// Its particles.
    pub particles: Vec<Particle>,
}

const AXES: [&str; 3] = ["x", "y", "z"];
const COLUMNS: usize = 3;
const PANEL: (u32, u32) = (340, 340);
const HEADER: u32 = 84;

/// Draws the systems side by side, each projected on the two axes along which it extends furthest, both to the same
/// scale, and writes them beside the figure as JSON, of which the page of the run makes views that turn. Without panels nothing is drawn.
///
/// # Errors
/// The figure cannot be drawn or written.
pub fn trajectories(path: &Path, panels: &[Panel], title: &str) -> Result<()> {
    if panels.is_empty() {
        return Ok(());
    }
    let columns = panels.len().min(COLUMNS);
    let rows = panels.len().div_ceil(COLUMNS);
    let size = ((PANEL.0 * columns as u32).max(760), HEADER + PANEL.1 * rows as u32);
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        root.fill(&WHITE).map_err(failed(path))?;
        let (header, body) = root.split_vertically(HEADER);
        draw_header(&header, title).map_err(failed(path))?;
        for (area, panel) in body.split_evenly((rows, columns)).iter().zip(panels) {
            draw_panel(area, panel).map_err(failed(path))?;
        }
        root.present().map_err(failed(path))?;
    }
    save(path, &svg)?;
    write_json(&path.with_extension("json"), &panels)
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

fn draw_header(area: &Area<'_>, title: &str) -> Drawn {
    let text = |words: &str, x: i32, y: i32, size: u32| {
        Text::new(words.to_owned(), (x, y), (FONT, size).into_font().color(&INK))
    };
    area.draw(&text(title, 20, 14, 20))?;
    let y = 58;
    area.draw(&Circle::new((28, y), 4, INK.stroke_width(1)))?;
    area.draw(&text("input position", 40, y - 8, 15))?;
    area.draw(&PathElement::new([(158, y), (184, y)], INK.stroke_width(2)))?;
    area.draw(&Circle::new((188, y), 4, INK.filled()))?;
    area.draw(&text("true path and target", 200, y - 8, 15))?;
    for dash in 0..3 {
        area.draw(&PathElement::new([(362 + dash * 10, y), (367 + dash * 10, y)], INK.stroke_width(1)))?;
    }
    area.draw(&Cross::new((396, y), 5, INK.stroke_width(2)))?;
    area.draw(&text("prediction", 408, y - 8, 15))?;
    for (x, color, words) in [(506, VERMILION, "charge +1"), (610, BLUE, "charge −1")] {
        area.draw(&Circle::new((x, y), 5, color.filled()))?;
        area.draw(&text(words, x + 12, y - 8, 15))?;
    }
    Ok(())
}

fn draw_panel(area: &Area<'_>, panel: &Panel) -> Drawn {
    let points = || panel.particles.iter().flat_map(|p| p.path.iter().chain(std::iter::once(&p.predicted)));
    let range = |axis: usize| {
        let values = points().map(|point| point[axis]).filter(|value| value.is_finite());
        values
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)))
    };
    let ranges = [range(0), range(1), range(2)];
    if ranges.iter().any(|(low, high)| low > high) {
        return Ok(());
    }
    let extent = |axis: &usize| ranges[*axis].1 - ranges[*axis].0;
    // Hides the axis with the smallest extent.
    let hidden = (0..3).min_by(|a, b| extent(a).total_cmp(&extent(b))).unwrap_or(2);
    let [h, v] = match hidden {
        0 => [1, 2],
        1 => [0, 2],
        _ => [0, 1],
    };
    let half = (extent(&h).max(extent(&v)) * 0.56).max(1e-3);
    let centered = |axis: usize| {
        let middle = (ranges[axis].0 + ranges[axis].1) / 2.0;
        middle - half..middle + half
    };
    let mut chart = ChartBuilder::on(area)
        .caption(&panel.title, (FONT, 16).into_font().color(&INK))
        .margin(10)
        .x_label_area_size(36)
        .y_label_area_size(44)
        .build_cartesian_2d(centered(h), centered(v))?;
    chart
        .configure_mesh()
        .x_desc(AXES[h])
        .y_desc(AXES[v])
        .x_labels(5)
        .y_labels(5)
        .x_label_formatter(&|value| format!("{value:.1}"))
        .y_label_formatter(&|value| format!("{value:.1}"))
        .label_style((FONT, 12).into_font().color(&GRAY))
        .axis_desc_style((FONT, 15).into_font().color(&INK))
        .bold_line_style(GRID)
        .light_line_style(WHITE)
        .axis_style(GRAY)
        .draw()?;
    for particle in &panel.particles {
        let color = if particle.charge < 0.0 { BLUE } else { VERMILION };
        let project = |point: &[f64; 3]| (point[h], point[v]);
        let path: Vec<(f64, f64)> = particle.path.iter().map(project).collect();
        let predicted = project(&particle.predicted);
        let (Some(&start), Some(&end)) = (path.first(), path.last()) else { continue };
        chart.draw_series(LineSeries::new(path, color.stroke_width(2)))?;
        chart.draw_series(DashedLineSeries::new([start, predicted], 4, 4, color.stroke_width(1)))?;
        chart.draw_series([Circle::new(start, 4, WHITE.filled())])?;
        chart.draw_series([Circle::new(start, 4, color.stroke_width(1))])?;
        chart.draw_series([Circle::new(end, 4, color.filled())])?;
        chart.draw_series([Cross::new(predicted, 5, INK.stroke_width(2))])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panels_are_drawn_with_their_titles() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trajectories.svg");
        let panel = |k: usize| Panel {
            title: format!("sample {k}"),
            error: 0.5,
            particles: (0..3)
                .map(|p| Particle {
                    charge: if p == 1 { -1.0 } else { 1.0 },
                    path: (0..11).map(|t| [p as f64 + 0.1 * t as f64, (k + t) as f64 * 0.2, 0.0]).collect(),
                    predicted: [p as f64 + 1.0, 2.0, if k == 3 { f64::NAN } else { 0.0 }],
                })
                .collect(),
        };
        let panels: Vec<Panel> = (0..4).map(panel).collect();
        trajectories(&path, &panels, "n-body").unwrap();
        let svg = std::fs::read_to_string(&path).unwrap();
        for label in ["sample 0", "sample 3", "prediction", "true path", "charge"] {
            assert!(svg.contains(label), "{label}");
        }
        let json = std::fs::read_to_string(folder.path().join("trajectories.json")).unwrap();
        let read: Vec<serde_json::Value> = serde_json::from_str(&json).unwrap();
        assert_eq!((read.len(), &read[1]["particles"][2]["predicted"][0]), (4, &3.0.into()));
        trajectories(&folder.path().join("none.svg"), &[], "x").unwrap();
        assert!(!folder.path().join("none.svg").exists());
    }
}
