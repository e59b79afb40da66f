//! Figures of a run, as SVG.

mod animation;
mod axis;
mod bars;
mod classifier;
mod curve;
mod fields;
mod figure;
mod header;
mod lines;
mod loss;
mod paper;
#[cfg(feature = "pdf")]
mod pdf;
mod seeds;
mod trajectories;

pub use animation::{Scene, Track, animation};
pub use bars::Bar;
pub use curve::CurvePoint;
pub use fields::{Map, MapRow, maps};
pub use figure::{Figure, bars, curve, lines, log_lines, loss, reliability, roc, seeds};
pub use lines::Line;
pub use loss::LossHistory;
pub(crate) use loss::running_median;
pub use paper::{Drawing, Paper};
#[cfg(feature = "pdf")]
pub(crate) use pdf::pdf;
pub use seeds::{Band, BandPoint};
pub use trajectories::{Panel, Particle, trajectories};

use crate::error::{Error, Result};
use gradewise_nn::checkpoint::replace_file;
use plotters::{chart::MeshStyle, coord::ranged1d::Ranged, prelude::*};
use std::{fmt::Display, path::Path};

/// Colours that colour-blind readers can distinguish (Okabe and Ito).
const BLUE: RGBColor = RGBColor(0, 114, 178);
const VERMILION: RGBColor = RGBColor(213, 94, 0);
const GRAY: RGBColor = RGBColor(120, 120, 120);
const INK: RGBColor = RGBColor(40, 40, 40);
const GRID: RGBColor = RGBColor(232, 232, 232);
/// The colours of lines that are told apart: those of the other figures, then the rest of Okabe and Ito's.
const COLORS: [RGBColor; 7] = [
    BLUE,
    VERMILION,
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    GRAY,
];
const FONT: &str = "sans-serif";

/// Escapes text for SVG.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// The text of which [`escaped`] makes this.
pub(crate) fn unescaped(text: &str) -> String {
    text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
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
