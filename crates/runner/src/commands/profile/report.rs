//! The report of a profile, as text, JSON and a trace.

use super::Arguments;
use super::{failed, record::Recorded, speed::Speed};
use crate::{
    error::Result,
    output,
    plots::{self, Bar, Figure},
};
use gradewise_bench::{
    Ceilings,
    profile::{CopyRow, OperationRow, Profile, Recording, trace},
};
use gradewise_kernels::Device;
use gradewise_nn::{Placement, checkpoint::replace_file};
use serde_json::{Value, json};
use std::path::Path;

/// All measurements.
pub(super) struct Report {
    pub(super) task: &'static str,
    pub(super) placement: Placement,
    /// The dtype of mixed precision, by name, if it differs from the storage.
    pub(super) mixed: Option<String>,
    pub(super) batch_size: usize,
    pub(super) parameters: usize,
    pub(super) profile: Profile,
    pub(super) recorded: Recorded,
    pub(super) speed: Speed,
}

impl Report {
    /// Prints the report and writes the trace, as requested by the arguments.
    pub(super) fn write(&self, arguments: &Arguments) -> Result<()> {
        if let Some(path) = &arguments.trace {
            write_trace(path, &self.recorded.recordings, &self.placement.device)?;
        }
        if let Some(path) = &arguments.svg {
            self.draw(path, arguments.limit)?;
        }
        if arguments.json {
            return output::print(&format!("{:#}\n", self.json()));
        }
        let mut text = self.text(arguments.limit);
        if let Some(path) = &arguments.trace {
            text += &format!("trace in {}: open it at https://ui.perfetto.dev\n", path.display());
        }
        if let Some(path) = &arguments.svg {
            text += &format!("figure in {}\n", path.display());
        }
        output::print(&text)
    }

    /// Draws the times of the operations, and what remains of the step.
    fn draw(&self, path: &Path, limit: usize) -> Result<()> {
        let title = format!(
            "{}: where the {} ms of a training step go",
            self.task,
            digits(1e3 * self.profile.step_seconds)
        );
        let below = format!(
            "{}, batches of {}; dark: the least time that copies and products of the device allow",
            device_name(&self.placement.device),
            self.batch_size
        );
        plots::bars(path, &bars(&self.profile, limit), [&title, &below], "milliseconds of a step")
    }

    fn json(&self) -> Value {
        let Self { task, placement, mixed, batch_size, parameters, profile, recorded, speed } = self;
        json!({
            "task": task,
            "device": device_name(&placement.device),
            "dtype": placement.dtype.to_string(),
            "mixed_precision": mixed,
            "batch_size": batch_size,
            "parameters": parameters,
            "profile": profile,
            "parts": recorded.parts,
            "copies": recorded.copies,
            "eager_seconds": speed.eager,
            "captured_seconds": speed.captured.map(|graph| graph.seconds),
            "captured_nodes": speed.captured.map(|graph| graph.launches),
            "fused_seconds": speed.fused.map(|graph| graph.seconds),
            "fused_nodes": speed.fused.map(|graph| graph.launches),
            "twice_the_batch_seconds": speed.twice,
            "advice": speed.advice(*batch_size, &recorded.parts),
        })
    }

    /// A table of at most `limit` operations, a table of the parts of a step, and advice.
    fn text(&self, limit: usize) -> String {
        let Self { task, placement, mixed, batch_size, parameters, profile, recorded, speed } = self;
        let precision = match mixed {
            Some(mixed) => format!("{mixed} mixed precision with weights in {}", placement.dtype),
            None => placement.dtype.to_string(),
        };
        let mut text = format!(
            "{task}, {parameters} parameters, {precision} on {}, batches of {batch_size}; {}\n\n{}",
            device_name(&placement.device),
            described(&profile.ceilings),
            profile.table(limit),
        );
        text += &format!("\n{:<33}{:>11}{:>7}{:>11}{:>11}\n", "part", "ms", "calls", "peak MiB", "kept MiB");
        for part in &recorded.parts {
            text += &format!("{part}\n");
        }
        if !recorded.copies.is_empty() {
            text += &format!("\n{}\n", CopyRow::heading());
            recorded.copies.iter().for_each(|row| text += &format!("{row}\n"));
        }
        text += "\n";
        for line in speed.advice(*batch_size, &recorded.parts) {
            text += &format!("{line}\n");
        }
        text
    }
}

/// A number of milliseconds to three digits.
fn digits(value: f64) -> String {
    let decimals = (2 - value.abs().max(1e-9).log10().floor() as i32).clamp(0, 6) as usize;
    format!("{value:.decimals$}")
}

