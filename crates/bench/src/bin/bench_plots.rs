//! Draws result files as SVG.

use clap::Parser;
use gradewise_bench::{Report, Result, plots};
use std::{path::PathBuf, process::ExitCode};

const EXAMPLES: &str = "\
Examples:
  bench-plots sweep.json --out figures                                  milliseconds, megabytes, roofline
  bench-plots sweep.json --against reference-sweep.json --out figures   speed-up and memory against a reference

Of several variants in the reference (eager, compile, flash), the best counts in each cell, unless one is named.";

/// Heat maps over batch × features and a roofline from the reports of the bench `gpu` and of benches/compare_gpu.py.
#[derive(Debug, Parser)]
#[command(name = "bench-plots", after_help = EXAMPLES, max_term_width = 110)]
struct Arguments {
    /// The report.
    report: PathBuf,
    /// The report to compare with.
    #[arg(long, value_name = "REPORT")]
    against: Option<PathBuf>,
    /// Only this variant of the reference.
    #[arg(long, value_name = "NAME", requires = "against")]
    variant: Option<String>,
    /// The folder for the figures, made if there is none.
    #[arg(long, value_name = "FOLDER")]
    out: PathBuf,
}

fn draw(arguments: &Arguments) -> Result<()> {
    let report = Report::read(&arguments.report)?;
    let mut reference = arguments.against.as_ref().map(Report::read).transpose()?;
    if let (Some(reference), Some(variant)) = (&mut reference, &arguments.variant) {
        *reference = reference.only(variant)?;
    }
    std::fs::create_dir_all(&arguments.out)
        .map_err(|source| gradewise_bench::Error::Io { path: arguments.out.clone(), source })?;
    for path in plots::draw(&report, reference.as_ref(), &arguments.out)? {
        println!("{}", path.display());
    }
    Ok(())
}

fn main() -> ExitCode {
    match draw(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench-plots: {error}");
            ExitCode::FAILURE
        }
    }
}
