//! Compares the operators with golden vectors: inputs, outputs and gradients of an independent oracle in double precision.
//!
//! ```text
//! cargo run --release -p gradewise-verify --example golden -- tests/golden/general
//! ```

use gradewise_core::DType;
use gradewise_kernels::Device;
use gradewise_verify::{Options, verify_dir};
use std::{path::Path, process::ExitCode};

fn main() -> ExitCode {
    let Some(folder) = std::env::args().nth(1) else {
        eprintln!("name a folder of golden vectors, such as tests/golden/general");
        return ExitCode::from(2);
    };
    let options = Options { device: Device::Cpu, dtype: DType::F64 };
    let reports = match verify_dir(Path::new(&folder), &options, |_| {}) {
        Ok(reports) => reports,
        Err(error) => {
            eprintln!("{folder}: {error}");
            return ExitCode::from(2);
        }
    };
    let mut failed = 0;
    for report in &reports {
        match &report.outcome {
            Ok(tensors) if tensors.iter().all(|tensor| tensor.passes()) => {}
            Ok(tensors) => {
                failed += 1;
                for tensor in tensors.iter().filter(|tensor| !tensor.passes()) {
                    println!("{}: {} is off by {:.1e}", report.path.display(), tensor.name, tensor.error);
                }
            }
            Err(reason) => {
                failed += 1;
                println!("{}: {reason}", report.path.display());
            }
        }
    }
    println!("{} files, {failed} failed", reports.len());
    ExitCode::from(u8::from(failed > 0))
}
