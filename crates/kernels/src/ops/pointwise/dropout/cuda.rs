//! Dropout masks on CUDA.

use super::RandomStream;
use crate::{
    Array, CudaDevice, DType, Result,
    runtime::cuda::{Args, Grid, Kernel},
};
use gradewise_core::Shape;

/// 0 where the random bits are below `threshold`, `kept` elsewhere.
pub(super) fn mask(
    device: &CudaDevice,
    operation: &'static str,
    shape: impl Into<Shape>,
    random: RandomStream,
    threshold: u32,
    kept: f64,
    dtype: DType,
) -> Result<Array> {
    let out = Array::for_kernel(operation, shape, dtype, device)?;
    let elements = out.elements();
    if elements == 0 {
        return Ok(out);
    }
    let args = Args::new()
        .array(&out)
        .size(elements)
        .value(&random.seed)
        .value(&random.stream)
        .size(threshold as usize)
        .double(kept);
    // SAFETY: 1 and 2: `out` is new and has as many elements. 3: linear, a thread for four random numbers; the kernel strides.
    unsafe {
        device.launch(
            operation,
            Kernel::new("dropout_mask", dtype),
            Grid::linear(elements.div_ceil(4)),
            args,
        )?
    };
    Ok(out)
}
