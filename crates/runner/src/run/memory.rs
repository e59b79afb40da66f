//! The memory that a run takes.

use crate::error::Result;
use gradewise_kernels::{Device, memory};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Watches the arrays of a device.
#[derive(Debug)]
pub struct Memory(Device);

/// What the arrays of this process take, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Usage {
    /// Of arrays that are alive.
    pub allocated: usize,
    /// Obtained from the system: also what is kept for reuse, and what captured graphs own.
    pub reserved: usize,
    /// The most that was allocated at once.
    pub peak: usize,
}

impl Memory {
    /// Lets the peak start again.
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

    /// What is in use now.
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
