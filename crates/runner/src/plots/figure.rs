//! Figures whose files carry what they are drawn from, so that they can be drawn for print and by other programs.

use super::{
    bars::{self, Bar},
    classifier,
    curve::{self, CurvePoint},
    escaped, failed,
    lines::{self, Line},
    loss::{self, LossHistory},
    paper::{Drawing, Paper},
    save,
    seeds::{self, Band},
    unescaped,
};
use crate::error::Result;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// What a figure is drawn from.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "figure", rename_all = "kebab-case")]
pub enum Figure {
    /// [`loss()`].
    Loss {
        /// Loss and learning rate.
        history: LossHistory,
        /// Its title.
        title: String,
        /// What the loss is.
        axis: String,
    },
    /// [`curve()`].
    Curve {
        /// The numbers of samples.
        points: Vec<CurvePoint>,
        /// Its title.
        title: String,
        /// What the error is.
        axis: String,
    },
    /// [`seeds()`].
    Seeds {
        /// The groups of runs.
        bands: Vec<Band>,
        /// Its title.
        title: String,
        /// What the measure is.
        axis: String,
    },
    /// [`lines()`], [`log_lines`].
    Lines {
        /// The lines.
        lines: Vec<Line>,
        /// Its title.
        title: String,
        /// What the axes are.
        names: [String; 2],
        /// Whether the axes are logarithmic.
        is_log: bool,
    },
    /// [`roc`].
    Roc {
        /// Signal efficiency and background rejection.
        points: Vec<(f64, f64)>,
        /// Its title.
        title: String,
    },
    /// [`reliability`].
    Reliability {
        /// Predicted and observed frequencies.
        points: Vec<(f64, f64)>,
        /// Its title.
        title: String,
    },
    /// [`bars()`].
    Bars {
        /// The bars.
        bars: Vec<Bar>,
        /// Its title, and what is said below it.
        title: [String; 2],
        /// What the length of a bar is.
        axis: String,
    },
}

/// The element of a file that holds the figure as JSON.
const ELEMENT: [&str; 2] = ["<metadata id=\"figure\">", "</metadata>"];

impl Figure {
    /// The figure of a file.
    pub fn read(svg: &str) -> Option<Self> {
        let [open, close] = ELEMENT;
        let (json, _) = svg.split_once(open)?.1.split_once(close)?;
        serde_json::from_str(&unescaped(json)).ok()
    }

    /// A file without its figure's data, for a page that has them already.
    pub fn strip(svg: &str) -> String {
        let [open, close] = ELEMENT;
        let parts = svg.split_once(open).and_then(|(before, rest)| Some((before, rest.split_once(close)?.1)));
        parts.map_or_else(|| svg.to_owned(), |(before, after)| format!("{before}{after}"))
    }

    /// The figure as SVG, without its data.
    pub fn draw(&self, paper: Paper) -> Drawing {
        match self {
            Self::Loss { history, title, axis } => loss::draw(history, title, axis, paper),
            Self::Curve { points, title, axis } => curve::draw(points, title, axis, paper),
            Self::Seeds { bands, title, axis } => seeds::draw(bands, title, axis, paper),
            Self::Lines { lines, title, names: [across, up], is_log } => {
                lines::draw(lines, title, (across, up), *is_log, paper)
            }
            Self::Roc { points, title } => classifier::roc(points, title, paper),
            Self::Reliability { points, title } => classifier::reliability(points, title, paper),
            Self::Bars { bars, title: [title, below], axis } => bars::draw(bars, (title, below), axis, paper),
        }
    }

