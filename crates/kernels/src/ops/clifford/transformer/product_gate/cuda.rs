//! Gates by products on CUDA.

use super::{NAME, Options, Sizes};
use crate::{
    Array, CudaDevice, Result,
    csrc::feature_planes::MOST_PLANES,
    ops::clifford::transformer::Order,
    runtime::cuda::{Args, Grid, Kernel},
};

/// `GateSizes` of csrc/clifford/transformer/product_gate.cu.
#[repr(C)]
#[derive(Clone, Copy, bytemuck::NoUninit)]
struct GateSizes {
    rows: i64,
    channels: i64,
    scalars: i64,
    planes: i32,
    gate: i32,
    scalar_gate: i32,
    unused: i32,
    factor: [i8; MOST_PLANES],
}

fn gate_sizes(order: &Order, (sizes, options): (Sizes, Options)) -> GateSizes {
    let mut factor = [0; MOST_PLANES];
    factor[..order.factors().len()].copy_from_slice(order.factors());
    let [rows, channels, scalars] = [sizes.rows, sizes.channels, sizes.scalars].map(|size| size as i64);
    GateSizes {
        rows,
        channels,
        scalars,
        planes: sizes.planes as i32,
        gate: options.gate as i32,
        scalar_gate: options.scalar_gate as i32,
        unused: 0,
        factor,
    }
}

/// Threads of a block.
const THREADS: usize = 256;

/// Rows along the blocks, channels and scalars across.
fn grid(sizes: Sizes) -> Grid {
    let across = (sizes.scalars + sizes.channels).min(u16::MAX.into());
    Grid::new([sizes.rows.div_ceil(THREADS).clamp(1, 1 << 20), across, 1], [THREADS as u32, 1, 1])
}

pub(super) fn forward(device: &CudaDevice, order: &Order, how: (Sizes, Options), x: &Array) -> Result<Array> {
    let out = Array::for_kernel(NAME, how.0.shape_out(), x.dtype(), device)?;
    if out.elements() > 0 {
        let args = Args::new().value(&gate_sizes(order, how)).array(x).array(&out);
        // SAFETY: 1: the operator's entry compared x, which is contiguous, with the sizes. 2: `out` is new. 3: any grid; the kernel strides
        // over rows and channels. 4: there are no addresses but those of arrays.
        unsafe { device.launch(NAME, Kernel::new("product_gate_fwd", x.dtype()), grid(how.0), args)? };
    }
    Ok(out)
}

pub(super) fn backward(
    device: &CudaDevice,
    order: &Order,
    how: (Sizes, Options),
    x: &Array,
    grad: &Array,
) -> Result<Array> {
    let out = Array::for_kernel(NAME, x.shape(), x.dtype(), device)?;
    if out.elements() > 0 {
        let args = Args::new().value(&gate_sizes(order, how)).array(x).array(grad).array(&out);
        // SAFETY: as in the forward pass, with a gradient of the shape of its result.
        unsafe { device.launch(NAME, Kernel::new("product_gate_bwd", x.dtype()), grid(how.0), args)? };
    }
    Ok(out)
}
