//! Elementwise functions of two arrays on CUDA.

use crate::{
    Array, CudaDevice, Result,
    array::strided::elementwise,
    runtime::cuda::{Kernel, fuse::Function},
};

/// The functions, numbered as in csrc/gradewise/functions.cuh.
#[derive(Clone, Copy, Debug)]
#[repr(i32)]
pub(super) enum Name {
    Add,
    Sub,
    Mul,
    Div,
    Max,
    Min,
    Equal,
    NotEqual,
    Greater,
    GreaterEqual,
    Less,
    LessEqual,
}

/// A function of two arrays of one shape.
pub(super) fn run(
    device: &CudaDevice,
    operation: &'static str,
    name: Name,
    a: &Array,
    b: &Array,
) -> Result<Array> {
    let out = Array::for_kernel(operation, a.shape(), a.dtype(), device)?;
    // SAFETY: callers have broadcast both to one shape and compared their dtypes and devices; `out` is new and like them.
    unsafe { into(device, operation, name, &out, [a, b])? };
    Ok(out)
}

/// As [`run`], into a contiguous array whose storage is not shared; it may be one of the arguments.
///
/// # Safety
/// All three arrays have one shape, dtype and device; `out` is contiguous and the caller's to write. It may be one of the arguments.
pub(super) unsafe fn into(
    device: &CudaDevice,
    operation: &'static str,
    name: Name,
    out: &Array,
    arguments: [&Array; 2],
) -> Result<()> {
    let kernel = Kernel::new("binary", out.dtype());
    let describe = || out.described(Function::Binary { name: format!("k{name:?}") }, &arguments);
    // SAFETY: as for this function; the kernel takes two views and the function's number.
    unsafe { elementwise(device, operation, kernel, out, arguments, |args| args.int(name as i32), describe) }
}

#[cfg(test)]
mod tests {
    use super::Name;
    use crate::array::strided::tests::numbers;

    #[test]
    fn host_and_device_number_the_functions_alike() {
        use Name::*;
        let host = [Add, Sub, Mul, Div, Max, Min, Equal, NotEqual, Greater, GreaterEqual, Less, LessEqual];
        let device = numbers("gradewise/functions.cuh", "GW_FOR_BINARY_FUNCTIONS");
        assert_eq!(host.map(|name| format!("{name:?}")).to_vec(), device);
        assert!(host.iter().enumerate().all(|(number, &name)| name as usize == number));
    }
}
