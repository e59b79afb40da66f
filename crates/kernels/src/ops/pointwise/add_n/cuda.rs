//! Sums of several arrays on CUDA (csrc/ops/add_n.cu).

use super::{ADD_N_AT_ONCE, NAME};
use crate::{
    Array, CudaDevice, Result,
    array::strided::elementwise,
    runtime::cuda::{Kernel, fuse::Function},
};

/// The sum of the first array and the others, fewer than [`ADD_N_AT_ONCE`], into a contiguous array whose storage is not shared; it may be
/// one of them.
///
/// # Safety
/// All arrays have one shape, dtype and device; `out` is contiguous and the caller's to write. It may be `first`.
pub(super) unsafe fn into(device: &CudaDevice, out: &Array, first: &Array, others: &[&Array]) -> Result<()> {
    // SAFETY: as for this function; the kernels take 4 and 8 views.
    unsafe {
        if others.len() < 4 {
            launch::<4>(device, "add_4", out, first, others)
        } else {
            launch::<ADD_N_AT_ONCE>(device, "add_8", out, first, others)
        }
    }
}

/// Unused entries repeat the first array, which the kernel adds only once.
/// # Safety
/// As for [`into`], with a kernel of `N` views.
unsafe fn launch<const N: usize>(
    device: &CudaDevice,
    kernel: &'static str,
    out: &Array,
    first: &Array,
    others: &[&Array],
) -> Result<()> {
    let mut inputs = [first; N];
    inputs[1..=others.len()].copy_from_slice(others);
    let count = 1 + others.len() as i32;
    let describe = || out.described(Function::Sum, &inputs[..=others.len()]);
    // SAFETY: as for this function; views past the number of arrays are those of the first one, and not read.
    unsafe {
        elementwise(
            device,
            NAME,
            Kernel::new(kernel, out.dtype()),
            out,
            inputs,
            |args| args.int(count),
            describe,
        )
    }
}
