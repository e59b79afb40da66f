//! The symmetric traceless product on CUDA.

use super::{Gradients, NAME, Sizes};
use crate::{
    Array, CudaDevice, Result,
    cuda::{Args, Grid, Kernel},
};

pub(super) fn forward(device: &CudaDevice, sizes: Sizes, u: &Array, v: &Array) -> Result<Array> {
    let out = Array::for_kernel(NAME, sizes.components(), u.dtype(), device)?;
    if sizes.plane > 0 {
        let args = Args::new()
            .array(u)
            .array(v)
            .array(&out)
            .size(sizes.positive)
            .size(sizes.dimension)
            .size(sizes.plane);
        let grid = Grid::linear(sizes.plane);
        device.launch(NAME, Kernel::new("traceless_product_fwd", u.dtype()), grid, args)?;
    }
    Ok(out)
}

pub(super) fn backward(
    device: &CudaDevice,
    sizes: Sizes,
    u: &Array,
    v: &Array,
    grad: &Array,
) -> Result<Gradients> {
    let of = |array: &Array| Array::for_kernel(NAME, array.shape(), array.dtype(), device);
    let gradients = Gradients { u: of(u)?, v: of(v)? };
    if sizes.plane > 0 {
        let args = Args::new()
            .array(u)
            .array(v)
            .array(grad)
            .array(&gradients.u)
            .array(&gradients.v)
            .size(sizes.positive)
            .size(sizes.dimension)
            .size(sizes.plane);
        let grid = Grid::linear(sizes.plane);
        device.launch(NAME, Kernel::new("traceless_product_bwd", u.dtype()), grid, args)?;
    }
    Ok(gradients)
}
