//! `bench predict`: the time of a prediction over the batch.

use super::{
    arguments::{Network, PredictTimes},
    launches,
    worker::systems_of,
};
use gradewise_kernels::{Array, Device};
use gradewise_nn::{
    Module, Placement, Predictor,
    train::{Batch, Capture},
};
use gradewise_runner::{
    error::{Error, Result},
    output, plots, run,
};
use gradewise_zoo::{
    data::text::TextBatch,
    models::{Gpt, GptConfig, NBody, NBodyBatch, NBodyConfig},
};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use serde::Serialize;
use std::{fmt::Write, time::Instant};

/// Calls before the timed ones: the first runs eagerly and is captured.
const WARM_UP: u32 = 5;

/// The contents of predict.json.
#[derive(Debug, Serialize)]
struct Report {
    device: String,
    dtype: String,
    compute: String,
    times: Vec<Time>,
}

/// The time of a prediction with one model and one batch size.
#[derive(Debug, Serialize)]
struct Time {
    model: Network,
    parameters: usize,
    batch: u32,
    /// Whether the forward pass was replayed as a CUDA graph.
    captured: bool,
    /// The median time from a batch in host memory to a result in host memory.
    milliseconds: f64,
    /// The peak memory of the device's arrays.
    peak_bytes: usize,
}

pub fn run(arguments: &PredictTimes) -> Result<()> {
    let placement = run::placement_of(&arguments.place.runtime(), None)?;
    std::fs::create_dir_all(&arguments.out)
        .map_err(|error| Error::Output { path: arguments.out.clone(), reason: error.to_string() })?;
    let (device, modes) = launches::modes(&placement.device);
    let mut times = Vec::new();
    for &model in &arguments.models {
        for &batch in &arguments.batches {
            for &captured in modes {
                let memory = run::Memory::start(&placement.device);
                let (parameters, milliseconds) = match model {
                    Network::NBody => nbody(batch, captured, arguments.calls, &placement)?,
                    Network::Gpt => gpt(batch, captured, arguments.calls, &placement)?,
                };
                let peak_bytes = memory.usage()?.peak;
                times.push(Time { model, parameters, batch, captured, milliseconds, peak_bytes });
            }
        }
    }
    let (dtype, compute) = (arguments.place.dtype.to_string(), arguments.place.compute.to_string());
    let report = Report { device, dtype, compute, times };
    output::write_json(&arguments.out.join("predict.json"), &report)?;
    let figure = arguments.out.join("predict.svg");
    plots::log_lines(&figure, &report.lines(), "A prediction", ("samples of a batch", "milliseconds"))?;
    output::print(&format!(
        "{}\nresults in {}: predict.json predict.svg\n",
        report.table(),
        arguments.out.display()
    ))
}

fn nbody(batch: u32, captured: bool, calls: u32, placement: &Placement) -> Result<(usize, f64)> {
    let host = Placement::new(&Device::Cpu, placement.dtype);
    let systems = systems_of(batch as usize, &host)?.batch;
    let model = NBody::init(&NBodyConfig::default(), placement, &mut ChaCha8Rng::seed_from_u64(1))?;
    let count = model.parameter_count();
    let predictor =
        Predictor::new(model, &placement.device, |model, batch: &NBodyBatch| model.forward(batch));
    Ok((count, median(predictor, &systems, captured, calls)?))
}

fn gpt(batch: u32, captured: bool, calls: u32, placement: &Placement) -> Result<(usize, f64)> {
    let config = GptConfig { block: 256, width: 384, heads: 6, layers: 6, ..GptConfig::default() };
    // One token more than a window, for the targets, which a prediction does not use.
    let window: Vec<u8> = (0..=config.block).map(|place| (place * 7 % 96 + 32) as u8).collect();
    let windows = TextBatch::new((0..batch).map(|_| window.as_slice()), &Device::Cpu)?;
    let model = Gpt::init(&config, placement, &mut ChaCha8Rng::seed_from_u64(1))?;
    let count = model.parameter_count();
    let forward = |model: &Gpt, batch: &TextBatch| model.forward(&batch.tokens, batch.rows);
    Ok((count, median(Predictor::new(model, &placement.device, forward), &windows, captured, calls)?))
}

/// The median time in milliseconds of a prediction for a batch on the host, read there.
fn median<M: Module, B: Batch>(
    predictor: Predictor<M, B>,
    batch: &B,
    captured: bool,
    calls: u32,
) -> Result<f64> {
    let mut predictor = predictor.capture(if captured { Capture::Required } else { Capture::Off });
    let mut read = || -> Result<()> {
        let output: Array =
            predictor.predict(batch)?.to_device(&Device::Cpu).map_err(gradewise_nn::Error::from)?;
        std::hint::black_box(output);
        Ok(())
    };
    for _ in 0..WARM_UP {
        read()?;
    }
    let mut times = Vec::with_capacity(calls as usize);
    for _ in 0..calls {
        let start = Instant::now();
        read()?;
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}

impl Report {
    /// A line for each model and launch mode.
    fn lines(&self) -> Vec<plots::Line> {
        let mut lines = Vec::new();
        for time in &self.times {
            let label = format!("{}, {}, {}", time.model, self.device, self.dtype);
            let point = (f64::from(time.batch), time.milliseconds);
            launches::add_point(&mut lines, &label, &self.device, time.captured, point);
        }
        lines
    }

    fn table(&self) -> String {
        let Self { device, dtype, compute, times } = self;
        let mut text = format!("\n{device}, {dtype}, {compute}; from host memory to host memory\n\n");
        text += "model  samples  captured  ms per prediction  samples per s  peak MiB\n";
        for Time { model, batch, captured, milliseconds, peak_bytes, .. } in times {
            let (rate, peak) =
                (f64::from(*batch) / milliseconds * 1e3, *peak_bytes as f64 / f64::from(1 << 20));
            let (model, captured) = (model.to_string(), if *captured { "yes" } else { "no" });
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "{model:<5}  {batch:>7}  {captured:>8}  {milliseconds:>17.4}  {rate:>13.0}  {peak:>8.1}"
            );
        }
        text
    }
}
