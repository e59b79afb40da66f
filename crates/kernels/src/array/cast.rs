//! Conversion between dtypes, on CUDA.

use crate::{
    Array, CudaDevice, DType, Result,
    array::strided::elementwise,
    runtime::cuda::{Kernel, fuse::Function},
};

/// The values of a view, rounded to nearest in `dtype`, which is another one.
pub(crate) fn cast(device: &CudaDevice, x: &Array, dtype: DType) -> Result<Array> {
    const NAME: &str = "cast";
    let from = match x.dtype() {
        DType::F16 => "cast_f16",
        DType::BF16 => "cast_bf16",
        DType::F32 => "cast_f32",
        DType::F64 => "cast_f64",
    };
    let out = Array::for_kernel(NAME, x.shape(), dtype, device)?;
    let describe = || out.described(Function::Cast, &[x]);
    // SAFETY: the kernel is that from the dtype of x to that of `out`, which is new and has the shape of x.
    unsafe { elementwise(device, NAME, Kernel::new(from, dtype), &out, [x], |args| args, describe)? };
    Ok(out)
}
