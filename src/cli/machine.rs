//! The arguments of what looks at machines and at programs on them: `doctor`, `kernels`, `hardware`, `memory`, `profile`, `debug`.

use super::Settings;
use crate::commands::Drill;
use clap::Args;
use std::{ffi::OsString, path::PathBuf};

/// Check the GPU, its driver and this build, and say what to do.
///
/// One line for each check: ok, info, warn, or FAIL followed by what to do about it. On each device, every operator runs
/// once, forward and backward, and is compared with the CPU. Processes of others are listed and left alone. Exits with 1 if
/// a check fails, as without a driver or in a build without CUDA kernels.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gradewise doctor
  gradewise doctor --quick           without the self-test
  gradewise doctor --warn            exit code 0 whatever was found
  gradewise doctor --json            for scripts and bug reports")]
pub struct Doctor {
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
    /// Exit with 0 even if a check fails.
    #[arg(long)]
    pub warn: bool,
    /// Leave out the self-test.
    #[arg(long)]
    pub quick: bool,
}

/// List the GPU kernels of this build: what each needs, and how many blocks of it a multiprocessor holds.
///
/// Registers, static shared memory, stack and spills are the compiler's; occupancy follows from them, from the threads of the blocks
/// that the library launches, and from the dynamic shared memory of a block, which depends on shapes where it is not that of a tile of
/// matrix products (--shared). Needs no GPU, but a build with kernels.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gradewise kernels                                     all, on every architecture
  gradewise kernels sgp_bwd --target 90a                those whose name has this text, on one architecture
  gradewise kernels matmul_hopper                       tiles of matrix products
  gradewise kernels sgp_fwd --threads 128 --shared 65536    for blocks of another size
  gradewise kernels --json")]
pub struct Kernels {
    /// Text that the name has.
    pub name: Option<String>,
    /// An architecture, such as 90a.
    #[arg(long, value_name = "NAME")]
    pub target: Option<String>,
    /// Threads of a block [default: those that the library launches each kernel with]
    #[arg(long)]
    pub threads: Option<u32>,
    /// Bytes of dynamic shared memory of a block.
    #[arg(long, default_value_t = 0, value_name = "BYTES")]
    pub shared: u32,
    /// Print a JSON array.
    #[arg(long)]
    pub json: bool,
}

/// Run another command in debug mode, after the information block and the initialisation test.
///
/// Launches on a GPU are waited for and named, and the last of every thread are listed with an error; new memory is poisoned; the first
/// operation, forward or backward, that makes a NaN or an infinity, or leaves elements unwritten, ends the command and is named with
/// its inputs. Steps are not captured. On the CPU, memory and results are checked the same way.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gradewise debug -- train nbody --device cuda
  gradewise debug -- eval --checkpoint runs/nbody-1/checkpoint.safetensors --device cuda
  gradewise debug -- verify golden/clifford --device cuda
  gradewise debug --drill illegal-address                     what such an error looks like")]
pub struct Debug {
    /// Make this error on a GPU instead, to see how it is reported. The device is of no use to this process afterwards, and of as much
    /// as ever to others.
    #[arg(long, value_name = "ERROR", conflicts_with = "command")]
    pub drill: Option<Drill>,
    /// Where a drill takes place: cuda or cuda:N.
    #[arg(long, value_name = "DEVICE", default_value = "cuda", requires = "drill")]
    pub device: String,
    /// The command, as it would follow `gradewise`.
    #[arg(
        required_unless_present = "drill",
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "COMMAND"
    )]
    pub command: Vec<OsString>,
}

/// See where the time of a training step goes: operation by operation, beside what the device can do.
///
/// Takes steps as `train` would and prints for each operation and pass: calls, time, share of the step, bytes that it cannot avoid, the rates
/// reached, and how much of the roofline that is (measured copies and matrix products of the same device). Times are by CUDA events,
/// with the device kept busy so that it never waits for the host; on the CPU by its clock. Then the parts of a step with their memory,
/// what launches cost, and whether capture or larger batches would help.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gradewise profile nbody
  gradewise profile nbody --preset paper --device cuda --trace trace.json
  gradewise profile gpt --device cuda --precision bf16 --by-operation --limit 10
  gradewise profile hulls --checkpoint runs/hulls-1/checkpoint.safetensors --json")]
pub struct Profile {
    /// nbody, volumes, hulls, o5, forces, lorentz or gpt.
    pub task: String,
    /// Settings under a name.
    #[arg(long, value_name = "NAME")]
    pub preset: Option<String>,
    /// Weights other than fresh ones.
    #[arg(long, value_name = "FILE")]
    pub checkpoint: Option<PathBuf>,
    /// Steps that are measured.
    #[arg(long, default_value_t = 5)]
    pub steps: u32,
    /// Steps before them.
    #[arg(long, default_value_t = 5)]
    pub warm_up: u32,
    /// Rows of the table; the others are added up in one.
    #[arg(long, default_value_t = 20)]
    pub limit: usize,
    /// One row for each operation, whatever its shapes.
    #[arg(long)]
    pub by_operation: bool,
    /// Write the recorded steps for https://ui.perfetto.dev or chrome://tracing.
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub settings: Settings,
}

/// Settings for kinds of machines, which --hardware takes; and which of them this machine is.
///
/// They lie under all other settings: what a file, an option or key=value says wins.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gradewise hardware                              all presets, the one of this machine marked
  gradewise hardware gpu-12gb                     its file, to read, or to change and pass to --config
  gradewise train nbody --hardware auto           the preset of this machine
  gradewise train nbody --hardware h100 --compute exact")]
pub struct HardwareList {
    /// A preset, whose file is shown.
    pub name: Option<String>,
}

/// Measure the memory of a training step: what it takes by the batch, by operation, and what stays.
///
/// Takes a few steps with a model that is dropped again. Memory over the batch size is a line through two measurements; operations are
/// listed with the most that was allocated while they ran; what is alive after a step is listed by name.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gradewise memory nbody
  gradewise memory gpt --preset small --device cuda --precision bf16
  gradewise memory nbody runtime.census=sites            with the lines of code that made what is alive")]
pub struct Memory {
    /// nbody, volumes, hulls, o5, forces, lorentz or gpt.
    pub task: String,
    /// Settings under a name, as of train.
    #[arg(long, value_name = "NAME")]
    pub preset: Option<String>,
    /// Operations and groups of arrays that are listed.
    #[arg(long, value_name = "N", default_value_t = 15)]
    pub limit: usize,
    #[command(flatten)]
    pub settings: Settings,
}
