//! The `gradewise` program as a library, for other entry points, such as the Python package.
#![forbid(unsafe_code)]

pub mod calculator;
mod commands;
mod tasks;

use gradewise_runner::Program;

const EXAMPLES: &str = "\
gradewise train nbody                          a run of a few minutes, data included
gradewise train hulls --curve 256,1024,4096    another experiment, its error over the number of samples
gradewise train nbody train.steps=60           any setting can be overridden
gradewise train nbody --resume runs/nbody-1    go on where a run stopped
gradewise eval --checkpoint runs/nbody-1/checkpoint.safetensors
gradewise inspect runs/nbody-1/checkpoint.safetensors
gradewise doctor                               what works on this machine's GPU
gradewise train nbody --hardware auto          settings for this machine
gradewise debug -- train nbody --device cuda   what goes wrong there, and where";

/// The program with the tasks of this crate, and the commands specific to them.
#[must_use]
pub fn program() -> Program {
    let program = Program::new()
        .name("gradewise")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Clifford (geometric) algebra neural networks: training, checks and tools")
        .examples(EXAMPLES);
    commands::add(tasks::add(program))
}
