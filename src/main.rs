//! The `gradewise` program.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    gradewise_cli::program().main()
}
