//! `bench scaling`: the training step of two models on increasing numbers of devices, and the bandwidth of the link between devices.

use super::{
    arguments::Scaling,
    link,
    worker::{Measured, Step},
};
use gradewise_distributed::Supervisor;
use gradewise_ffi::{DeviceInfo, Driver};
use gradewise_kernels::DeviceName;
use gradewise_runner::{
    error::{Error, Result},
    output, plots, process,
    run::{GRACE, Interrupt},
    training::{describe, nccl_variables},
};
use serde::Serialize;
use std::{fmt::Write, path::Path};

/// The contents of scaling.json.
#[derive(Debug, Serialize)]
struct Report {
    device: String,
    dtype: String,
    compute: String,
    /// Bandwidth of copies from one device to another.
    link_bytes_per_second: Option<f64>,
    measured: Vec<Measured>,
    efficiency: Vec<Efficiency>,
}

/// The step time of one process over that of N processes: with a constant number of samples per process (weak), or with a constant total
/// and divided by N (strong).
#[derive(Clone, Debug, Serialize)]
struct Efficiency {
    model: String,
    mode: String,
    world: usize,
    efficiency: f64,
}

pub fn run(arguments: &Scaling) -> Result<()> {
    let (name, available, link) = device(arguments)?;
    let counts = counts(arguments, available)?;
    std::fs::create_dir_all(&arguments.out)
        .map_err(|error| Error::Output { path: arguments.out.clone(), reason: error.to_string() })?;
    let interrupt = Interrupt::listen();
    let mut measured = Vec::new();
    for &world in &counts {
        output::note(&format!("{world} process{}", if world == 1 { "" } else { "es" }));
        let result = arguments.out.join(format!("processes-{world}.json"));
        let (program, mut own) = process::command()?;
        own.extend(["--worker".into(), result.clone().into()]);
        let supervisor = Supervisor {
            program,
            arguments: own,
            variables: nccl_variables(arguments.deterministic),
            world,
            logs: arguments.out.join("logs"),
            grace: 2 * GRACE,
        };
        if let Some(failure) = supervisor.run(|| interrupt.requested())? {
            return Err(Error::Failed(describe(&failure)));
        }
        let text = std::fs::read_to_string(&result)
            .map_err(|error| Error::Output { path: result.clone(), reason: error.to_string() })?;
        let found: Measured = serde_json::from_str(&text)
            .map_err(|error| Error::Failed(format!("{}: {error}", result.display())))?;
        measured.push(found);
    }
    let efficiency = efficiencies(&measured);
    let report = Report {
        device: name,
        dtype: arguments.place.dtype.to_string(),
        compute: arguments.place.compute.to_string(),
        link_bytes_per_second: link,
        measured,
        efficiency,
    };
    output::write_json(&arguments.out.join("scaling.json"), &report)?;
    draw(&arguments.out.join("scaling.svg"), &report)?;
    output::print(&format!(
        "{}\nresults in {}: scaling.json scaling.svg\n",
        report.table(),
        arguments.out.display()
    ))
}

/// The kind of device, the number of devices, and the bandwidth of their link.
fn device(arguments: &Scaling) -> Result<(String, usize, Option<f64>)> {
    if arguments.place.device == DeviceName::Cpu {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        return Ok((format!("CPU with {cores} cores"), cores, None));
    }
    let fail = |source| {
        Error::Kernels(gradewise_kernels::Error::Cuda {
            operation: "find devices",
            device: 0,
            source,
            launches: Default::default(),
        })
    };
    let driver = Driver::load().map_err(fail)?;
    let available = driver.device_count().map_err(fail)?;
    let name = DeviceInfo::new(&driver, 0).map_err(fail)?.name;
    let link = link::bandwidth(&driver).unwrap_or_else(|error| {
        output::note(&format!("the link between devices was not measured: {error}"));
        None
    });
    Ok((name, available, link))
}

