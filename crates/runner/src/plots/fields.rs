//! Fields in the plane as colour maps with arrows, side by side and, for several moments, animated.

use super::{BLUE, FONT, GRAY, INK, VERMILION, escaped, save};
use crate::error::Result;
use plotters::style::RGBColor;
use std::{fmt::Write, path::Path};

/// A field on a rectangular grid, with one or two components.
#[derive(Clone, Debug)]
pub struct Map {
    /// Points along each side.
    pub size: [usize; 2],
    /// The values at each point, `[x, y, components]`.
    pub values: Vec<f64>,
    /// 1 or 2 components. For two, the colour shows the length, and arrows show the direction.
    pub components: usize,
}

impl Map {
    fn point(&self, x: usize, y: usize) -> &[f64] {
        let at = (x * self.size[1] + y) * self.components;
        self.values.get(at..at + self.components).unwrap_or_default()
    }

    /// The value that the colour shows.
    fn height(&self, x: usize, y: usize) -> f64 {
        match self.point(x, y) {
            [value] => *value,
            several => several.iter().map(|value| value * value).sum::<f64>().sqrt(),
        }
    }

    /// Means over blocks, so that there are at most `most` points along each side.
    fn coarser(&self, most: usize) -> Self {
        let factor = self.size.iter().map(|size| size.div_ceil(most)).max().unwrap_or(1).max(1);
        let size = self.size.map(|size| size / factor);
        let mut values = Vec::with_capacity(size[0] * size[1] * self.components);
        for x in 0..size[0] {
            for y in 0..size[1] {
                for component in 0..self.components {
                    let block = (0..factor * factor)
                        .map(|at| self.point(x * factor + at / factor, y * factor + at % factor)[component]);
                    values.push(block.sum::<f64>() / (factor * factor) as f64);
                }
            }
        }
        Self { size, values, components: self.components }
    }
}

impl Map {
    /// The root of the mean square of all values; `None` without finite ones.
    fn rms(&self) -> Option<f64> {
        let rms =
            (self.values.iter().map(|value| value * value).sum::<f64>() / self.values.len() as f64).sqrt();
        rms.is_finite().then_some(rms)
    }
}

/// One physical quantity.
#[derive(Clone, Debug)]
pub struct MapRow {
    /// The name of the quantity.
    pub title: String,
    /// The maps: `[moments][columns]`.
    pub maps: Vec<Vec<Map>>,
}

const PANEL: f64 = 200.0;
const GAP: f64 = 16.0;
const LEFT: f64 = 120.0;
/// The height of the bar of colours.
const BAR: f64 = 12.0;
const HEADER: f64 = 72.0;
/// Number of colour levels; few enough that equal neighbours can be merged into one rectangle.
const LEVELS: usize = 48;
/// The most points of a map, and arrows in it, along each side.
const POINTS: usize = 64;
const ARROWS: usize = 14;
/// Dark blue to yellow through green (viridis), a perceptually ordered scale that is safe for colour-blind readers.
const SEQUENCE: [RGBColor; 5] = [
    RGBColor(68, 1, 84),
    RGBColor(59, 82, 139),
    RGBColor(33, 145, 140),
    RGBColor(94, 201, 98),
    RGBColor(253, 231, 37),
];
/// The longest arrow, in units of the longest true arrow.
const LONGEST: f64 = 1.5;
const SIGNED: [RGBColor; 3] = [BLUE, RGBColor(250, 250, 250), VERMILION];

