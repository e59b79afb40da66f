//! The mean squared error on CUDA (csrc/ops/squared_error.cu).

use super::NAME;
use crate::{
    Array, CudaDevice, DType, Result,
    ops::reduce::cuda::{parts, sum_parts},
    runtime::cuda::{Args, Grid, Kernel},
};

/// Fewest elements of a block, where there are several.
const PART: usize = 4096;

/// Of contiguous arrays.
pub(super) fn forward(device: &CudaDevice, a: &Array, b: &Array) -> Result<Array> {
    let (elements, out) = (a.elements(), Array::for_kernel(NAME, [], a.dtype(), device)?);
    let scale = 1.0 / elements as f64;
    let blocks = parts(1, elements, PART);
    let partial =
        (blocks > 1).then(|| Array::for_kernel(NAME, [1, blocks], DType::F64, device)).transpose()?;
    let args =
        Args::new().array(a).array(b).size(elements).double(scale).array(&out).optional(partial.as_ref());
    let kernel = Kernel::new("mean_squared_error_fwd", a.dtype());
    // SAFETY: 1: a and b were checked to be alike, and are contiguous; `out` is a scalar, and each block writes one entry of `partial`,
    // where there are several. 2: both are new. 3: 256 threads, which sum through eight warps.
    unsafe { device.launch(NAME, kernel, Grid::blocks(blocks, Grid::THREADS), args)? };
    if let Some(partial) = &partial {
        sum_parts(device, NAME, partial, &out, scale)?;
    }
    Ok(out)
}

/// Of contiguous arrays.
pub(super) fn backward(device: &CudaDevice, a: &Array, b: &Array, grad: &Array) -> Result<Array> {
    let (elements, out) = (a.elements(), Array::for_kernel(NAME, a.shape(), a.dtype(), device)?);
    if elements > 0 {
        let scale = 1.0 / elements as f64;
        let args = Args::new().array(a).array(b).array(grad).array(&out).size(elements).double(scale);
        // SAFETY: 1: a, b and `out` have one shape and are contiguous; the gradient was checked to be a scalar. 2: `out` is new. 3: linear,
        // a thread for four elements; the kernel strides.
        unsafe {
            device.launch(
                NAME,
                Kernel::new("mean_squared_error_bwd", a.dtype()),
                Grid::linear(elements.div_ceil(4)),
                args,
            )?
        };
    }
    Ok(out)
}
