//! Arrays as arguments of kernels.

use super::Array;
use crate::runtime::cuda::Args;

impl Args<'_> {
    /// The address of the first element of an array, which the kernel reads or writes. One that it writes must be fresh
    /// (`Array::for_kernel`) or unique (`Array::make_unique`): nothing here copies it before.
    #[inline(always)]
    pub fn array(self, array: &Array) -> Self {
        self.pointer(array.cuda_address())
    }

    /// The address of an array that may be absent: null then.
    #[inline(always)]
    pub fn optional(self, array: Option<&Array>) -> Self {
        self.pointer(array.map_or(0, Array::cuda_address))
    }
}
