//! `doctor`: checks this machine and gives advice about failures.

use crate::{
    Command, Program, doctor,
    error::{Error, Result},
    output,
};
use clap::Args;

/// Check the GPU, its driver and this build, and say what to do.
///
/// First what works, then one line for each check: ok, info, warn, or FAIL followed by what to do about it. On each device, every operator
/// runs once, forward and backward, and is compared with f64 on the CPU. Processes of others are listed, but never ended. Exits with 1 if a
/// check fails; that there is neither a GPU nor a build for one is no failure.
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
    /// Skip the self-test.
    #[arg(long)]
    pub quick: bool,
}

impl Command for Doctor {
    const NAME: &'static str = "doctor";

    fn run(&self, _: &Program) -> Result<()> {
        let report = doctor::examine(self.quick);
        if self.json {
            output::print_json(&report)?;
        } else {
            output::print(&report.to_string())?;
        }
        match report.failed() {
            0 => Ok(()),
            _ if self.warn => Ok(()),
            1 => Err(Error::Failed("1 check fails".to_owned())),
            failed => Err(Error::Failed(format!("{failed} checks fail"))),
        }
    }
}
