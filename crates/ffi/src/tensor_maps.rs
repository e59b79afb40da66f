//! Tensor maps: arrays as the tensor memory accelerator (compute capability 9.0 and later) sees them.

use crate::{Driver, Error, Result, sys::*};
use std::ffi::{c_uint, c_void};

/// A tiled array of up to five dimensions in device memory, of which kernels copy tiles by their coordinates.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TensorMap<'a> {
    /// The type of its elements, one of [`tensor_map`].
    pub dtype: u32,
    /// The address; a multiple of 16.
    pub address: CUdeviceptr,
    /// Elements along each dimension, the innermost (contiguous) first.
    pub sizes: &'a [u64],
    /// Bytes from one element to the next along each dimension but the innermost; multiples of 16.
    pub strides: &'a [u64],
    /// Elements of a tile along each dimension, at most 256.
    pub tile: &'a [u32],
    /// How a tile lies in shared memory, one of [`tensor_map`].
    pub swizzle: u32,
    /// How much the L2 cache fetches at once, one of [`tensor_map`].
    pub promotion: u32,
}

/// Values for [`TensorMap`], `CU_TENSOR_MAP_*`.
pub mod tensor_map {
    /// Bytes.
    pub const UINT8: u32 = 0;
    /// 32-bit integers.
    pub const INT32: u32 = 3;
    /// IEEE half precision.
    pub const FLOAT16: u32 = 6;
    /// Single precision.
    pub const FLOAT32: u32 = 7;
    /// Double precision.
    pub const FLOAT64: u32 = 8;
    /// bfloat16.
    pub const BFLOAT16: u32 = 9;
    /// Single precision, rounded to TF32 by the copy.
    pub const TFLOAT32: u32 = 11;
    /// Rows of a tile follow each other.
    pub const SWIZZLE_NONE: u32 = 0;
    /// 16-byte pieces are permuted within 32 bytes.
    pub const SWIZZLE_32B: u32 = 1;
    /// 16-byte pieces are permuted within 64 bytes.
    pub const SWIZZLE_64B: u32 = 2;
    /// 16-byte pieces are permuted within 128 bytes.
    pub const SWIZZLE_128B: u32 = 3;
    /// Fetches only the requested bytes.
    pub const PROMOTION_NONE: u32 = 0;
    /// Fetches 64 bytes at once.
    pub const PROMOTION_64B: u32 = 1;
    /// Fetches 128 bytes at once.
    pub const PROMOTION_128B: u32 = 2;
    /// Fetches 256 bytes at once.
    pub const PROMOTION_256B: u32 = 3;
}

impl TensorMap<'_> {
    /// The encoded descriptor, which kernels take by value (`const __grid_constant__ CUtensorMap`). Elements outside the array read as
    /// zero.
    ///
    /// # Errors
    /// [`Error::Argument`] if the numbers of dimensions differ; from the driver, if it cannot describe such an array.
    pub fn encode(&self, driver: &Driver) -> Result<CUtensorMap> {
        let rank = self.sizes.len();
        if !(1..=5).contains(&rank) || self.strides.len() + 1 != rank || self.tile.len() != rank {
            return Err(Error::Argument {
                call: "TensorMap::encode",
                problem: format!(
                    "{rank} sizes, {} strides and {} sizes of a tile; 1 to 5 sizes, one stride less and as many sizes of a \
                     tile are needed",
                    self.strides.len(),
                    self.tile.len()
                ),
            });
        }
        let mut map = CUtensorMap([0; 16]);
        let steps = [1 as c_uint; 5];
        // SAFETY: the map is aligned as its type; all arrays have `rank` elements or more, the strides one less; the driver only stores the
        // address.
        unsafe {
            driver.cuTensorMapEncodeTiled(
                &mut map,
                self.dtype,
                rank as c_uint,
                std::ptr::without_provenance_mut::<c_void>(self.address as usize),
                self.sizes.as_ptr(),
                self.strides.as_ptr(),
                self.tile.as_ptr(),
                steps.as_ptr(),
                0,
                self.swizzle,
                self.promotion,
                0,
            )?;
        }
        Ok(map)
    }
}