/// One bar for each of the first `limit` operations, the longest first, for the others together, and for the time outside of operations.
fn bars(profile: &Profile, limit: usize) -> Vec<Bar> {
    let bar = |name: String, seconds: f64, roof: Option<f64>| {
        let share = format!("{} ms, {:.0} %", digits(1e3 * seconds), 100.0 * seconds / profile.step_seconds);
        let text = roof.map_or(share.clone(), |roof| format!("{share}; {:.0} % of the roof", 100.0 * roof));
        Bar { name, length: 1e3 * seconds, text, share: roof }
    };
    let (shown, others) = profile.rows.split_at(limit.min(profile.rows.len()));
    // Rows of the same operation and pass differ in their shapes.
    let alike = |row: &OperationRow| {
        shown.iter().filter(|other| (other.operation, &other.pass) == (row.operation, &row.pass)).count() > 1
    };
    let name = |row: &OperationRow| match &row.shapes {
        Some(shapes) if alike(row) => format!("{}, {}, {shapes}", row.operation, row.pass),
        _ => format!("{}, {}", row.operation, row.pass),
    };
    let mut bars: Vec<Bar> = shown.iter().map(|row| bar(name(row), row.seconds, row.roofline)).collect();
    if !others.is_empty() {
        let seconds = others.iter().map(|row| row.seconds).sum();
        bars.push(bar(format!("{} more", others.len()), seconds, None));
    }
    bars.push(bar("outside of operations".to_owned(), profile.other_seconds, None));
    bars
}

fn device_name(device: &Device) -> String {
    match device {
        Device::Cpu => "cpu".to_owned(),
        Device::Cuda(cuda) => format!("{device} ({})", cuda.info().name),
    }
}

fn described(ceilings: &Ceilings) -> String {
    let copy = ceilings.copy_bytes_per_s.unwrap_or(0.0);
    let mut text = format!("roof: copies {:.1} GB/s", 1e-9 * copy);
    for (name, rate) in &ceilings.products {
        text += &format!(", products in {name} {:.1} GFLOP/s", 1e-9 * rate.best());
    }
    text
}

fn write_trace(path: &Path, recordings: &[Recording], device: &Device) -> Result<()> {
    let trace = trace(recordings, &device_name(device)).map_err(failed)?.to_string();
    Ok(replace_file(path, |file| file.write_all(trace.as_bytes()))?)
}

/// Whether a file is a figure of this command.
pub(super) fn is_figure(path: &Path) -> bool {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    matches!(Figure::read(&text), Some(Figure::Bars { .. }))
}

/// Whether a file is a trace of this command.
pub(super) fn is_trace(path: &Path) -> bool {
    let text = std::fs::read(path).unwrap_or_default();
    serde_json::from_slice::<serde_json::Value>(&text).is_ok_and(|found| found.get("traceEvents").is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(operation: &'static str, shapes: &str, seconds: f64, roofline: Option<f64>) -> OperationRow {
        OperationRow {
            operation,
            pass: "forward".to_owned(),
            shapes: Some(shapes.to_owned()),
            arithmetic: "f32".to_owned(),
            calls: 1.0,
            seconds,
            share: seconds / 0.02,
            bytes: 1.0,
            flops: 1.0,
            bytes_per_s: 1.0,
            flops_per_s: 1.0,
            roofline,
        }
    }

    #[test]
    fn bars_are_all_of_the_step() {
        let rows = vec![
            row("linear", "8×8", 0.01, Some(0.5)),
            row("linear", "4×4", 0.004, Some(1.25)),
            row("product", "8×8", 0.002, None),
            row("sum", "8", 0.001, None),
        ];
        let ceilings = Ceilings::default();
        let profile = Profile { steps: 1, step_seconds: 0.02, other_seconds: 0.003, ceilings, rows };
        let bars = bars(&profile, 3);
        let found: Vec<(&str, &str)> = bars.iter().map(|bar| (&*bar.name, &*bar.text)).collect();
        assert_eq!(
            found,
            [
                ("linear, forward, 8×8", "10.0 ms, 50 %; 50 % of the roof"),
                ("linear, forward, 4×4", "4.00 ms, 20 %; 125 % of the roof"),
                ("product, forward", "2.00 ms, 10 %"),
                ("1 more", "1.00 ms, 5 %"),
                ("outside of operations", "3.00 ms, 15 %"),
            ]
        );
        let whole: f64 = bars.iter().map(|bar| bar.length).sum();
        assert!((whole - 20.0).abs() < 1e-12, "{whole}");
    }
}
