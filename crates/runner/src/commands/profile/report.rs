//! The report of a profile, as text, JSON and a trace.

use super::Arguments;
use super::{failed, record::Recorded, speed::Speed};
use crate::{error::Result, output};
use gradewise_bench::{
    Ceilings,
    profile::{CopyRow, Profile, Recording, trace},
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
        if arguments.json {
            return output::print(&format!("{:#}\n", self.json()));
        }
        let mut text = self.text(arguments.limit);
        if let Some(path) = &arguments.trace {
            text += &format!("trace in {}: open it at https://ui.perfetto.dev\n", path.display());
        }
        output::print(&text)
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

/// Whether a file is a trace of this command.
pub(super) fn is_trace(path: &Path) -> bool {
    let text = std::fs::read(path).unwrap_or_default();
    serde_json::from_slice::<serde_json::Value>(&text).is_ok_and(|found| found.get("traceEvents").is_some())
}
