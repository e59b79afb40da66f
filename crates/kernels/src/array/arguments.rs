//! Arrays as arguments of kernels.

use super::Array;
use crate::runtime::cuda::Args;

impl<'a> Args<'a> {
    /// The address of the first element of an array, which the kernel reads or writes. The arguments keep the borrow: the memory of a
    /// temporary would return to the device, in the order of the stream, ahead of the launch. One that the kernel writes must be fresh
    /// (`Array::for_kernel`) or unique (`Array::make_unique`): nothing here copies it before.
    #[inline(always)]
    pub fn array(self, array: &'a Array) -> Self {
        self.address(array.device_address())
    }

    /// The address of an array that may be absent: null then.
    #[inline(always)]
    pub fn optional(self, array: Option<&'a Array>) -> Self {
        self.address(array.map_or(Some(0), Array::device_address))
    }
}
