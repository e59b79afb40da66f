//! One value everywhere, on CUDA.

use crate::{
    Array, CudaDevice, DType, Element, Result,
    cpu::element::with_storage,
    runtime::cuda::{Args, Grid, Kernel, fuse::Function},
};
use gradewise_core::Shape;

/// An array with one value everywhere.
pub(crate) fn full(
    device: &CudaDevice,
    operation: &'static str,
    shape: impl Into<Shape>,
    value: f64,
    dtype: DType,
) -> Result<Array> {
    let out = Array::for_kernel(operation, shape, dtype, device)?;
    let elements = out.elements();
    if elements == 0 {
        return Ok(out);
    }
    let bits = bits(value, dtype);
    let args = Args::new().array(&out).size(elements).pointer(bits);
    let describe = || out.described(Function::Constant { bits }, &[]);
    let kernel = Kernel::of_words(["fill_w2", "fill_w4", "fill_w8", ""], dtype.size());
    // 16 bytes are stored at once.
    let stores = (elements * dtype.size()).div_ceil(16);
    // SAFETY: 1 and 2: `out` is new and has as many elements of as many bytes. 3: a linear grid, whose threads stride over all stores of 16
    // bytes.
    unsafe { device.launch_value(operation, kernel, Grid::linear(stores), args, describe)? };
    Ok(out)
}

/// The bits of a value in `dtype`, repeated to 64 bits.
fn bits(value: f64, dtype: DType) -> u64 {
    let mut word = [0u8; 8];
    with_storage!(dtype, T => {
        for part in word.chunks_exact_mut(size_of::<T>()) {
            part.copy_from_slice(bytemuck::bytes_of(&T::narrow(value)));
        }
    });
    u64::from_ne_bytes(word)
}

#[cfg(test)]
mod tests {
    use super::bits;
    use crate::DType;

    #[test]
    fn values_are_repeated_to_64_bits() {
        assert_eq!(bits(1.0, DType::F64), 0x3ff0_0000_0000_0000);
        assert_eq!(bits(1.0, DType::F32), 0x3f80_0000_3f80_0000);
        assert_eq!(bits(1.0, DType::BF16), 0x3f80_3f80_3f80_3f80);
        assert_eq!(bits(1.0, DType::F16), 0x3c00_3c00_3c00_3c00);
    }
}
