//! Rotary position embedding on CUDA.

use super::NAME;
use crate::{
    Array, CudaDevice, Result,
    array::strided::divisor,
    runtime::cuda::{Args, Grid, Kernel},
};

/// Of contiguous arguments.
pub(super) fn run(device: &CudaDevice, x: &Array, cos: &Array, sin: &Array, inverse: bool) -> Result<Array> {
    let out = Array::for_kernel(NAME, x.shape(), x.dtype(), device)?;
    let pairs = out.elements() / 2;
    if pairs > 0 {
        let args = Args::new()
            .array(x)
            .array(cos)
            .array(sin)
            .array(&out)
            .size(pairs)
            .value(&divisor(cos.dims()[0]))
            .value(&divisor(cos.dims()[1]))
            .int(i32::from(inverse));
        // SAFETY: 1: the operator's entry compared the tables with the positions and pairs of x; all are contiguous. 2: `out` is new. 3:
        // linear, a thread for a pair; the kernel strides.
        unsafe { device.launch(NAME, Kernel::new("rotary", x.dtype()), Grid::linear(pairs), args)? };
    }
    Ok(out)
}
