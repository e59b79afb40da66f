//! Times of operators, layers and training steps on a CUDA device, beside what the device allows: a table, one operator for
//! a profiler, plain products beside cuBLASLt, or a sweep over sizes.
//!
//! `cargo bench --features cuda --bench gpu -- --help`; docs/profiling.md tells how to use it with ncu and nsys.

use clap::Parser;
use gradewise_bench::{Arguments, run};
use std::process::ExitCode;

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("gpu: {error}");
            ExitCode::FAILURE
        }
    }
}
