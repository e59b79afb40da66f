//! Values over batch × features.

use super::{FONT, GRAY, INK, color, failed};
use crate::{Case, Pass, Report, Result};
use plotters::{
    coord::Shift,
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};
use std::path::Path;

/// The unit of a panel's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// The ratio of the reference to ours: above 1, ours is better.
    Ratio,
    /// Median times.
    Milliseconds,
    /// Peak memory.
    Megabytes,
}

/// One map.
#[derive(Clone, Debug, PartialEq)]
pub struct Panel {
    /// Heading.
    pub title: String,
    /// The unit of the values.
    pub unit: Unit,
    /// The rows, from the top.
    pub batches: Vec<usize>,
    /// The columns.
    pub features: Vec<usize>,
    /// `cells[row][column]`; `None` without a measurement, or without one of the reference.
    pub cells: Vec<Vec<Option<f64>>>,
}

/// The panels of a family of cases: the time of each measured pass, and the memory of forward and backward. Panels without values are
/// omitted.
pub fn panels(report: &Report, reference: Option<&Report>, family: &Case) -> Vec<Panel> {
    let same = |case: &Case| Case { batch: case.batch, features: case.features, ..*family } == *case;
    let cases: Vec<Case> = report.rows.iter().map(|row| row.case).filter(same).collect();
    let sizes = |size: fn(&Case) -> usize| {
        let mut sizes: Vec<usize> = cases.iter().map(size).collect();
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    };
    let (batches, features) = (sizes(|case| case.batch), sizes(|case| case.features));
    let panel = |title: String, unit: Unit, value: &dyn Fn(&Case) -> Option<f64>| {
        let row = |&batch: &usize| {
            features.iter().map(|&features| value(&Case { batch, features, ..*family })).collect()
        };
        let cells: Vec<Vec<Option<f64>>> = batches.iter().map(row).collect();
        let any = cells.iter().flatten().any(Option::is_some);
        any.then(|| Panel { title, unit, batches: batches.clone(), features: features.clone(), cells })
    };
    let against = |ours: Option<f64>, theirs: &dyn Fn(&Report) -> Option<f64>| match reference {
        None => ours,
        Some(reference) => Some(theirs(reference)? / ours?),
    };
    let unit = |alone| if reference.is_some() { Unit::Ratio } else { alone };
    let mut found: Vec<Panel> = Vec::new();
    for pass in Pass::ALL {
        let time = |report: &Report, case: &Case| report.fastest(case, pass).map(|row| row.ms);
        let value = |case: &Case| against(time(report, case), &|other| time(other, case));
        let what = if reference.is_some() { "speed-up" } else { "ms" };
        found.extend(panel(format!("{}, {what}", pass.title()), unit(Unit::Milliseconds), &value));
    }
    let peak =
        |report: &Report, case: &Case| report.smallest_peak(case, Pass::Both).map(|bytes| bytes as f64 / 1e6);
    let value = |case: &Case| against(peak(report, case), &|other| peak(other, case));
    let what = if reference.is_some() { "times less" } else { "MB" };
    found.extend(panel(format!("peak memory, {what}"), unit(Unit::Megabytes), &value));
    found
}

const CELL: (i32, i32) = (78, 44);
const LEFT: i32 = 76;
const TOP: i32 = 96;
const BOTTOM: i32 = 56;
const GAP: i32 = 24;

/// Draws the maps as SVG. `path` is for messages.
///
/// # Errors
/// The figure cannot be drawn.
pub fn heatmap(path: &Path, panels: &[Panel], caption: &[String; 2]) -> Result<String> {
    let width = |panel: &Panel| LEFT + CELL.0 * panel.features.len() as i32 + GAP;
    let height = panels.iter().map(|panel| panel.batches.len()).max().unwrap_or(0) as i32 * CELL.1;
    let size = (panels.iter().map(width).sum::<i32>().max(560) as u32, (TOP + height + BOTTOM) as u32);
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        root.fill(&WHITE).map_err(failed(path))?;
        root.draw(&Text::new(caption[0].clone(), (20, 14), font(19, &INK))).map_err(failed(path))?;
        root.draw(&Text::new(caption[1].clone(), (20, 40), font(13, &GRAY))).map_err(failed(path))?;
        let mut left = 0;
        for panel in panels {
            draw(&root, panel, left).map_err(failed(path))?;
            left += width(panel);
        }
        root.present().map_err(failed(path))?;
    }
    Ok(svg)
}