/// Draws the quantities below each other with columns such as truth, prediction, error. A quantity has one colour scale for all moments,
/// that of the first column, the truth. The scale is diverging (blue, white, red) if the truth has negative values, and in the last column,
/// which is a difference. Several moments are animated, each shown for `seconds`.
///
/// # Errors
/// The figure cannot be written.
pub fn maps(path: &Path, rows: &[MapRow], columns: &[&str], title: &str, seconds: f64) -> Result<()> {
    let moments = rows.iter().map(|row| row.maps.len()).min().unwrap_or(0);
    if moments == 0 {
        return Ok(());
    }
    let width = LEFT + (PANEL + GAP) * columns.len() as f64 + GAP;
    let height = HEADER + (PANEL + GAP) * rows.len() as f64 + GAP;
    let (ink, gray) = (hex(INK), hex(GRAY));
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
         font-family=\"{FONT}\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"{GAP}\" y=\"26\" font-size=\"16\" fill=\"{ink}\">{}</text>\n",
        escaped(title)
    );
    for (at, column) in columns.iter().enumerate() {
        let x = LEFT + (PANEL + GAP) * at as f64;
        // Writing to a string cannot fail.
        let _ = writeln!(
            svg,
            "<text x=\"{x}\" y=\"{}\" font-size=\"14\" fill=\"{ink}\">{}</text>",
            HEADER - 10.0,
            escaped(column)
        );
    }
    for (at, row) in rows.iter().enumerate() {
        let top = HEADER + (PANEL + GAP) * at as f64;
        let scale = Scale::of(row);
        let _ = writeln!(
            svg,
            "<text x=\"{GAP}\" y=\"{}\" font-size=\"13\" fill=\"{ink}\">{}</text>",
            top + 18.0,
            escaped(&row.title)
        );
        bar(&mut svg, &scale, top + 30.0);
    }
    for moment in 0..moments {
        // Programs that do not animate show the first moment.
        svg += if moment == 0 { "<g>\n" } else { "<g display=\"none\">\n" };
        if moments > 1 {
            let share = |at: usize| at as f64 / moments as f64;
            let (values, times) = match moment {
                0 => ("inline;none".to_owned(), format!("0;{}", share(1))),
                _ => ("none;inline;none".to_owned(), format!("0;{};{}", share(moment), share(moment + 1))),
            };
            // The last moment ends with the animation, after which no value may follow.
            let (values, times) = if moment + 1 == moments && moment > 0 {
                ("none;inline".to_owned(), format!("0;{}", share(moment)))
            } else {
                (values, times)
            };
            let _ = writeln!(
                svg,
                "<animate attributeName=\"display\" calcMode=\"discrete\" dur=\"{}s\" repeatCount=\"indefinite\" \
                 values=\"{values}\" keyTimes=\"{times}\"/>\n<text x=\"{GAP}\" y=\"48\" font-size=\"13\" fill=\"{gray}\">step {}</text>",
                seconds * moments as f64,
                moment + 1
            );
        }
        for (at, row) in rows.iter().enumerate() {
            let scale = Scale::of(row);
            for (column, map) in row.maps[moment].iter().enumerate().take(columns.len()) {
                let left = LEFT + (PANEL + GAP) * column as f64;
                let differs = column > 0 && column + 1 == columns.len();
                let scale = if differs { scale.of_differences(map.components) } else { Scale { ..scale } };
                let top = HEADER + (PANEL + GAP) * at as f64;
                panel(&mut svg, map, &scale, left, top);
                if differs && let Some(rms) = map.rms() {
                    let _ = writeln!(
                        svg,
                        "<text x=\"{GAP}\" y=\"{}\" font-size=\"12\" fill=\"{gray}\">rms error</text>\
                         <text x=\"{GAP}\" y=\"{}\" font-size=\"12\" fill=\"{gray}\">{rms:.2e}</text>",
                        top + 92.0,
                        top + 108.0
                    );
                }
            }
        }
        svg += "</g>\n";
    }
    svg += "</svg>\n";
    save(path, &svg)
}

/// The values at both ends of the colour scale.
struct Scale {
    low: f64,
    high: f64,
    signed: bool,
}

