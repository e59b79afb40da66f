//! Figures of a run, as SVG.

mod animation;
mod curve;
mod fields;
mod lines;
mod loss;
mod trajectories;

pub use animation::{Scene, Track, animation};
pub use curve::{CurvePoint, curve};
pub use fields::{Map, MapRow, maps};
pub use lines::{Line, lines, log_lines};
pub use loss::{LossHistory, loss};
pub use trajectories::{Panel, Particle, trajectories};

use crate::error::{Error, Result};
use gradewise_nn::checkpoint::replace_file;
use plotters::{
    chart::MeshStyle,
    coord::{CoordTranslate, Shift, ranged1d::Ranged},
    prelude::*,
};
use std::{fmt::Display, path::Path};

/// Colours that colour-blind readers can distinguish (Okabe and Ito).
const BLUE: RGBColor = RGBColor(0, 114, 178);
const VERMILION: RGBColor = RGBColor(213, 94, 0);
const GRAY: RGBColor = RGBColor(120, 120, 120);
const INK: RGBColor = RGBColor(40, 40, 40);
const GRID: RGBColor = RGBColor(232, 232, 232);
const FONT: &str = "sans-serif";

/// Escapes text for SVG and HTML.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn save(path: &Path, svg: &str) -> Result<()> {
    Ok(replace_file(path, |file| file.write_all(svg.as_bytes()))?)
}

fn failed<E: Display>(path: &Path) -> impl Fn(E) -> Error {
    |error| Error::Output { path: path.to_owned(), reason: format!("the figure cannot be drawn: {error}") }
}

/// The minimum and maximum of some numbers; (∞, −∞) if there are none.
fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)))
}

/// The common style of axes.
fn styled<'m, 'a, 'b, X: Ranged, Y: Ranged, DB: DrawingBackend>(
    mesh: &'m mut MeshStyle<'a, 'b, X, Y, DB>,
) -> &'m mut MeshStyle<'a, 'b, X, Y, DB> {
    mesh.label_style((FONT, 14).into_font().color(&INK))
        .axis_desc_style((FONT, 16).into_font().color(&INK))
        .bold_line_style(GRID)
        .light_line_style(WHITE)
        .axis_style(GRAY)
}

/// Logarithmic axes both ways.
type LogAxes = Cartesian2d<LogCoord<f64>, LogCoord<f64>>;

/// A chart with logarithmic axes, whose ranges are extended by a margin.
fn log_chart<'a, 'b>(
    root: &'a DrawingArea<SVGBackend<'b>, Shift>,
    title: &str,
    (left, right): (f64, f64),
    (low, high): (f64, f64),
) -> Result<ChartContext<'a, SVGBackend<'b>, LogAxes>, DrawingAreaErrorKind<std::io::Error>> {
    ChartBuilder::on(root)
        .caption(title, (FONT, 20).into_font().color(&INK))
        .margin(16)
        .x_label_area_size(48)
        .y_label_area_size(86)
        .build_cartesian_2d((left / 1.2..right * 1.2).log_scale(), (low / 1.6..high * 1.6).log_scale())
}

/// The sample of a line in the legend.
fn swatch(color: RGBColor) -> impl Fn((i32, i32)) -> PathElement<(i32, i32)> {
    move |(x, y)| PathElement::new([(x, y), (x + 24, y)], color.stroke_width(2))
}

/// Draws the names of the series.
fn legend<'a, DB: DrawingBackend + 'a, CT: CoordTranslate>(
    chart: &mut ChartContext<'a, DB, CT>,
    position: SeriesLabelPosition,
) -> Result<(), DrawingAreaErrorKind<DB::ErrorType>> {
    chart
        .configure_series_labels()
        .position(position)
        .margin(12)
        .legend_area_size(32)
        .label_font((FONT, 15).into_font().color(&INK))
        .background_style(WHITE.mix(0.9))
        .border_style(GRID)
        .draw()
}

/// A short decimal for an axis that spans orders of magnitude.
fn significant(value: f64) -> String {
    if (1e-3..1e4).contains(&value) {
        let text = format!("{value:.4}");
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        format!("{value:.0e}")
    }
}
