//! Operators on a CUDA device under criterion, timed by the device's events: for comparing two states of the code
//! (`--save-baseline before`, then `--baseline before`).
//!
//! `cargo bench --features cuda --bench gpu_criterion -- [CRITERION'S OPTIONS]`. Without kernels or a device it says so and
//! measures nothing; with `GRADEWISE_REQUIRE_GPU=1` that is a failure.

use criterion::{Criterion, Throughput};
use gradewise_bench::{Case, Op, Pass, Work, gpu};
use gradewise_core::{DType, Signature};
use gradewise_kernels::{Compute, CudaDevice, Device};
use std::{process::ExitCode, time::Duration};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn cases() -> Vec<Case> {
    let case =
        |op, batch, features, dtype| Case::new(op, Signature::CL3, (batch, features), dtype, Compute::Tf32);
    let mut cases = Vec::new();
    for (batch, features) in [(1024, 128), (4096, 512)] {
        for op in [Op::Product, Op::Layer] {
            cases.extend([DType::F32, DType::BF16].map(|dtype| case(op, batch, features, dtype)));
        }
    }
    for size in [1024, 4096] {
        cases.extend([DType::F32, DType::BF16].map(|dtype| case(Op::Matmul, size, size, dtype)));
    }
    cases
}

fn bench(criterion: &mut Criterion, device: &CudaDevice) -> Outcome<()> {
    let timer = gpu::Timer::new(device, 0, 1);
    for case in cases() {
        let workload = gpu::workload(&case, &Device::Cuda(device.clone()))?;
        let mut group = criterion.benchmark_group(case.to_string());
        for pass in Pass::ALL {
            let work = Work::of(&case, pass)?;
            // Of what bounds it: operations of matrix products, or bytes.
            group.throughput(match work.matrix_flops {
                0 => Throughput::Bytes(work.bytes),
                flops => Throughput::Elements(flops),
            });
            case.compute.scope(|| -> Outcome<()> {
                let mut prepared = workload.prepare(pass)?;
                let mut failure = None;
                group.bench_function(pass.to_string(), |bencher| {
                    bencher.iter_custom(|runs| match timer.seconds(runs, || (prepared.run)()) {
                        Ok(seconds) => Duration::from_secs_f64(seconds),
                        Err(error) => {
                            failure.get_or_insert(error);
                            // Criterion wants a time; the error ends the program below.
                            Duration::from_nanos(runs)
                        }
                    });
                });
                failure.map_or(Ok(()), |error| Err(error.into()))
            })?;
        }
        group.finish();
    }
    Ok(())
}

fn main() -> ExitCode {
    let device = match CudaDevice::new(0) {
        Ok(device) => device,
        Err(error) => {
            println!("gpu_criterion measures nothing: {error}");
            return if gradewise_bench::required() { ExitCode::FAILURE } else { ExitCode::SUCCESS };
        }
    };
    let mut criterion = Criterion::default().configure_from_args();
    match bench(&mut criterion, &device) {
        Ok(()) => {
            criterion.final_summary();
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("gpu_criterion: {error}");
            ExitCode::FAILURE
        }
    }
}
