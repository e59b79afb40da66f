//! The floors of the Flash-Clifford layer: how long its bytes and its matrix products must take on a device of given rates,
//! before anything is run.
//!
//! ```text
//! cargo run --release -p gradewise-bench --example floors
//! ```

use gradewise_bench::{Case, Ceilings, Op, Pass, Result, Work};
use gradewise_core::{DType, Signature};
use gradewise_kernels::Compute;

fn main() -> Result<()> {
    // An H200, as docs/benchmarks.md measured it: 4.26 TB/s, read and written.
    let ceilings = Ceilings { copy_bytes_per_s: Some(4.26e12), ..Ceilings::default() };
    println!("{:<40}{:>12}{:>14}{:>12}", "case", "MB", "GFLOP", "bytes, ms");
    for rows in [1024, 4096, 65536] {
        for dtype in [DType::F32, DType::BF16] {
            let case = Case::new(Op::Layer, Signature::CL3, (rows, 512), dtype, Compute::Tf32);
            for pass in [Pass::Forward, Pass::Both] {
                let work = Work::of(&case, pass)?;
                let bytes = Work { matrix_flops: 0, ..work };
                let floor = bytes.floor_ms(&case, &ceilings).unwrap_or(f64::NAN);
                println!(
                    "{:<40}{:>12.1}{:>14.1}{:>12.3}",
                    format!("{case} {pass:?}"),
                    work.bytes as f64 / 1e6,
                    work.matrix_flops as f64 / 1e9,
                    floor
                );
            }
        }
    }
    Ok(())
}
