//! `bench step`: the time of a training step over batch and width.

use super::{
    arguments::StepTimes,
    launches,
    worker::{median, systems_of, trainer},
};
use gradewise_nn::Module;
use gradewise_runner::{
    error::{Error, Result},
    output, plots, run,
};
use gradewise_zoo::{
    models::{NBody, NBodyConfig},
    train::nbody::Example,
};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};
use std::{fmt::Write, path::Path};

/// The contents of step.json.
#[derive(Debug, Serialize, Deserialize)]
struct Report {
    device: String,
    dtype: String,
    compute: String,
    layers: u32,
    times: Vec<Time>,
}

/// The time of a step with one model and one batch size.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Time {
    width: u32,
    batch: u32,
    parameters: usize,
    /// Whether the step was replayed as a CUDA graph.
    captured: bool,
    /// The median time of a step.
    milliseconds: f64,
    /// The peak memory of the device's arrays.
    peak_bytes: usize,
}

pub fn run(arguments: &StepTimes) -> Result<()> {
    let others = arguments.with.iter().map(|path| read(path)).collect::<Result<Vec<_>>>()?;
    let placement = run::placement_of(&arguments.place.runtime(), None)?;
    std::fs::create_dir_all(&arguments.out)
        .map_err(|error| Error::Output { path: arguments.out.clone(), reason: error.to_string() })?;
    let (name, modes) = launches::modes(&placement.device);
    let mut times = Vec::new();
    for &width in &arguments.widths {
        let config = NBodyConfig {
            hidden: width as usize,
            layers: arguments.layers as usize,
            ..NBodyConfig::default()
        };
        for &batch in &arguments.batches {
            for &captured in modes {
                let example = systems_of(batch as usize, &placement)?;
                let memory = run::Memory::start(&placement.device);
                let model = NBody::init(&config, &placement, &mut ChaCha8Rng::seed_from_u64(1))?;
                let parameters = model.parameter_count();
                let mut trainer = trainer(model)?;
                let mut batches = std::iter::repeat_with(|| Ok(example.clone()));
                let loss = |model: &NBody, e: &Example| model.loss(&e.batch, &e.targets);
                let milliseconds =
                    median(&mut trainer, &mut batches, loss, captured, arguments.steps, || Ok(()))?;
                let peak_bytes = memory.usage()?.peak;
                times.push(Time { width, batch, parameters, captured, milliseconds, peak_bytes });
            }
        }
    }
    let (dtype, compute) = (arguments.place.dtype.to_string(), arguments.place.compute.to_string());
    let report = Report { device: name, dtype, compute, layers: arguments.layers, times };
    output::write_json(&arguments.out.join("step.json"), &report)?;
    let all: Vec<&Report> = std::iter::once(&report).chain(&others).collect();
    let figure = arguments.out.join("step.svg");
    let title = "A training step of the n-body model";
    plots::log_lines(&figure, &lines(&all), title, ("systems of a batch", "milliseconds"))?;
    output::print(&format!(
        "{}\nresults in {}: step.json step.svg\n",
        report.table(),
        arguments.out.display()
    ))
}

fn read(path: &Path) -> Result<Report> {
    let refuse = |reason: String| Error::Usage(format!("--with {}: {reason}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| refuse(error.to_string()))?;
    serde_json::from_str(&text).map_err(|error| refuse(format!("not written by bench step: {error}")))
}

/// A line for each device, width and launch mode.
fn lines(reports: &[&Report]) -> Vec<plots::Line> {
    let mut lines = Vec::new();
    for report in reports {
        for time in &report.times {
            let label = format!("{}, {}, width {}", report.device, report.dtype, time.width);
            let point = (f64::from(time.batch), time.milliseconds);
            launches::add_point(&mut lines, &label, &report.device, time.captured, point);
        }
    }
    lines
}

impl Report {
    fn table(&self) -> String {
        let Self { device, dtype, compute, layers, times } = self;
        let mut text = format!("\n{device}, {dtype}, {compute}; {layers} rounds of messages\n\n");
        text += "width  systems  captured  ms per step  systems per s  peak MiB\n";
        for Time { width, batch, captured, milliseconds, peak_bytes, .. } in times {
            let (rate, peak) =
                (f64::from(*batch) / milliseconds * 1e3, *peak_bytes as f64 / f64::from(1 << 20));
            let captured = if *captured { "yes" } else { "no" };
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "{width:>5}  {batch:>7}  {captured:>8}  {milliseconds:>11.3}  {rate:>13.0}  {peak:>8.1}"
            );
        }
        text
    }
}
