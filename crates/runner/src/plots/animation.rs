//! True and learned motion, as an animated SVG for browsers.

use super::{BLUE, FONT, GRAY, INK, VERMILION, escaped, save};
use crate::error::Result;
use plotters::style::RGBColor;
use std::{fmt::Write, path::Path};

/// A particle of a scene: positions at equal intervals of time, of both motions over the same time.
#[derive(Clone, Debug)]
pub struct Track {
    /// The charge, whose sign determines the colour.
    pub charge: f64,
    /// The motion of the simulator.
    pub truth: Vec<[f64; 3]>,
    /// The motion of the model.
    pub learned: Vec<[f64; 3]>,
}

/// A system of particles in motion.
#[derive(Clone, Debug)]
pub struct Scene {
    /// The heading.
    pub title: String,
    /// Its particles.
    pub tracks: Vec<Track>,
}

const SIZE: f64 = 360.0;
const HEADER: f64 = 76.0;
const MARGIN: f64 = 24.0;

/// Draws the scenes side by side, projected on x and y, each with its own scale. Discs are the true particles, rings the model's, and faint
/// lines their paths. Without scenes, nothing is drawn.
///
/// # Errors
/// The figure cannot be written.
pub fn animation(path: &Path, scenes: &[Scene], title: &str, seconds: f64) -> Result<()> {
    if scenes.is_empty() {
        return Ok(());
    }
    let (width, height) = (SIZE * scenes.len() as f64, SIZE + HEADER);
    let (ink, gray) = (hex(INK), hex(GRAY));
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
         font-family=\"{FONT}\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"{MARGIN}\" y=\"28\" font-size=\"18\" fill=\"{ink}\">{}</text>\n\
         <circle cx=\"{}\" cy=\"52\" r=\"5\" fill=\"{ink}\"/><text x=\"{}\" y=\"57\" font-size=\"14\" fill=\"{ink}\">simulator</text>\n\
         <circle cx=\"{}\" cy=\"52\" r=\"7\" fill=\"none\" stroke=\"{ink}\" stroke-width=\"2\"/>\
         <text x=\"{}\" y=\"57\" font-size=\"14\" fill=\"{ink}\">model</text>\n",
        escaped(title),
        MARGIN + 6.0,
        MARGIN + 18.0,
        MARGIN + 112.0,
        MARGIN + 126.0,
    );
    for (index, scene) in scenes.iter().enumerate() {
        let view = View::of(scene, SIZE * index as f64);
        let left = SIZE * index as f64 + MARGIN;
        // Writing to a string cannot fail.
        let _ = writeln!(
            svg,
            "<text x=\"{left}\" y=\"{}\" font-size=\"14\" fill=\"{gray}\">{}</text>",
            HEADER + 14.0,
            escaped(&scene.title)
        );
        for track in &scene.tracks {
            let color = hex(if track.charge < 0.0 { BLUE } else { VERMILION });
            for (points, dash) in [(&track.truth, "none"), (&track.learned, "4 3")] {
                let line: Vec<String> =
                    points.iter().map(|p| format!("{:.1},{:.1}", view.x(p), view.y(p))).collect();
                let _ = writeln!(
                    svg,
                    "<polyline points=\"{}\" fill=\"none\" stroke=\"{color}\" stroke-opacity=\"0.5\" stroke-dasharray=\"{dash}\"/>",
                    line.join(" ")
                );
            }
            let disc = format!("r=\"5\" fill=\"{color}\"");
            let ring = format!("r=\"7\" fill=\"none\" stroke=\"{color}\" stroke-width=\"2\"");
            for (points, style) in [(&track.truth, disc), (&track.learned, ring)] {
                let values = |at: &dyn Fn(&[f64; 3]) -> f64| -> String {
                    points.iter().map(|p| format!("{:.1}", at(p))).collect::<Vec<_>>().join(";")
                };
                let animate = |name: &str, values: String| {
                    format!(
                        "<animate attributeName=\"{name}\" dur=\"{seconds}s\" repeatCount=\"indefinite\" values=\"{values}\"/>"
                    )
                };
                // Where the motion ends, for programs that do not animate, and for print.
                let end = points.last().map_or([f64::NAN; 3], |point| *point);
                let _ = writeln!(
                    svg,
                    "<circle cx=\"{:.1}\" cy=\"{:.1}\" {style}>{}{}</circle>",
                    view.x(&end),
                    view.y(&end),
                    animate("cx", values(&|p| view.x(p))),
                    animate("cy", values(&|p| view.y(p)))
                );
            }
        }
    }
    svg += "</svg>\n";
    save(path, &svg)
}

/// The transformation from the coordinates of a scene to those of the figure.
struct View {
    left: f64,
    center: [f64; 2],
    scale: f64,
}

impl View {
    /// Fits the true motion into the panel; the learned motion may leave it.
    fn of(scene: &Scene, left: f64) -> Self {
        let range = |axis: usize| {
            let values = scene.tracks.iter().flat_map(|track| &track.truth).map(|p| p[axis]);
            values
                .filter(|x| x.is_finite())
                .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), x| (low.min(x), high.max(x)))
        };
        let (x, y) = (range(0), range(1));
        let extent = (x.1 - x.0).max(y.1 - y.0).max(1e-9);
        let center = [(x.0 + x.1) / 2.0, (y.0 + y.1) / 2.0];
        Self { left, center, scale: (SIZE - 4.0 * MARGIN) / extent }
    }

    fn x(&self, point: &[f64; 3]) -> f64 {
        self.left + SIZE / 2.0 + self.bounded((point[0] - self.center[0]) * self.scale)
    }

    fn y(&self, point: &[f64; 3]) -> f64 {
        HEADER + SIZE / 2.0 - self.bounded((point[1] - self.center[1]) * self.scale)
    }

    /// Clamps coordinates to the panel; NaN maps to a corner.
    fn bounded(&self, offset: f64) -> f64 {
        let limit = SIZE / 2.0 - 8.0;
        if offset.is_nan() { limit } else { offset.clamp(-limit, limit) }
    }
}

fn hex(RGBColor(r, g, b): RGBColor) -> String {
    format!("#{r:02x}{g:02x}{b:02x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scenes_move_and_stay_in_their_pictures() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rollout.svg");
        let track = |charge: f64| Track {
            charge,
            truth: (0..5).map(|t| [charge * f64::from(t), 1.0, 0.0]).collect(),
            learned: vec![[0.0, 0.0, 0.0], [1e9, f64::NAN, 0.0]],
        };
        let scene =
            |k: usize| Scene { title: format!("system <{k}>"), tracks: vec![track(1.0), track(-1.0)] };
        animation(&path, &[scene(0), scene(1)], "n-body", 3.0).unwrap();
        let svg = std::fs::read_to_string(&path).unwrap();
        for part in ["system &lt;1&gt;", "<animate attributeName=\"cx\" dur=\"3s\"", "simulator", "model"] {
            assert!(svg.contains(part), "{part}");
        }
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
        assert_eq!(svg.matches("<circle").count(), 2 + 2 * 2 * 2);
        animation(&folder.path().join("none.svg"), &[], "x", 1.0).unwrap();
        assert!(!folder.path().join("none.svg").exists());
    }
}
