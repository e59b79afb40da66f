//! What figures are drawn for.

use plotters::drawing::DrawingAreaErrorKind;

/// A figure as SVG; `None` if there is nothing to show.
pub type Drawing = Result<Option<String>, DrawingAreaErrorKind<std::io::Error>>;

/// What a figure is drawn for: the same letters, on areas of different width.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Paper {
    /// A screen, with a title.
    Screen,
    /// One of two columns of print. The caption is what titles it.
    Column,
}

/// The width of a figure for a column, in pixels. In 3.4 inches letters of 14 pixels are 7.8 points high.
pub const COLUMN: u32 = 440;

impl Paper {
    /// The size of a figure that has this one on a screen.
    pub fn size(self, (width, height): (u32, u32)) -> (u32, u32) {
        match self {
            Self::Screen => (width, height),
            Self::Column => (COLUMN.min(width), if width > COLUMN { height * 7 / 10 } else { height }),
        }
    }

    /// The number of ticks across where there are so many on a screen.
    pub fn ticks(self, count: usize) -> usize {
        match self {
            Self::Screen => count,
            Self::Column => (count + 3) / 2,
        }
    }

    /// The title of a figure, empty where there is none.
    pub fn title(self, title: &str) -> &str {
        match self {
            Self::Screen => title,
            Self::Column => "",
        }
    }
}
