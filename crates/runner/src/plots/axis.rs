//! An axis of a figure: its range, its scale, and its ticks with their labels.

use gradewise_bench::plots::{linear_ticks, log_ticks, tick_labels};
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use std::{ops::Range, rc::Rc};

/// An axis that plotters draws, with ticks of our own.
#[derive(Clone)]
pub struct Axis {
    range: Range<f64>,
    is_log: bool,
    ticks: Vec<f64>,
    label: Rc<dyn Fn(&f64) -> String>,
}

impl Axis {
    /// A logarithmic axis, on which `most` ticks fit beside each other.
    pub fn log((low, high): (f64, f64), most: usize) -> Self {
        Self::log_with((low, high), log_ticks(low, high, most))
    }

    /// A logarithmic axis with these ticks.
    pub fn log_with((low, high): (f64, f64), ticks: Vec<f64>) -> Self {
        Self { is_log: true, ..Self::of(low..high, ticks) }
    }

    /// A linear axis with at least so many ticks.
    pub fn linear((low, high): (f64, f64), least: usize) -> Self {
        Self::of(low..high, linear_ticks(low, high, least))
    }

    /// The end of its range.
    pub fn end(&self) -> f64 {
        self.range.end
    }

    /// Whether the axis is logarithmic.
    pub fn is_log(&self) -> bool {
        self.is_log
    }

    fn of(range: Range<f64>, ticks: Vec<f64>) -> Self {
        let label = Rc::new(tick_labels(&ticks));
        Self { range, is_log: false, ticks, label }
    }
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (from, to): (i32, i32)) -> i32 {
        let scaled = |value: f64| if self.is_log { value.ln() } else { value };
        let (low, high) = (scaled(self.range.start), scaled(self.range.end));
        from + (f64::from(to - from) * (scaled(*value) - low) / (high - low)).round() as i32
    }

    fn key_points<H: KeyPointHint>(&self, hint: H) -> Vec<f64> {
        if hint.weight().allow_light_points() { Vec::new() } else { self.ticks.clone() }
    }

    fn range(&self) -> Range<f64> {
        self.range.clone()
    }
}

impl ValueFormatter<f64> for Axis {
    fn format_ext(&self, value: &f64) -> String {
        (self.label)(value)
    }
}
