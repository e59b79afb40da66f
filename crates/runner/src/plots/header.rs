//! The title of a figure and the names of its series, above the axes, where they cover no data.

use super::{FONT, INK};
use plotters::{coord::Shift, prelude::*};

/// How a series is drawn.
#[derive(Clone, Copy)]
pub enum Mark {
    /// A line of this width in pixels.
    Line(u32),
    /// A line of this width with dots.
    Dotted(u32),
    /// A pale line.
    Faint,
    /// A dashed line.
    Dashed,
    /// Dots alone.
    Dots,
    /// Bars of a range.
    Bars,
}

/// The name of a series, with a sample of it.
pub struct Entry<'a> {
    pub label: &'a str,
    pub color: RGBColor,
    pub mark: Mark,
}

type Area<'a, 'b> = DrawingArea<SVGBackend<'b>, Shift>;
type Drawn<T> = Result<T, DrawingAreaErrorKind<std::io::Error>>;

const LEFT: i32 = 20;
/// The height of a row of entries, and the length of a sample, in pixels.
const ROW: i32 = 22;
const SAMPLE: i32 = 26;

/// The width of a text in pixels, roughly: viewers differ in the font that they have.
fn width(text: &str, size: i32) -> i32 {
    text.chars().count() as i32 * size / 2
}

/// Draws title, unless it is empty, and entries, in as many rows as they need, and returns what is left below.
pub fn header<'b>(
    root: &Area<'_, 'b>,
    title: &str,
    entries: &[Entry<'_>],
) -> Drawn<DrawingArea<SVGBackend<'b>, Shift>> {
    if !title.is_empty() {
        root.draw(&Text::new(title.to_owned(), (LEFT, 16), (FONT, 20).into_font().color(&INK)))?;
    }
    let right = root.dim_in_pixel().0 as i32;
    let top = if title.is_empty() { 16 } else { 56 };
    let (mut x, mut y) = (LEFT, top);
    for entry in entries {
        let wide = SAMPLE + 8 + width(entry.label, 15);
        if x > LEFT && x + wide > right - LEFT {
            (x, y) = (LEFT, y + ROW);
        }
        sample(root, (x, y), entry)?;
        root.draw(&Text::new(
            entry.label.to_owned(),
            (x + SAMPLE + 8, y - 8),
            (FONT, 15).into_font().color(&INK),
        ))?;
        x += wide + 22;
    }
    let used = if entries.is_empty() { top - 12 } else { y + 18 };
    Ok(root.split_vertically(used).1)
}

/// Draws what the series looks like.
fn sample(area: &Area<'_, '_>, (x, y): (i32, i32), entry: &Entry<'_>) -> Drawn<()> {
    let color = entry.color;
    let line = |style: ShapeStyle| PathElement::new([(x, y), (x + SAMPLE, y)], style);
    match entry.mark {
        Mark::Line(width) => area.draw(&line(color.stroke_width(width))),
        Mark::Faint => area.draw(&line(color.mix(FAINT).stroke_width(1))),
        Mark::Dotted(width) => {
            area.draw(&line(color.stroke_width(width)))?;
            area.draw(&Circle::new((x + SAMPLE / 2, y), 4, color.filled()))
        }
        Mark::Dashed => (0..3).try_for_each(|dash| {
            let from = x + dash * 9;
            area.draw(&PathElement::new([(from, y), (from + 5, y)], color.stroke_width(2)))
        }),
        Mark::Dots => area.draw(&Circle::new((x + SAMPLE / 2, y), 4, color.filled())),
        Mark::Bars => area.draw(&PathElement::new(
            [(x + SAMPLE / 2, y - 7), (x + SAMPLE / 2, y + 7)],
            color.stroke_width(2),
        )),
    }
}

/// The opacity of pale lines.
pub const FAINT: f64 = 0.4;