    /// The points of the figure as CSV, one a line, after a line of names.
    pub fn csv(&self) -> String {
        let mut table = Table(String::new());
        match self {
            Self::Loss { history, axis, .. } => {
                table.row(["series", "step", "value"].map(str::to_owned));
                let last = history.train.last().map_or(0, |&(step, _)| step);
                let test: Vec<(u64, f64)> = history.test.map(|test| (last, test)).into_iter().collect();
                let all = [
                    ("train", &history.train),
                    ("valid", &history.valid),
                    ("test", &test),
                    ("lr", &history.lr),
                ];
                for (name, series) in all {
                    let name =
                        if name == "lr" { "learning rate".to_owned() } else { format!("{name} {axis}") };
                    series.iter().for_each(|(step, value)| {
                        table.row([name.clone(), step.to_string(), value.to_string()]);
                    });
                }
            }
            Self::Curve { points, axis, .. } => {
                table.row(["samples".to_owned(), "of".to_owned(), axis.clone()]);
                for CurvePoint { samples, mean, errors } in points {
                    table.row([samples.to_string(), "mean".to_owned(), mean.to_string()]);
                    errors.iter().for_each(|error| {
                        table.row([samples.to_string(), "seed".to_owned(), error.to_string()]);
                    });
                }
            }
            Self::Seeds { bands, .. } => {
                table.row(["name", "seeds", "step", "mean", "low", "high"].map(str::to_owned));
                for band in bands {
                    for point in &band.points {
                        let numbers = [point.mean, point.low, point.high].map(|value| value.to_string());
                        let [mean, low, high] = numbers;
                        table.row([
                            band.name.clone(),
                            band.seeds.to_string(),
                            point.step.to_string(),
                            mean,
                            low,
                            high,
                        ]);
                    }
                }
            }
            Self::Lines { lines, names: [across, up], .. } => {
                table.row(["line".to_owned(), across.clone(), up.clone()]);
                for Line { label, points } in lines {
                    points.iter().for_each(|(x, y)| table.row([label.clone(), x.to_string(), y.to_string()]));
                }
            }
            Self::Roc { points, .. } => table.pairs(classifier::ROC, points),
            Self::Reliability { points, .. } => table.pairs(classifier::RELIABILITY, points),
            Self::Bars { bars, axis, .. } => {
                table.row(["name".to_owned(), axis.clone(), "share of the roof".to_owned()]);
                for Bar { name, length, share, .. } in bars {
                    let share = share.map_or_else(String::new, |share| share.to_string());
                    table.row([name.clone(), length.to_string(), share]);
                }
            }
        }
        table.0
    }

    /// Draws the figure into a file, which gets the data; without anything to show there is no file.
    fn save(&self, path: &Path) -> Result<()> {
        let Some(svg) = self.draw(Paper::Screen).map_err(failed(path))? else { return Ok(()) };
        let json = serde_json::to_string(self).map_err(failed(path))?;
        let [open, close] = ELEMENT;
        // After the start of the only element that comes first.
        let (start, rest) = svg.split_once('>').unwrap_or((&svg, ""));
        save(path, &format!("{start}>\n{open}{}{close}{rest}", escaped(&json)))
    }
}

/// Lines of CSV.
struct Table(String);

impl Table {
    fn row<const N: usize>(&mut self, cells: [String; N]) {
        let quoted = cells.map(|cell| match cell.contains([',', '"', '\n']) {
            true => format!("\"{}\"", cell.replace('"', "\"\"")),
            false => cell,
        });
        self.0 += &(quoted.join(",") + "\n");
    }

    fn pairs(&mut self, names: (&str, &str), points: &[(f64, f64)]) {
        self.row([names.0, names.1].map(str::to_owned));
        points.iter().for_each(|(x, y)| self.row([x.to_string(), y.to_string()]));
    }
}

fn are_finite(&(x, y): &(f64, f64)) -> bool {
    x.is_finite() && y.is_finite()
}

/// Draws the loss on a logarithmic scale, the learning rate in a strip below. Values that such a scale cannot show (not positive, not
/// finite) are left out; without any value nothing is drawn.
///
/// # Errors
/// The figure cannot be drawn or written.
pub fn loss(path: &Path, history: &LossHistory, title: &str, axis: &str) -> Result<()> {
    let mut history = history.clone();
    for series in [&mut history.train, &mut history.valid, &mut history.lr] {
        series.retain(|(_, value)| value.is_finite());
    }
    history.test = history.test.filter(|test| test.is_finite());
    Figure::Loss { history, title: title.to_owned(), axis: axis.to_owned() }.save(path)
}

