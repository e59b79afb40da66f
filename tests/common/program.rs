//! The program that tests run.

use std::path::PathBuf;

/// Beside an archive of tests that runs on another machine, or where Cargo built it.
pub fn program() -> PathBuf {
    let packed = std::env::var_os("NEXTEST_BIN_EXE_gradewise");
    packed.map_or_else(|| env!("CARGO_BIN_EXE_gradewise").into(), PathBuf::from)
}
