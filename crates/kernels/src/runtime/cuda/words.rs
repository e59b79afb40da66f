//! Constant tables on the device.

use super::{Buffer, CudaDevice, Key};
use crate::Result;
use std::sync::Arc;

/// 32-bit words on a device.
pub(crate) struct Words {
    buffer: Buffer,
    values: Box<[u32]>,
}

impl Words {
    /// Copies `values` to the device.
    pub fn new(device: &CudaDevice, operation: &'static str, values: &[u32]) -> Result<Self> {
        let buffer = Buffer::new(device, size_of_val(values), operation)?;
        buffer.write(0, bytemuck::cast_slice(values), operation)?;
        Ok(Self { buffer, values: values.into() })
    }

    /// The same words every time, kept as long as the device: a capture holds no copies from the host.
    pub fn kept(device: &CudaDevice, operation: &'static str, values: &[u32]) -> Result<Arc<Self>> {
        let key =
            Key::Numbers { bytes: bytemuck::cast_slice(values), dtype: None, shape: [values.len()].into() };
        device.constant(key, || Self::new(device, operation, values))
    }

    /// Where they are.
    pub fn address(&self) -> u64 {
        self.buffer.pointer()
    }

    /// The words, as the host knows them.
    pub fn values(&self) -> &[u32] {
        &self.values
    }
}
