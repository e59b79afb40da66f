//! `debug`: runs another command in debug mode.

mod drill;

pub use drill::Drill;

use crate::{
    Command, Program,
    doctor::{self, Check},
    error::{Error, Result},
    output,
};
use clap::Args;
use gradewise_kernels::{DeviceName, debug};
use std::{ffi::OsString, iter::once};

/// Run another command in debug mode, after the information block and the initialisation test.
///
/// Launches on a GPU are synchronous and named, and an error lists the last launches of every thread; new memory is poisoned; the first
/// operation, forward or backward, that produces a NaN or an infinity, or leaves elements unwritten, ends the command and is named with its
/// inputs. Steps are not captured. On the CPU, memory and results are checked the same way.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gradewise debug -- train nbody --device cuda
  gradewise debug -- eval --checkpoint runs/nbody-1/checkpoint.safetensors --device cuda
  gradewise debug -- verify golden/clifford --device cuda
  gradewise debug --drill illegal-address                     what such an error looks like")]
pub struct Debug {
    /// Cause this error on a GPU instead, to see how it is reported. Afterwards this process cannot use the device; other processes are not
    /// affected.
    #[arg(long, value_name = "ERROR", conflicts_with = "command")]
    pub drill: Option<Drill>,
    /// Device of a drill: cuda or cuda:N.
    #[arg(long, value_name = "DEVICE", default_value = "cuda", requires = "drill")]
    pub device: DeviceName,
    /// The command, as it would follow `gradewise`.
    #[arg(
        required_unless_present = "drill",
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "COMMAND"
    )]
    pub command: Vec<OsString>,
}

impl Command for Debug {
    const NAME: &'static str = "debug";

    fn run(&self, program: &Program) -> Result<()> {
        run(self, program)
    }
}

fn run(arguments: &Debug, program: &Program) -> Result<()> {
    if let Some(drill) = arguments.drill {
        debug::set(true);
        return drill.run(arguments.device);
    }
    let words = once(OsString::from(output::program())).chain(arguments.command.iter().cloned());
    // Parsed before the tests, so that usage errors are reported at once. The help of the command is printed here, too.
    let parsed = program.parse(words).unwrap_or_else(|error| error.exit());
    if parsed.subcommand_name() == Some(Debug::NAME) {
        return Err(Error::Usage("`debug` runs another command, not itself".to_owned()));
    }
    debug::set(true);
    // The information block of all devices is shown here; this suppresses a second one by the command.
    doctor::is_introduced();
    let report = doctor::examine(false);
    output::note(&report.information());
    for test in report.self_tests() {
        output::note(&test.to_string());
    }
    if let Some(warning) = warning(report.self_tests()) {
        output::note(&warning);
    }
    output::note("");
    program.dispatch(&parsed)
}

/// The warning if tests of devices fail. The command still runs: it may use another device, or examine this failure.
fn warning<'a>(tests: impl Iterator<Item = &'a Check>) -> Option<String> {
    let failed: Vec<&str> =
        tests.filter(|test| test.is_failed()).filter_map(|test| test.check.split(' ').next()).collect();
    (!failed.is_empty()).then(|| {
        format!(
            "warning: the initialisation test fails on {}; the command runs all the same: --device chooses another device, \
             gradewise doctor says more",
            failed.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_that_fail_are_named_and_no_obstacle() {
        let good = Check::ok("cuda:1 self-test", "agrees");
        assert_eq!(warning(std::iter::once(&good)), None);
        let bad =
            ["cuda:0 self-test", "cuda:2 self-test"].map(|name| Check::fail(name, "is off", "suspect it"));
        let text = warning([&bad[0], &good, &bad[1]].into_iter()).unwrap();
        assert!(text.contains("fails on cuda:0, cuda:2; the command runs all the same"), "{text}");
        assert_eq!(text.lines().count(), 1);
    }
}
