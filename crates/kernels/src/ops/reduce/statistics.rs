//! Statistics of an array's values, on CUDA.

use crate::{
    Array, CudaDevice, DType, Result,
    runtime::cuda::{Args, Grid, Kernel},
};

/// Statistics of an array's values. Minimum, maximum and sum are those of the finite values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Statistics {
    pub nan: usize,
    pub infinite: usize,
    /// Finite values beyond the given magnitude.
    pub large: usize,
    pub min: f64,
    pub max: f64,
    pub sum: f64,
}

/// Numbers that a block of [`statistics`] gives, in the order of csrc/ops/statistics.cu.
const COLUMNS: usize = 6;

/// Blocks for an array: each reads at least some thousands of elements.
fn blocks(elements: usize) -> usize {
    elements.div_ceil(8192).clamp(1, 1024)
}

pub(crate) fn statistics(
    device: &CudaDevice,
    operation: &'static str,
    x: &Array,
    large: f64,
) -> Result<Statistics> {
    let partials = partials(device, operation, "statistics", COLUMNS, x, large)?;
    let start =
        Statistics { nan: 0, infinite: 0, large: 0, min: f64::INFINITY, max: f64::NEG_INFINITY, sum: 0.0 };
    let add = |total: Statistics, block: &[f64]| match *block {
        // Counts are integers far below 2⁵³.
        [nan, infinite, large, min, max, sum] => Statistics {
            nan: total.nan + nan as usize,
            infinite: total.infinite + infinite as usize,
            large: total.large + large as usize,
            min: total.min.min(min),
            max: total.max.max(max),
            sum: total.sum + sum,
        },
        _ => total,
    };
    Ok(partials.chunks_exact(COLUMNS).fold(start, add))
}

/// The sum of the squared distances of the finite values from `centre`.
pub(crate) fn squared_deviation(
    device: &CudaDevice,
    operation: &'static str,
    x: &Array,
    centre: f64,
) -> Result<f64> {
    Ok(partials(device, operation, "deviation", 1, x, centre)?.into_iter().sum())
}

fn partials(
    device: &CudaDevice,
    operation: &'static str,
    kernel: &'static str,
    columns: usize,
    x: &Array,
    parameter: f64,
) -> Result<Vec<f64>> {
    let x = x.contiguous()?;
    let blocks = blocks(x.elements());
    let partial = Array::for_kernel(operation, [blocks, columns], DType::F64, device)?;
    let args = Args::new().array(&x).size(x.elements()).double(parameter).array(&partial);
    // SAFETY: 1: x is contiguous, and each block writes a row of `partial`, of as many columns as the kernel has numbers. 2: `partial` is
    // new. 3: blocks of 256 threads, which sum through eight warps.
    unsafe { device.launch(operation, Kernel::new(kernel, x.dtype()), Grid::blocks(blocks, 256), args)? };
    partial.to_vec::<f64>()
}
