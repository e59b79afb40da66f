//! The commands that are about our own tasks and models, one file each; the others come with every program of gradewise-runner.

mod bench;
mod infer;
mod sample;

use gradewise_runner::Program;

/// Adds all of them.
pub fn add(program: Program) -> Program {
    program.command::<infer::Infer>().command::<sample::Sample>().command::<bench::Bench>()
}
