//! Records every operation with its times.

use super::{Clock, Mark};
use crate::Work;
use gradewise_autograd::observe::{Event, Observer, Pass};
use gradewise_core::DType;
use std::time::Instant;

/// One call of an operation.
#[derive(Debug)]
pub struct Call {
    /// The operation.
    pub operation: &'static str,
    /// The pass.
    pub pass: Pass,
    /// Whether it ran inside a backward rule that is recorded as a call.
    pub inside: bool,
    /// Start and end of its work, by the clock of the device.
    pub marks: [Mark; 2],
    /// Times of the call and the return, in seconds since the start of the recording.
    pub host: [f64; 2],
    /// Sizes of its inputs.
    pub shapes: Vec<Vec<usize>>,
    /// The dtype of its first input.
    pub dtype: Option<DType>,
    /// Its minimum bytes and operations.
    pub work: Work,
}

/// An observer that times every operation.
#[derive(Debug)]
pub struct Recorder {
    clock: Clock,
    begun: Instant,
    start: Option<Mark>,
    open: Vec<(&'static str, Pass, Mark, f64)>,
    calls: Vec<Call>,
}

/// The recorded calls.
#[derive(Debug)]
pub struct Recording {
    /// The first mark.
    pub start: Option<Mark>,
    /// The calls in the order in which they returned.
    pub calls: Vec<Call>,
}

impl Recorder {
    /// A recorder that uses this clock.
    pub fn new(clock: &Clock) -> Self {
        Self { clock: clock.clone(), begun: Instant::now(), start: None, open: Vec::new(), calls: Vec::new() }
    }

    /// The recorded calls.
    pub fn finish(self) -> Recording {
        Recording { start: self.start, calls: self.calls }
    }

    fn now(&self) -> f64 {
        self.begun.elapsed().as_secs_f64()
    }
}

impl Observer for Recorder {
    fn begin(&mut self, operation: &'static str, pass: Pass) -> gradewise_autograd::Result<()> {
        if self.start.is_none() {
            self.start = Some(self.clock.mark()?);
        }
        let mark = self.clock.mark()?;
        self.open.push((operation, pass, mark, self.now()));
        Ok(())
    }

    fn observe(&mut self, event: &Event<'_>) -> gradewise_autograd::Result<()> {
        let end = self.clock.mark()?;
        let now = self.now();
        // Calls that ended by an error were not closed; discard them.
        while let Some((operation, pass, start, called)) = self.open.pop() {
            if (operation, pass) != (event.operation, event.pass) {
                continue;
            }
            self.calls.push(Call {
                operation,
                pass,
                inside: event.within.is_some() && !self.open.is_empty(),
                marks: [start, end],
                host: [called, now],
                shapes: event.inputs.iter().map(|input| input.array().dims().to_vec()).collect(),
                dtype: event.inputs.first().map(|input| input.array().dtype()),
                work: Work::observed(event),
            });
            break;
        }
        Ok(())
    }
}
