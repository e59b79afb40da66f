//! Figures of a run, as SVG.

mod animation;
mod curve;
mod lines;
mod log_lines;
mod loss;
mod trajectories;

pub use animation::{Scene, Track, animation};
pub use curve::{CurvePoint, curve};
pub use lines::{Line, lines};
pub use log_lines::{LogLine, log_lines};
pub use loss::{LossHistory, loss};
pub use trajectories::{Panel, Particle, trajectories};

use crate::error::{Error, Result};
use gradewise_nn::checkpoint::replace_file;
use plotters::style::RGBColor;
use std::{fmt::Display, path::Path};

/// Colours that stay apart for colour-blind readers (Okabe and Ito).
const BLUE: RGBColor = RGBColor(0, 114, 178);
const VERMILION: RGBColor = RGBColor(213, 94, 0);
const GRAY: RGBColor = RGBColor(120, 120, 120);
const INK: RGBColor = RGBColor(40, 40, 40);
const GRID: RGBColor = RGBColor(232, 232, 232);
const FONT: &str = "sans-serif";

/// Text as it stands between the tags of SVG and HTML.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn save(path: &Path, svg: &str) -> Result<()> {
    Ok(replace_file(path, |file| file.write_all(svg.as_bytes()))?)
}

fn failed<E: Display>(path: &Path) -> impl Fn(E) -> Error {
    |error| Error::Output { path: path.to_owned(), reason: format!("the figure cannot be drawn: {error}") }
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
