//! The bench program: runs cases and prints results.

use crate::{
    Arguments, Case, Error, Pass, Report, Result, Row, Work,
    gpu::{self, Timer, Vendor},
    table,
};
use gradewise_ffi::nvtx;
use gradewise_kernels::{
    CudaDevice, Device,
    tuning::{Choice, Table},
};
use std::path::Path;

/// Runs the program.
///
/// # Errors
/// A request that cannot be met; [`Error::Cases`] if some cases failed, after all others were measured.
pub fn run(arguments: &Arguments) -> Result<()> {
    let cases = arguments.cases()?;
    let device = match CudaDevice::new(arguments.device) {
        Ok(device) => device,
        Err(error) if arguments.insists() => return Err(error.into()),
        Err(error) => {
            println!("skipped: {error}");
            return Ok(());
        }
    };
    if let Some(path) = &arguments.dump {
        let [case] = cases[..] else {
            return Err(Error::Request(format!("--dump writes one case, these are {}", cases.len())));
        };
        return gpu::dump(&case, &Device::Cuda(device), path);
    }
    if let Some(path) = &arguments.tune {
        return tune(&Timer::new(&device, arguments.warm_up, arguments.iters), &cases, path);
    }
    if arguments.nvtx && !nvtx::attach()? {
        eprintln!("--nvtx: no profiler listens; start this under nsys or ncu (docs/profiling.md)");
    }
    Session::new(arguments, &device)?.run(&cases)
}

/// Tunes cases one after the other, and writes the table to the file after each.
fn tune(timer: &Timer, cases: &[Case], path: &Path) -> Result<()> {
    let mut table = if path.exists() { Table::read(path)? } else { Table::default() };
    let mut failed = 0;
    for case in cases {
        match gpu::tune(timer, case, &mut table) {
            Ok(tuned) if tuned.is_empty() => println!("{case}: the estimated tiles are the fastest"),
            Ok(tuned) => {
                for gpu::Tuned { choice, ms: [before, after] } in tuned {
                    let Choice { shape, tile } = choice;
                    println!("{case}: {tile} for {shape}: {before:.4} ms -> {after:.4} ms");
                }
            }
            Err(error) => {
                failed += 1;
                eprintln!("{case}: {error}");
            }
        }
        table.write(path)?;
    }
    println!("{} choices in {}", table.len(), path.display());
    if failed > 0 { Err(Error::Cases { failed, total: cases.len() }) } else { Ok(()) }
}

/// The state of a run.
struct Session<'a> {
    arguments: &'a Arguments,
    timer: Timer,
    vendor: Option<Vendor>,
    report: Report,
}

impl<'a> Session<'a> {
    fn new(arguments: &'a Arguments, device: &CudaDevice) -> Result<Self> {
        let timer = Timer::new(device, arguments.warm_up, arguments.iters).ranges(arguments.nvtx);
        let commit = arguments.commit.clone().or_else(gpu::commit);
        let report = Report::new(gpu::machine(device)?, commit);
        let vendor = match Vendor::open(device) {
            _ if arguments.nvtx => None,
            Ok(vendor) => Some(vendor),
            Err(error) => {
                eprintln!("without cuBLASLt: {error}");
                None
            }
        };
        Ok(Self { arguments, timer, vendor, report })
    }

    fn run(mut self, cases: &[Case]) -> Result<()> {
        if !self.arguments.nvtx {
            let arithmetics = table::arithmetics(cases);
            self.report.ceilings = gpu::ceilings(&self.timer, self.vendor.as_ref(), &arithmetics)?;
        }
        table::print_head(&self.report);
        let mut failed = 0;
        for case in cases {
            let mut line = table::Line::new(*case);
            for &pass in &self.arguments.pass {
                match self.measure(case, pass) {
                    Ok(row) => {
                        line.add(&row);
                        self.report.rows.push(row);
                    }
                    Err(error) => {
                        failed += 1;
                        eprintln!("{case} {pass}: {error}");
                    }
                }
            }
            println!("{line}");
        }
        if let Some(path) = &self.arguments.json {
            self.report.write(path)?;
        }
        let total = cases.len() * self.arguments.pass.len();
        if failed > 0 { Err(Error::Cases { failed, total }) } else { Ok(()) }
    }

    fn measure(&self, case: &Case, pass: Pass) -> Result<Row> {
        let mut row = gpu::measure(&self.timer, case, pass)?;
        if let Some(vendor) = &self.vendor {
            gpu::measure_vendor(&self.timer, vendor, &mut row)?;
        }
        row.floor_ms = Work::of(case, pass)?.floor_ms(case, &self.report.ceilings);
        Ok(row)
    }
}
