//! A derivative that was computed in two ways.

use std::fmt;

/// One element's derivative, computed in two ways.
#[derive(Clone, Debug, PartialEq)]
pub struct Deviation {
    /// Which input.
    pub input: usize,
    /// Position of the element along each axis of the input.
    pub element: Vec<usize>,
    /// The derivative by the backward pass.
    pub analytic: f64,
    /// The derivative by central differences.
    pub numeric: f64,
}

impl fmt::Display for Deviation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { input, element, analytic, numeric } = self;
        write!(
            f,
            "input {input}, element {element:?}: backward gives {analytic:e}, central differences {numeric:e}"
        )
    }
}
