//! A program with a command of its own beside those that every program has. `examples/own_task` of the repository has a task.
//!
//! ```text
//! cargo run --release -p gradewise-runner --example own_command -- blades --signature 1,3,0
//! cargo run --release -p gradewise-runner --example own_command -- --help
//! ```

use clap::Args;
use gradewise_core::{Algebra, Signature};
use gradewise_runner::{Command, Program, Result, output};
use std::process::ExitCode;

/// The blades of an algebra by grade
#[derive(Args)]
struct Blades {
    /// How many generators square to 1, to −1 and to 0
    #[arg(long, default_value = "3,0,0")]
    signature: Signature,
}

impl Command for Blades {
    const NAME: &'static str = "blades";

    fn run(&self, _: &Program) -> Result<()> {
        let algebra = Algebra::new(self.signature).map_err(gradewise_kernels::Error::from)?;
        for grade in 0..algebra.grade_count() {
            output::print(&format!("grade {grade}: {} blades\n", algebra.blades_of_grade(grade).len()))?;
        }
        Ok(())
    }
}

fn main() -> ExitCode {
    Program::new().about("Looks at algebras").command::<Blades>().main()
}
