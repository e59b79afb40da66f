//! Turns a task into a program.
//!
//! A [`Task`] provides what is specific to it: data, a model, a loss and measures. This crate provides the rest: layered settings
//! (defaults, the machine, a preset, a file, the command line), run folders, progress, plots, resuming, the best weights, patience, several
//! seeds, learning curves, batches that fit the memory, several devices, and tools to examine a run: `eval`, `profile`, `memory`,
//! `symmetry`, `stability`, `compare-precision`, `bisect`, `export`, `report`, `doctor` and others.
//!
//! ```ignore
//! fn main() -> std::process::ExitCode {
//!     gradewise_runner::Program::new().task::<MyTask>().main()
//! }
//! ```
//!
//! is a whole program: `my-program train my-task --seeds 4`, `my-program eval --checkpoint …`, `my-program --help`. `docs/adding-a-task.md`
//! of the repository goes through one, `examples/own_task`, from data to `eval`.
#![forbid(unsafe_code)]

// The order of modules:
//
// config, error
// output, process
// plots
// doctor, options
// run
// task
// page
// experiment, prelude, program, training
// commands

mod commands;
pub mod config;
mod doctor;
pub mod error;
mod experiment;
pub mod options;
pub mod output;
pub mod page;
pub mod plots;
pub mod prelude;
pub mod process;
pub mod program;
pub mod run;
pub mod task;
pub mod training;

pub use error::{Error, Result};
pub use program::{Command, Program, TaskCommand};
pub use task::{Batch, Measures, Preset, Task, TaskConfig};
