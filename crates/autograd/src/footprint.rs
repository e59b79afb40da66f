//! The memory of a computation, operation by operation.

use crate::{
    Error, Result,
    observe::{Event, Observer, Pass, observe},
};
use gradewise_kernels::{
    Device,
    memory::{Bytes, Delta, Monitor, Stats},
};
use std::{collections::BTreeMap, fmt};

/// What a computation took of a device's memory.
#[derive(Clone, Debug)]
pub struct Footprint {
    /// By operation and pass, the highest peak first.
    pub operations: Vec<OperationMemory>,
    /// Of the whole.
    pub total: Delta,
}

/// The memory of an operation, over all its calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperationMemory {
    /// Its name.
    pub operation: &'static str,
    /// Forward, or its backward rule.
    pub pass: Pass,
    /// How often it ran.
    pub calls: usize,
    /// The peak of the device's allocated bytes while it ran, by any thread, above their number before the computation.
    pub peak: usize,
    /// The peak of one call above the bytes allocated when it began: its result and its workspace.
    pub needs: usize,
    /// Bytes that all calls allocated and kept, less those that they freed.
    pub kept: i64,
}

/// Runs `body` and measures how much memory of `device` each operation takes. Allocations of other threads count too; work that is
/// replayed as a CUDA graph is not seen.
///
/// # Errors
/// From the device.
pub fn footprint<R>(device: &Device, body: impl FnOnce() -> R) -> Result<(R, Footprint)> {
    let monitor = Monitor::start(device)?;
    let start = device.memory()?;
    let watch = Watch { device: device.clone(), start, last: start, highest: 0, rows: BTreeMap::new() };
    let (result, watch) = observe(watch, body);
    let mut total = monitor.delta()?;
    // Each operation reset the peak: the whole's is the largest of theirs.
    total.peak = total.peak.max(watch.highest);
    let mut operations: Vec<OperationMemory> = watch.rows.into_values().collect();
    operations.sort_by_key(|row| std::cmp::Reverse(row.peak));
    Ok((result, Footprint { operations, total }))
}

struct Watch {
    device: Device,
    start: Stats,
    last: Stats,
    highest: usize,
    rows: BTreeMap<(&'static str, Pass), OperationMemory>,
}

impl Observer for Watch {
    fn observe(&mut self, event: &Event<'_>) -> Result<()> {
        let now = self.device.memory().map_err(Error::from)?;
        self.device.reset_peak();
        let row = self.rows.entry((event.operation, event.pass)).or_insert_with(|| OperationMemory {
            operation: event.operation,
            pass: event.pass,
            calls: 0,
            peak: 0,
            needs: 0,
            kept: 0,
        });
        let peak = now.peak.saturating_sub(self.start.allocated);
        row.calls += 1;
        row.peak = row.peak.max(peak);
        row.needs = row.needs.max(now.peak.saturating_sub(self.last.allocated));
        row.kept += now.allocated as i64 - self.last.allocated as i64;
        self.highest = self.highest.max(peak);
        self.last = now;
        Ok(())
    }
}

impl fmt::Display for Footprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<22}{:<10}{:>6}{:>12}{:>12}{:>13}",
            "operation", "pass", "calls", "peak", "one call", "kept"
        )?;
        for row in &self.operations {
            let sign = if row.kept < 0 { "-" } else { "" };
            let kept = format!("{sign}{}", Bytes(row.kept.unsigned_abs() as usize));
            let [peak, needs] = [row.peak, row.needs].map(|bytes| Bytes(bytes).to_string());
            writeln!(
                f,
                "{:<22}{:<10}{:>6}{peak:>12}{needs:>12}{kept:>13}",
                row.operation, row.pass, row.calls
            )?;
        }
        write!(f, "peak of all: {}", Bytes(self.total.peak))
    }
}