impl Scale {
    fn of(row: &MapRow) -> Self {
        let truth = row.maps.iter().filter_map(|columns| columns.first());
        let heights = truth.flat_map(|map| {
            (0..map.size[0]).flat_map(move |x| (0..map.size[1]).map(move |y| map.height(x, y)))
        });
        let (low, high) = super::range(heights.filter(|value| value.is_finite()));
        if low < 0.0 {
            let end = low.abs().max(high.abs());
            return Self { low: -end, high: end, signed: true };
        }
        Self { low: 0.0, high: high.max(f64::MIN_POSITIVE), signed: false }
    }

    /// The scale for differences of values on this scale; unchanged for vectors, which are shown by length.
    fn of_differences(&self, components: usize) -> Self {
        if components > 1 {
            return Self { ..*self };
        }
        Self { low: -self.high, high: self.high, signed: true }
    }

    /// The colour level of a value; `None` for NaN.
    fn level(&self, value: f64) -> Option<usize> {
        let share = (value - self.low) / (self.high - self.low);
        share.is_finite().then(|| ((share.clamp(0.0, 1.0) * LEVELS as f64) as usize).min(LEVELS - 1))
    }

    fn color(&self, level: usize) -> RGBColor {
        let colors: &[RGBColor] = if self.signed { &SIGNED } else { &SEQUENCE };
        let place = level as f64 / (LEVELS - 1) as f64 * (colors.len() - 1) as f64;
        let first = (place as usize).min(colors.len() - 2);
        let (a, b, share) = (colors[first], colors[first + 1], place - first as f64);
        let mix = |a: u8, b: u8| (f64::from(a) + share * (f64::from(b) - f64::from(a))).round() as u8;
        RGBColor(mix(a.0, b.0), mix(a.1, b.1), mix(a.2, b.2))
    }
}

/// Draws the colours of a scale as a bar, with the values at its ends and in its middle below.
fn bar(svg: &mut String, scale: &Scale, top: f64) {
    if !scale.high.is_finite() {
        return;
    }
    let width = LEFT - 2.0 * GAP;
    let step = width / LEVELS as f64;
    for level in 0..LEVELS {
        let _ = write!(
            svg,
            "<rect x=\"{:.2}\" y=\"{top}\" width=\"{:.2}\" height=\"{BAR}\" fill=\"{}\"/>",
            GAP + step * level as f64,
            step + 0.2,
            hex(scale.color(level))
        );
    }
    let middle = (scale.low + scale.high) / 2.0;
    for (value, x, anchor) in
        [(scale.low, GAP, "start"), (middle, GAP + width / 2.0, "middle"), (scale.high, GAP + width, "end")]
    {
        // Two digits: three such numbers fit below the bar.
        let text = if value == 0.0 || (0.1..1000.0).contains(&value.abs()) {
            format!("{value:.1}")
        } else {
            format!("{value:.0e}")
        };
        let _ = writeln!(
            svg,
            "<text x=\"{x}\" y=\"{}\" font-size=\"11\" text-anchor=\"{anchor}\" fill=\"{}\">{text}</text>",
            top + BAR + 13.0,
            hex(GRAY)
        );
    }
}

/// Draws a map with its first axis to the right and its second one up.
fn panel(svg: &mut String, map: &Map, scale: &Scale, left: f64, top: f64) {
    let coarse = map.coarser(POINTS);
    let [columns, rows] = coarse.size;
    let longest = columns.max(rows).max(1) as f64;
    let unit = PANEL / longest;
    let _ = writeln!(
        svg,
        "<g transform=\"translate({left},{top}) scale({unit:.4})\" shape-rendering=\"crispEdges\">"
    );
    let mut paths = vec![String::new(); LEVELS];
    for y in 0..rows {
        let level = |x: usize| scale.level(coarse.height(x, rows - 1 - y));
        let mut x = 0;
        while x < columns {
            let run = (x..columns).take_while(|&other| level(other) == level(x)).count();
            if let Some(level) = level(x) {
                let _ = write!(paths[level], "M{x} {y}h{run}v1h-{run}z");
            }
            x += run;
        }
    }
    for (level, path) in paths.iter().enumerate().filter(|(_, path)| !path.is_empty()) {
        let _ = writeln!(svg, "<path fill=\"{}\" d=\"{path}\"/>", hex(scale.color(level)));
    }
    *svg += "</g>\n";
    if map.components == 2 {
        arrows(svg, &map.coarser(ARROWS), scale, left, top);
    }
}

