//! Sums of several arrays on CUDA (csrc/ops/add_n.cu).

use super::{ADD_N_AT_ONCE, NAME};
use crate::{Array, CudaDevice, Result, array::strided::elementwise, runtime::cuda::Kernel};

/// The sum of the first array and the others, fewer than [`ADD_N_AT_ONCE`], into a contiguous array whose storage is not shared; it may be
/// one of them.
pub(super) fn into(device: &CudaDevice, out: &Array, first: &Array, others: &[&Array]) -> Result<()> {
    if others.len() < 4 {
        launch::<4>(device, "add_4", out, first, others)
    } else {
        launch::<ADD_N_AT_ONCE>(device, "add_8", out, first, others)
    }
}

/// Unused entries repeat the first array, which the kernel adds only once.
fn launch<const N: usize>(
    device: &CudaDevice,
    kernel: &'static str,
    out: &Array,
    first: &Array,
    others: &[&Array],
) -> Result<()> {
    let mut inputs = [first; N];
    inputs[1..=others.len()].copy_from_slice(others);
    let count = 1 + others.len() as i32;
    elementwise(device, NAME, Kernel::new(kernel, out.dtype()), out, inputs, |args| args.int(count))
}
