//! Where results are computed.

use candle_core::{Result, Storage};
use gradewise_core::DType;
use gradewise_kernels::Array;

/// A kind of device, with memory of candle's for results.
pub(crate) trait Target {
    /// The memory of one result.
    type Storage: Into<Storage>;

    /// Runs `work`, whose arrays of `dtype` are in candle's memory, so that [`storage`](Self::storage) need not copy them.
    fn run<R>(&self, dtype: DType, work: impl FnOnce() -> R) -> Result<R>;

    /// The elements of a result in row-major order: the memory that they were computed into, or a copy.
    fn storage(&self, array: Array) -> Result<Self::Storage>;
}