/// Draws a curve on logarithmic axes: a line through the means, a dot for each run, a bar over the range of its seeds. Values that such axes
/// cannot show (not positive, not finite) are left out; without any value nothing is drawn.
///
/// # Errors
/// The figure cannot be drawn or written.
pub fn curve(path: &Path, points: &[CurvePoint], title: &str, axis: &str) -> Result<()> {
    let mut points = points.to_vec();
    points.iter_mut().for_each(|point| point.errors.retain(|error| error.is_finite()));
    Figure::Curve { points, title: title.to_owned(), axis: axis.to_owned() }.save(path)
}

/// Draws the bands on a logarithmic scale. Values that such a scale cannot show (not positive, not finite) are left out; without any
/// value nothing is drawn.
///
/// # Errors
/// The figure cannot be drawn or written.
pub fn seeds(path: &Path, bands: &[Band], title: &str, axis: &str) -> Result<()> {
    let mut bands = bands.to_vec();
    for band in &mut bands {
        band.points.retain(|point| [point.low, point.mean, point.high].iter().all(|value| value.is_finite()));
    }
    Figure::Seeds { bands, title: title.to_owned(), axis: axis.to_owned() }.save(path)
}

fn all_lines(path: &Path, given: &[Line], title: &str, names: (&str, &str), is_log: bool) -> Result<()> {
    let mut lines = given.to_vec();
    lines.iter_mut().for_each(|line| line.points.retain(are_finite));
    let names = [names.0, names.1].map(str::to_owned);
    Figure::Lines { lines, title: title.to_owned(), names, is_log }.save(path)
}

/// Draws up to three lines. Values that are not finite are omitted; without any value, nothing is drawn.
///
/// # Errors
/// The figure cannot be drawn or written.
pub fn lines(path: &Path, lines: &[Line], title: &str, names: (&str, &str)) -> Result<()> {
    all_lines(path, lines, title, names, false)
}

/// Draws lines with their points, both axes logarithmic. Values that such axes cannot show (not positive, not finite) are left out;
/// without any value nothing is drawn.
///
/// # Errors
/// The figure cannot be drawn or written.
pub fn log_lines(path: &Path, lines: &[Line], title: &str, names: (&str, &str)) -> Result<()> {
    all_lines(path, lines, title, names, true)
}

/// Draws the background rejection 1/ε_B, on a logarithmic axis, over the signal efficiency ε_S: `curve` are such pairs. Beside it is the
/// rejection 1/ε_S of a classifier that guesses. Rejections that are not finite are left out; without any nothing is drawn.
///
/// # Errors
/// The figure cannot be drawn or written.
pub fn roc(path: &Path, curve: &[(f64, f64)], title: &str) -> Result<()> {
    let points = curve.iter().copied().filter(are_finite).collect();
    Figure::Roc { points, title: title.to_owned() }.save(path)
}

/// Draws observed over predicted frequencies, with a diagonal. Without points nothing is drawn.
///
/// # Errors
/// The figure cannot be drawn or written.
pub fn reliability(path: &Path, points: &[(f64, f64)], title: &str) -> Result<()> {
    let points = points.iter().copied().filter(are_finite).collect();
    Figure::Reliability { points, title: title.to_owned() }.save(path)
}

/// Draws bars across, in the order given, with the second line of the title below the first. Without bars nothing is drawn.
///
/// # Errors
/// The figure cannot be drawn or written.
pub fn bars(path: &Path, bars: &[Bar], title: [&str; 2], axis: &str) -> Result<()> {
    Figure::Bars { bars: bars.to_vec(), title: title.map(str::to_owned), axis: axis.to_owned() }.save(path)
}
