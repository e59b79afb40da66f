//! `bench`: measurements of whole programs. Operators are measured by `cargo bench`.

mod arguments;
mod launches;
mod link;
mod predict;
mod scaling;
mod step;
mod tasks;
mod worker;

pub use arguments::Bench;

use arguments::BenchTask;
use gradewise_runner::{Command, Program, Result};

impl Command for Bench {
    const NAME: &'static str = "bench";

    fn run(&self, program: &Program) -> Result<()> {
        match &self.task {
            BenchTask::Scaling(arguments) => match &arguments.worker {
                Some(path) => worker::run(arguments, path),
                None => scaling::run(arguments),
            },
            BenchTask::Step(arguments) => step::run(arguments),
            BenchTask::Predict(arguments) => predict::run(arguments),
            BenchTask::Tasks(arguments) => tasks::run(program, arguments),
        }
    }
}
