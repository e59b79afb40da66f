//! What a training step takes its input from.

use crate::Result;
use gradewise_kernels::Device;

/// The input of a step that is taken on a device, captured or not.
pub trait Batch: Sized {
    /// The same values on `device`.
    ///
    /// # Errors
    /// A dtype the device does not serve, or no memory.
    fn to_device(&self, device: &Device) -> Result<Self>;

    /// Puts the values of `source`, which may be on the host, in place of this batch's own, so that captured work which
    /// reads this batch sees them. `false`, and nothing changed, if their shapes or structure differ.
    ///
    /// # Errors
    /// From the device.
    fn overwrite(&self, source: &Self) -> Result<bool>;
}
