//! The `gradewise` program.
#![forbid(unsafe_code)]

mod cli;
mod commands;
mod config;
mod error;
mod output;
mod plots;
mod run;
mod tasks;

use clap::Parser;
use std::process::ExitCode;
use tracing_subscriber::EnvFilter;

fn main() -> ExitCode {
    let arguments = cli::Cli::parse();
    let default = if arguments.verbose { "debug,gradewise::operations=trace" } else { "warn" };
    let filter = EnvFilter::try_from_env("GRADEWISE_LOG").unwrap_or_else(|_| EnvFilter::new(default));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(output::is_coloured())
        .with_writer(std::io::stderr)
        .without_time()
        .init();
    run::remember_panics();
    match commands::run(arguments.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output::error(&error);
            error.exit_code()
        }
    }
}
