//! What a search for NaN and infinities found.

use crate::{Pass, TensorId};
use std::fmt;

/// What [`detect_anomalies`](crate::detect_anomalies) found.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Anomaly {
    /// The operation.
    pub operation: &'static str,
    /// The pass in which it made them.
    pub pass: Pass,
    /// The operation in whose backward rule it was called, if it was.
    pub within: Option<&'static str>,
    /// NaN and infinite values among the result's elements.
    pub nan: usize,
    /// See [`nan`](Self::nan).
    pub infinite: usize,
    /// Elements of the result that no kernel wrote; known only where memory was poisoned ([debug mode](gradewise_kernels::debug)).
    pub unwritten: usize,
    /// The result's summary.
    pub result: String,
    /// What it was computed from: a name, and its summary.
    pub sources: Vec<(String, String)>,
    /// For each input, the parameter that it is, or is a view of; the first sources are the inputs.
    pub leaves: Vec<Option<TensorId>>,
    /// Whether a source had NaN before.
    pub inherited: bool,
    /// The operations that led to the operation's first inputs, the latest first.
    pub trail: Vec<&'static str>,
}

impl Anomaly {
    /// Renames the parameters among the sources by `name`.
    pub fn name_parameters(&mut self, name: impl Fn(TensorId) -> Option<String>) {
        for ((described, _), leaf) in self.sources.iter_mut().zip(&self.leaves) {
            if let Some(name) = leaf.and_then(&name) {
                let input = described.split(',').next().unwrap_or_default();
                *described = format!("{input}, parameter `{name}`");
            }
        }
    }
}

impl fmt::Display for Anomaly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pass = match self.pass {
            Pass::Forward => "",
            Pass::Backward => "the backward pass of ",
        };
        let origin = if self.inherited { "from a source that has NaN already" } else { "from finite values" };
        write!(
            f,
            "{pass}`{}` gave {} NaN and {} infinite values {origin}",
            self.operation, self.nan, self.infinite
        )?;
        if let Some(within) = self.within {
            write!(f, ", within the backward pass of `{within}`")?;
        }
        if self.unwritten > 0 {
            let command = gradewise_kernels::sanitizer("initcheck");
            write!(
                f,
                "\n  {} elements were never written: their memory is as it was poisoned; {command}",
                self.unwritten
            )?;
        }
        write!(f, "\n  result: {}", self.result)?;
        for (name, summary) in &self.sources {
            write!(f, "\n  {name}: {summary}")?;
        }
        if !self.trail.is_empty() {
            write!(f, "\n  computed through {}", self.trail.join(" ← "))?;
        }
        Ok(())
    }
}