/// The numbers of processes: the requested ones, or powers of two.
fn counts(arguments: &Scaling, available: usize) -> Result<Vec<usize>> {
    let mut counts: Vec<usize> = match &arguments.counts {
        None => {
            std::iter::successors(Some(1), |count| Some(count * 2)).take_while(|&n| n <= available).collect()
        }
        Some(text) => {
            text.split(',').map(|part| part.trim().parse()).collect::<Result<_, _>>().map_err(|_| {
                Error::Usage(format!("--counts {text}: write numbers of processes, such as 1,2,4"))
            })?
        }
    };
    counts.push(1);
    counts.sort_unstable();
    counts.dedup();
    let most = counts.last().copied().unwrap_or(1);
    if counts[0] == 0 || (most > available && arguments.place.device != DeviceName::Cpu) {
        let counts = arguments.counts.as_deref().unwrap_or("1");
        return Err(Error::Usage(format!("--counts {counts}: there are {available} devices")));
    }
    Ok(counts)
}

fn efficiencies(measured: &[Measured]) -> Vec<Efficiency> {
    let Some(one) = measured.iter().find(|measured| measured.world == 1) else { return Vec::new() };
    let alone = |step: &Step| one.steps.iter().find(|other| other.model == step.model);
    let mut found = Vec::new();
    for Measured { world, steps, .. } in measured {
        for step in steps {
            let Some(alone) = alone(step) else { continue };
            let ideal =
                if step.mode == "strong" { alone.milliseconds / *world as f64 } else { alone.milliseconds };
            let (model, mode) = (step.model.clone(), step.mode.clone());
            found.push(Efficiency { model, mode, world: *world, efficiency: ideal / step.milliseconds });
        }
    }
    found
}

fn draw(path: &Path, report: &Report) -> Result<()> {
    let line = |label: &str, model: &str, mode: &str| plots::Line {
        label: label.to_owned(),
        points: report
            .efficiency
            .iter()
            .filter(|e| e.model == model && (e.mode == mode || e.world == 1))
            .map(|e| (e.world as f64, e.efficiency))
            .collect(),
    };
    let lines = [
        line("layer stack, weak", "layer stack", "weak"),
        line("n-body, weak", "n-body", "weak"),
        line("n-body, strong", "n-body", "strong"),
    ];
    let title = format!("Scaling on {}", report.device);
    plots::lines(path, &lines, &title, ("processes", "efficiency"))
}

impl Report {
    fn table(&self) -> String {
        let mut text = format!("\n{}, {}, {}\n\n", self.device, self.dtype, self.compute);
        text += "processes  model        mode    samples each    ms per step  efficiency  peak MiB\n";
        for Measured { world, steps, .. } in &self.measured {
            for step in steps {
                let own = |e: &&Efficiency| e.world == *world && e.model == step.model && e.mode == step.mode;
                let efficiency = self.efficiency.iter().find(own).map_or(f64::NAN, |e| e.efficiency);
                let Step { model, mode, local_batch, milliseconds, peak_bytes, .. } = step;
                let peak = *peak_bytes as f64 / f64::from(1 << 20);
                // Writing to a string cannot fail.
                let _ = writeln!(
                    text,
                    "{world:>9}  {model:<11}  {mode:<6}  {local_batch:>12}  {milliseconds:>13.3}  {efficiency:>10.3}  {peak:>8.1}"
                );
            }
        }
        for Measured { world, communicator, sums, .. } in &self.measured {
            if sums.is_empty() {
                continue;
            }
            let _ = writeln!(
                text,
                "\nsums over {world} processes by {communicator}\n       bytes  microseconds  bus GB/s"
            );
            for sum in sums {
                let bus = sum.bus_bytes_per_second / 1e9;
                let _ = writeln!(text, "{:>12}  {:>12.1}  {bus:>8.2}", sum.bytes, sum.microseconds);
            }
        }
        if let Some(link) = self.link_bytes_per_second {
            let _ = writeln!(text, "\ncopies from one device to the next: {:.1} GB/s", link / 1e9);
        }
        text
    }
}
