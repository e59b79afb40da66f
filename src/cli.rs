//! The command line.

mod bench;
mod checkpoints;
mod checks;
mod machine;
mod numerics;
mod report;
mod train;

pub use bench::{Bench, BenchTask, Scaling, StepTimes};
pub use checkpoints::{Eval, Export, Infer, Inspect, Sample};
pub use checks::{Bisect, ComparePrecision, Gradcheck, Verify};
pub use machine::{Debug, Doctor, HardwareList, Kernels, Memory, Profile};
pub use numerics::{Compare, Stability, Symmetry};
pub use report::Report;
pub use train::{Train, TrainRun, TrainTask};

use crate::{
    config::{Hardware, Resolver},
    error::Result,
    output,
};
use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  gradewise train nbody                          a run of a few minutes, data included
  gradewise train hulls --curve 256,1024,4096    another experiment, its error over the number of samples
  gradewise train nbody train.steps=60           any setting can be overridden
  gradewise train nbody --resume runs/nbody-1    go on where a run stopped
  gradewise eval --checkpoint runs/nbody-1/checkpoint.safetensors
  gradewise inspect runs/nbody-1/checkpoint.safetensors
  gradewise doctor                               what works on this machine's GPU
  gradewise train nbody --hardware auto          settings for this machine
  gradewise debug -- train nbody --device cuda   what goes wrong there, and where

Exit codes: 0 done, 1 failed, 2 bad usage or input.";

/// Clifford (geometric) algebra neural networks: training, checks and tools.
#[derive(Debug, Parser)]
#[command(name = "gradewise", version, after_help = EXAMPLES, max_term_width = 110)]
pub struct Cli {
    /// Say more about what is being done: every operation with its shapes and its time, too (also GRADEWISE_LOG=trace).
    #[arg(short, long, global = true)]
    pub verbose: bool,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    Train(Train),
    Eval(Eval),
    Infer(Infer),
    Sample(Sample),
    Inspect(Inspect),
    Export(Export),
    Compare(Compare),
    Symmetry(Symmetry),
    Stability(Stability),
    ComparePrecision(ComparePrecision),
    Bisect(Bisect),
    Gradcheck(Gradcheck),
    Verify(Verify),
    Memory(Memory),
    Profile(Profile),
    Bench(Bench),
    Hardware(HardwareList),
    Doctor(Doctor),
    Kernels(Kernels),
    Debug(Debug),
    Report(Report),
}

/// Where and how to compute.
#[derive(Clone, Debug, Args)]
pub struct RuntimeOptions {
    /// cpu, cuda or cuda:N. A device that is not there is an error, never replaced by another.
    #[arg(long)]
    device: Option<String>,
    /// Storage of numbers: f64, f32, bf16 or f16 (the CPU serves f64 and f32).
    #[arg(long)]
    dtype: Option<String>,
    /// Arithmetic of matrix products: exact or tf32.
    #[arg(long)]
    compute: Option<String>,
    /// Mixed precision: bf16 or f16, with weights in f32; or full, as --dtype says.
    #[arg(long)]
    precision: Option<String>,
    /// Debug mode: launches are waited for and named, memory is poisoned, results are checked (runtime.debug_cuda).
    #[arg(long)]
    debug_cuda: bool,
}

impl RuntimeOptions {
    /// Lays the options given over a configuration.
    pub fn apply<'a>(&self, resolver: &'a mut Resolver) -> Result<&'a mut Resolver> {
        for (key, value) in [
            ("device", &self.device),
            ("dtype", &self.dtype),
            ("compute", &self.compute),
            ("precision", &self.precision),
        ] {
            if let Some(value) = value {
                resolver.assignment(&format!("runtime.{key}={value}"))?;
            }
        }
        if self.debug_cuda {
            resolver.assignment("runtime.debug_cuda=true")?;
        }
        Ok(resolver)
    }
}

/// The layers of a configuration that come from the command line.
#[derive(Clone, Debug, Args)]
pub struct Settings {
    /// A TOML file of settings, such as the config.toml of an earlier run.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Settings for a kind of machine, under all others: a name that `gradewise hardware` lists, or auto for this machine's.
    #[arg(long, value_name = "NAME")]
    hardware: Option<String>,
    #[command(flatten)]
    runtime: RuntimeOptions,
    /// Seed of the weights and of the order of batches (train.seed); data.seed chooses the simulated systems.
    #[arg(long)]
    seed: Option<u64>,
    /// Settings that take precedence, such as train.batch_size=4.
    #[arg(value_name = "KEY=VALUE")]
    overrides: Vec<String>,
}

impl Settings {
    /// Lays the settings of the machine, the file, the options and the overrides over a configuration, in that order.
    pub fn apply<'a>(&self, resolver: &'a mut Resolver) -> Result<&'a mut Resolver> {
        if let Some(name) = &self.hardware {
            let found = Hardware::find(name)?;
            found.hardware.apply(resolver)?;
            output::note(&format!(
                "hardware: {} ({}): {}",
                found.hardware.name,
                found.reason,
                found.hardware.summary()
            ));
        }
        if let Some(path) = &self.config {
            resolver.file(path)?;
        }
        self.runtime.apply(resolver)?;
        if let Some(seed) = self.seed {
            resolver.assignment(&format!("train.seed={seed}"))?;
        }
        for assignment in &self.overrides {
            resolver.assignment(assignment)?;
        }
        Ok(resolver)
    }
}