fn arrows(svg: &mut String, map: &Map, scale: &Scale, left: f64, top: f64) {
    let [columns, rows] = map.size;
    let unit = PANEL / columns.max(rows).max(1) as f64;
    let mut path = String::new();
    for x in 0..columns {
        for y in 0..rows {
            let [u, v] = map.point(x, y) else { continue };
            let length = u.hypot(*v) / scale.high;
            if !length.is_finite() || length < 0.03 {
                continue;
            }
            // The longest true arrow has the length of the arrow spacing; predictions may be longer, up to LONGEST. y grows downwards in a
            // figure.
            let scaled = unit / scale.high * (LONGEST / length).min(1.0);
            let (dx, dy) = (u * scaled, -v * scaled);
            let (px, py) = (left + (x as f64 + 0.5) * unit, top + ((rows - 1 - y) as f64 + 0.5) * unit);
            let (ex, ey) = (px + dx / 2.0, py + dy / 2.0);
            let _ = write!(path, "M{:.1} {:.1}L{ex:.1} {ey:.1}", px - dx / 2.0, py - dy / 2.0);
            for turn in [0.5f64, -0.5] {
                let (sin, cos) = turn.sin_cos();
                let (hx, hy) = (-(dx * cos - dy * sin) * 0.4, -(dx * sin + dy * cos) * 0.4);
                let _ = write!(path, "M{ex:.1} {ey:.1}l{hx:.1} {hy:.1}");
            }
        }
    }
    let _ = writeln!(
        svg,
        "<path d=\"{path}\" fill=\"none\" stroke=\"white\" stroke-width=\"1.2\" stroke-linecap=\"round\"/>"
    );
}

fn hex(RGBColor(red, green, blue): RGBColor) -> String {
    format!("#{red:02x}{green:02x}{blue:02x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(components: usize, phase: f64) -> Map {
        let size = [20, 16];
        let values = (0..320 * components).map(|at| (at as f64 * 0.1 + phase).sin()).collect();
        Map { size, values, components }
    }

    #[test]
    fn maps_have_their_columns_moments_and_arrows() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("fields.svg");
        let moment =
            |components: usize| vec![map(components, 0.0), map(components, 1.0), map(components, 2.0)];
        let rows = [
            MapRow { title: "smoke".to_owned(), maps: vec![moment(1), moment(1)] },
            MapRow { title: "velocity".to_owned(), maps: vec![moment(2), moment(2)] },
        ];
        maps(&path, &rows, &["truth", "prediction", "error"], "a < b", 0.5).unwrap();
        let svg = std::fs::read_to_string(&path).unwrap();
        for part in
            ["truth", "error", "smoke", "velocity", "a &lt; b", "step 2", "<animate", "stroke=\"white\""]
        {
            assert!(svg.contains(part), "{part}");
        }
        assert!(!svg.contains("NaN"));
        maps(&folder.path().join("none.svg"), &[], &["truth"], "x", 1.0).unwrap();
        assert!(!folder.path().join("none.svg").exists());
    }

    #[test]
    fn what_is_no_number_has_no_colour_and_blocks_are_means() {
        let scale = Scale { low: -2.0, high: 2.0, signed: true };
        assert_eq!(
            (scale.level(f64::NAN), scale.level(-2.0), scale.level(5.0)),
            (None, Some(0), Some(LEVELS - 1))
        );
        assert_eq!(hex(scale.color(0)), hex(BLUE));
        let map = Map { size: [4, 2], values: (0..8).map(f64::from).collect(), components: 1 };
        assert_eq!(map.coarser(2).values, [1.5, 5.5]);
        assert_eq!(map.coarser(4).values, map.values);
    }
}
