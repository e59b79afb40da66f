//! `bench`: measurements of whole programs. Those of operators are in `cargo bench`.

mod link;
mod scaling;
mod step;
mod worker;

use crate::{
    cli::{Bench, BenchTask},
    error::Result,
};

pub fn run(arguments: &Bench) -> Result<()> {
    match &arguments.task {
        BenchTask::Scaling(arguments) => match &arguments.worker {
            Some(path) => worker::run(arguments, path),
            None => scaling::run(arguments),
        },
        BenchTask::Step(arguments) => step::run(arguments),
    }
}
