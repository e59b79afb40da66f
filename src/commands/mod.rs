//! The commands specific to the tasks and models of this crate, one file each; the others come with every program of gradewise-runner.

mod bench;
mod expressivity;
mod infer;
mod md;
mod sample;

use gradewise_runner::Program;

/// Adds all commands.
pub fn add(program: Program) -> Program {
    program
        .command::<infer::Infer>()
        .command::<md::Md>()
        .command::<sample::Sample>()
        .command::<expressivity::Expressivity>()
        .command::<bench::Bench>()
}