fn font(size: u32, color: &RGBColor) -> TextStyle<'static> {
    (FONT, size).into_font().color(color)
}

type Drawn = std::result::Result<(), Box<dyn std::error::Error>>;

fn draw(root: &DrawingArea<SVGBackend<'_>, Shift>, panel: &Panel, left: i32) -> Drawn {
    let middle = |style: TextStyle<'static>| style.pos(Pos::new(HPos::Center, VPos::Center));
    let right = |style: TextStyle<'static>| style.pos(Pos::new(HPos::Right, VPos::Center));
    let x = |column: usize| left + LEFT + CELL.0 * column as i32;
    let y = |row: usize| TOP + CELL.1 * row as i32;
    root.draw(&Text::new(panel.title.clone(), (x(0), TOP - 24), font(15, &INK)))?;
    let values: Vec<f64> = panel.cells.iter().flatten().copied().flatten().collect();
    let range = values.iter().fold((f64::INFINITY, 0f64), |(low, high), &v| (low.min(v), high.max(v)));
    for (row, cells) in panel.cells.iter().enumerate() {
        let batch = panel.batches[row].to_string();
        root.draw(&Text::new(batch, (x(0) - 8, y(row) + CELL.1 / 2), right(font(13, &INK))))?;
        for (column, value) in cells.iter().enumerate() {
            // Cells without a measurement are empty, without a box.
            let Some(value) = *value else { continue };
            let fill = match panel.unit {
                Unit::Ratio => color::ratio(value),
                Unit::Milliseconds | Unit::Megabytes => color::amount(value, range),
            };
            let corners = [(x(column) + 1, y(row) + 1), (x(column) + CELL.0 - 1, y(row) + CELL.1 - 1)];
            root.draw(&Rectangle::new(corners, fill.filled()))?;
            root.draw(&Rectangle::new(corners, super::GRID.stroke_width(1)))?;
            let ink = if color::is_dark(fill) { &WHITE } else { &INK };
            let center = (x(column) + CELL.0 / 2, y(row) + CELL.1 / 2);
            root.draw(&Text::new(label(value, panel.unit), center, middle(font(14, ink))))?;
        }
    }
    let below = y(panel.batches.len());
    for (column, features) in panel.features.iter().enumerate() {
        let place = (x(column) + CELL.0 / 2, below + 14);
        root.draw(&Text::new(features.to_string(), place, middle(font(13, &INK))))?;
    }
    let place = (x(0) + CELL.0 * panel.features.len() as i32 / 2, below + 36);
    root.draw(&Text::new("features", place, middle(font(14, &GRAY))))?;
    root.draw(&Text::new("batch", (x(0) - 8, TOP - 10), right(font(14, &GRAY))))?;
    Ok(())
}

/// Formats a value with three significant digits.
fn label(value: f64, unit: Unit) -> String {
    let digits = match value {
        v if v >= 100.0 => 0,
        v if v >= 10.0 => 1,
        v if v >= 1.0 || unit == Unit::Ratio => 2,
        _ => 3,
    };
    let sign = if unit == Unit::Ratio { "×" } else { "" };
    format!("{value:.digits$}{sign}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_have_three_digits() {
        assert_eq!(label(2.134, Unit::Ratio), "2.13×");
        assert_eq!(label(0.0834, Unit::Ratio), "0.08×");
        assert_eq!(label(0.0834, Unit::Milliseconds), "0.083");
        assert_eq!(label(0.9051, Unit::Milliseconds), "0.905");
        assert_eq!(label(12.56, Unit::Milliseconds), "12.6");
        assert_eq!(label(499.4, Unit::Megabytes), "499");
    }
}
