//! `debug`: another command, in debug mode.

mod drill;

pub use drill::Drill;

use super::doctor::{self, Check};
use crate::{
    cli::{Cli, Command, Debug},
    error::{Error, Result},
    output,
};
use clap::Parser;
use gradewise_kernels::debug;
use std::{ffi::OsString, iter::once};

pub fn run(arguments: &Debug) -> Result<()> {
    if let Some(drill) = arguments.drill {
        debug::set(true);
        return drill.run(&arguments.device);
    }
    let words = once(OsString::from("gradewise")).chain(arguments.command.iter().cloned());
    // Before anything is tested: a command that does not exist is known at once. Its help is printed here, too.
    let parsed = Cli::try_parse_from(words).unwrap_or_else(|error| error.exit());
    if matches!(parsed.command, Command::Debug(_)) {
        return Err(Error::Usage("`debug` runs another command, not itself".to_owned()));
    }
    debug::set(true);
    // Shown here, of all devices, and not again by the command.
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
    super::run(parsed.command)
}

/// What is said before the command runs although tests of devices fail: it may be about another device, or about this very failure.
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
