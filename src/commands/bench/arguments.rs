//! The arguments of `bench`.

use clap::{Args, Subcommand};
use gradewise_kernels::{Compute, DType, DeviceName};
use gradewise_runner::{config::Runtime, options::one_of};
use std::path::PathBuf;

gradewise_nn::choices! {
    /// What predicts.
    pub enum Network {
        /// The n-body model of arXiv:2305.11141, for systems of five particles
        NBody = "nbody",
        /// A text model of 10.7 million parameters: the logits of windows of 256 tokens
        Gpt = "gpt",
    }
}

/// Measure whole programs.
#[derive(Debug, Args)]
#[command(display_order = 13)] // In help, before `hardware`.
pub struct Bench {
    #[command(subcommand)]
    pub task: BenchTask,
}

#[derive(Debug, Subcommand)]
pub enum BenchTask {
    Scaling(Scaling),
    Step(StepTimes),
    Predict(PredictTimes),
    Tasks(TaskTimes),
}

/// Device and arithmetic of the timed steps.
#[derive(Clone, Debug, Args)]
pub struct Place {
    /// cpu, cuda or, for one device, cuda:N.
    #[arg(long, default_value = "cpu")]
    pub device: DeviceName,
    /// Storage of numbers: f64, f32, bf16 or f16.
    #[arg(long, default_value = "f32", value_parser = one_of::<DType>(), ignore_case = true, hide_possible_values = true)]
    pub dtype: DType,
    /// Arithmetic of matrix products: exact or tf32.
    #[arg(long, default_value = "exact", value_parser = one_of::<Compute>(), ignore_case = true, hide_possible_values = true)]
    pub compute: Compute,
}

impl Place {
    /// Converts to the settings of a run.
    pub fn runtime(&self) -> Runtime {
        let Self { device, dtype, compute } = self.clone();
        Runtime { device, dtype, compute, ..Runtime::default() }
    }
}

/// Time training steps on increasing numbers of devices of this host, and the bandwidth of sums over them.
///
/// Weak scaling keeps the number of samples per device constant, strong scaling the total number. Models: a stack of Clifford layers, and a
/// large n-body model. scaling.json has every number, scaling.svg the efficiency.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gradewise bench scaling --device cuda --dtype f32 --compute tf32
  gradewise bench scaling --counts 1,2,4 --quick")]
pub struct Scaling {
    #[command(flatten)]
    pub place: Place,
    /// Numbers of processes [default: powers of two, up to the number of devices]
    #[arg(long, value_name = "LIST")]
    pub counts: Option<String>,
    /// Timed steps of each model.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..))]
    pub steps: u32,
    /// Small models, for a quick test.
    #[arg(long)]
    pub quick: bool,
    /// Size of a gradient bucket in MiB [default: 25]
    #[arg(long, value_name = "MIB")]
    pub bucket_mib: Option<usize>,
    /// Let NCCL add in one way only, as training does.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, value_name = "BOOL")]
    pub deterministic: bool,
    /// Folder of the results.
    #[arg(long, value_name = "DIR", default_value = "scaling")]
    pub out: PathBuf,
    /// Set in the processes that measure: where rank 0 writes.
    #[arg(long, value_name = "FILE", hide = true)]
    pub worker: Option<PathBuf>,
}

/// Time a training step of the n-body model over batch and width.
///
/// Random systems of five particles; forward, backward and Adam. On a GPU, measures both eager and captured steps. step.json has every
/// number, step.svg the times on logarithmic axes.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gradewise bench step --device cuda
  gradewise bench step --batches 1,10,100 --widths 28 --with cuda/step.json    on the CPU, in one figure with another device")]
pub struct StepTimes {
    #[command(flatten)]
    pub place: Place,
    /// Systems of a batch.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1,10,100,1000",
          value_parser = clap::value_parser!(u32).range(1..))]
    pub batches: Vec<u32>,
    /// Multivector features of a particle.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "28,64",
          value_parser = clap::value_parser!(u32).range(1..))]
    pub widths: Vec<u32>,
    /// Rounds of messages.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub layers: u32,
    /// Timed steps, whose median counts.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    pub steps: u32,
    /// A step.json whose lines to add to the figure; several are separated by commas.
    #[arg(long, value_name = "FILES", value_delimiter = ',')]
    pub with: Vec<PathBuf>,
    /// Folder of the results.
    #[arg(long, value_name = "DIR", default_value = "step")]
    pub out: PathBuf,
}

/// Time predictions of the n-body model and of a text model over the batch.
///
/// Random inputs in host memory; the forward pass without history; the result back in host memory. On a GPU, measures both eager and
/// captured passes. predict.json has every number, predict.svg the times on logarithmic axes.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gradewise bench predict --device cuda
  gradewise bench predict --models nbody --batches 1,10,100,1000")]
pub struct PredictTimes {
    #[command(flatten)]
    pub place: Place,
    /// Models: nbody, gpt.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "nbody,gpt",
          value_parser = one_of::<Network>(), hide_possible_values = true)]
    pub models: Vec<Network>,
    /// Samples of a batch: systems of five particles, or windows of 256 tokens.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1,10,100",
          value_parser = clap::value_parser!(u32).range(1..))]
    pub batches: Vec<u32>,
    /// Timed predictions, whose median counts.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    pub calls: u32,
    /// Folder of the results.
    #[arg(long, value_name = "DIR", default_value = "predict")]
    pub out: PathBuf,
}

/// Time a training step of every task and preset, with and without fused operators.
///
/// Each is profiled in a process of its own: the step operator by operator, as a captured graph, and as a graph with fused operators; the
/// launches of both, the peak of memory, and the share of the least time in which the device can do each operation. tasks.json has every
/// number.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gradewise bench tasks --device cuda
  gradewise bench tasks --tasks gravity,forces --steps 20")]
pub struct TaskTimes {
    /// cpu, cuda or, for one device, cuda:N.
    #[arg(long, default_value = "cpu")]
    pub device: DeviceName,
    /// Tasks to measure [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',', hide_default_value = true)]
    pub tasks: Vec<String>,
    /// Timed steps, whose median counts.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    pub steps: u32,
    /// Folder of the results.
    #[arg(long, value_name = "DIR", default_value = "tasks")]
    pub out: PathBuf,
}
