//! The memory usage of a run.

use crate::error::Result;
use gradewise_kernels::{Device, memory};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Monitors the arrays of a device.
#[derive(Debug)]
pub struct Memory(Device);

/// The memory of this process's arrays, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Usage {
    /// Bytes of live arrays.
    pub allocated: usize,
    /// Bytes obtained from the system, including memory kept for reuse and memory of captured graphs.
    pub reserved: usize,
    /// The peak of `allocated`.
    pub peak: usize,
}

impl Memory {
    /// Resets the peak.
    pub fn start(device: &Device) -> Self {
        match device {
            Device::Cpu => memory::reset_peak(),
            Device::Cuda(cuda) => cuda.reset_peak(),
        }
        Self(device.clone())
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.0
    }

    /// The current usage.
    ///
    /// # Errors
    /// From the device.
    pub fn usage(&self) -> Result<Usage> {
        Ok(match &self.0 {
            Device::Cpu => {
                let memory::Stats { allocated, reserved, peak } = memory::stats();
                Usage { allocated, reserved, peak }
            }
            Device::Cuda(cuda) => {
                let report = cuda.memory()?;
                Usage { allocated: report.allocated, reserved: report.reserved, peak: report.peak }
            }
        })
    }
}

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |bytes: usize| bytes as f64 / (1 << 20) as f64;
        let Self { allocated, reserved, peak } = *self;
        write!(
            f,
            "peak {:.1} MiB, allocated {:.1} MiB, reserved {:.1} MiB",
            mib(peak),
            mib(allocated),
            mib(reserved)
        )
    }
}
