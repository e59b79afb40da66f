//! The subcommands, one file each.

mod bench;
mod bisect;
mod cases;
mod compare;
mod compare_precision;
mod debug;
mod doctor;
mod eval;
mod export;
mod gradcheck;
mod hardware;
mod infer;
mod inspect;
mod kernels;
mod memory;
mod profile;
mod report;
mod sample;
mod stability;
mod symmetry;
mod train;
mod verify;

pub use debug::Drill;
pub use doctor::introduce;

use crate::{
    cli::Command,
    error::{Error, Result},
};
use gradewise_autograd::backend;
use gradewise_kernels::Options;

/// Runs a command.
pub fn run(command: Command) -> Result<()> {
    // Whatever is run, a choice that means nothing is better refused at once.
    backend::from_environment().map_err(|error| Error::Usage(error.to_string()))?;
    Options::from_environment().map_err(|error| Error::Usage(error.to_string()))?;
    match command {
        Command::Train(arguments) => train::run(&arguments),
        Command::Eval(arguments) => eval::run(&arguments),
        Command::Infer(arguments) => infer::run(&arguments),
        Command::Gradcheck(arguments) => gradcheck::run(&arguments),
        Command::Verify(arguments) => verify::run(&arguments),
        Command::Inspect(arguments) => inspect::run(&arguments),
        Command::Export(arguments) => export::run(&arguments),
        Command::Doctor(arguments) => doctor::run(&arguments),
        Command::Kernels(arguments) => kernels::run(&arguments),
        Command::Hardware(arguments) => hardware::run(&arguments),
        Command::Memory(arguments) => memory::run(&arguments),
        Command::Sample(arguments) => sample::run(&arguments),
        Command::Bisect(arguments) => bisect::run(&arguments),
        Command::ComparePrecision(arguments) => compare_precision::run(&arguments),
        Command::Compare(arguments) => compare::run(&arguments),
        Command::Stability(arguments) => stability::run(&arguments),
        Command::Symmetry(arguments) => symmetry::run(&arguments),
        Command::Report(arguments) => report::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Debug(arguments) => debug::run(&arguments),
        Command::Profile(arguments) => profile::run(&arguments),
    }
}

/// The greatest of some numbers that are not negative; NaN counts as the greatest.
fn worst(values: impl Iterator<Item = f64>) -> f64 {
    // Written so that a comparison with NaN takes it, and nothing after it.
    values.fold(0.0, |worst: f64, value| if value <= worst || worst.is_nan() { worst } else { value })
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_worst_of_numbers_with_nan_is_nan_wherever_it_stands() {
        let worst = |values: [f64; 3]| super::worst(values.into_iter());
        assert_eq!(worst([1.0, 3.0, 2.0]), 3.0);
        for position in 0..3 {
            let mut values = [1.0, 3.0, 2.0];
            values[position] = f64::NAN;
            assert!(worst(values).is_nan(), "{position}");
        }
    }
}
