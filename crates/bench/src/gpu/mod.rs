//! Measurements on a CUDA device.

mod ceilings;
mod dump;
mod machine;
mod nbody;
mod operators;
mod timer;
mod tune;
mod vendor;
mod workload;

pub use ceilings::{PRODUCT_SIZES, ceilings};
pub use dump::dump;
pub use machine::{commit, machine};
pub use timer::{MEASURE_RANGE, Timer, Times, WARM_UP_RANGE};
pub use tune::{Tuned, tune};
pub use vendor::Vendor;
pub use workload::{Prepared, Workload};

use crate::{Case, Op, Pass, Result, Row, Work};
use gradewise_kernels::Device;

/// The workload of a case, with random inputs, on any device.
///
/// # Errors
/// Sizes, algebras and dtypes that the operator does not support; no memory.
pub fn workload(case: &Case, device: &Device) -> Result<Box<dyn Workload>> {
    Ok(match case.op {
        Op::NBody => Box::new(nbody::NBodyStep::new(case, device)?),
        _ => Box::new(operators::build(case, device)?),
    })
}

/// Measures a pass over a case: times, peak memory, and minimum work. The floor is set later, by [`Work::floor_ms`],
/// which needs the ceilings.
///
/// # Errors
/// From the device, including out of memory.
pub fn measure(timer: &Timer, case: &Case, pass: Pass) -> Result<Row> {
    let device = timer.device();
    let workload = workload(case, &Device::Cuda(device.clone()))?;
    let work = Work::of(case, pass)?;
    case.compute.scope(|| {
        let mut prepared = workload.prepare(pass)?;
        let times = timer.times(|| (prepared.run)())?;
        device.reset_peak();
        (prepared.run)()?;
        // A graph has its own memory, in addition to live arrays outside it.
        let peak = device.memory()?.peak;
        let peak_bytes = prepared.graph_bytes.map(|graph| (peak + graph) as u64);
        Ok(Row {
            case: *case,
            pass,
            variant: None,
            ms: times.median(),
            low_ms: times.quantile(0.1),
            high_ms: times.quantile(0.9),
            runs: times.runs(),
            peak_bytes,
            bytes: work.bytes,
            flops: work.flops,
            floor_ms: None,
            vendor_ms: None,
        })
    })
}

/// Adds cuBLASLt's time to a row of a forward matrix product.
///
/// # Errors
/// From the device or the library.
pub fn measure_vendor(timer: &Timer, vendor: &Vendor, row: &mut Row) -> Result<()> {
    if row.case.op == Op::Matmul && row.pass == Pass::Forward {
        let (batch, n) = (row.case.batch, row.case.features);
        row.vendor_ms = Some(vendor.product(timer, (batch, n, n), vendor::element(&row.case))?);
    }
    Ok(())
}
