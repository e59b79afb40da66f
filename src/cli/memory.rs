//! The arguments of `memory`.

use super::Settings;
use clap::Args;

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
