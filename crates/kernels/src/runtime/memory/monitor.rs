//! The effect of a piece of work on the memory of a device.

use super::Bytes;
use super::Stats;
use crate::{Device, Result};
use std::fmt;

/// Changes between two moments, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delta {
    /// More (or less) in live arrays than before.
    pub allocated: i64,
    /// More (or less) obtained from the system.
    pub reserved: i64,
    /// How far what was allocated rose above where it began, at its highest.
    pub peak: usize,
}

/// Watches the memory of a device for the length of a scope. Scopes nest; what other threads do counts, too.
///
/// ```
/// use gradewise_kernels::{Array, DType, Device, memory::Monitor};
///
/// let monitor = Monitor::start(&Device::Cpu)?;
/// let kept = Array::zeros([1024], DType::F32, &Device::Cpu)?;
/// drop(Array::zeros([1024], DType::F32, &Device::Cpu)?);
/// let delta = monitor.finish()?;
/// assert!(delta.peak >= 8192 && delta.allocated >= 4096);
/// println!("{delta}"); // peak +8.0 KiB, allocated +4.0 KiB, reserved +8.0 KiB
/// # drop(kept);
/// # Ok::<(), gradewise_kernels::Error>(())
/// ```
#[derive(Debug)]
pub struct Monitor {
    device: Device,
    start: Stats,
}

impl Monitor {
    /// Begins to watch.
    ///
    /// # Errors
    /// From the device.
    pub fn start(device: &Device) -> Result<Self> {
        let start = device.memory()?;
        device.reset_peak();
        Ok(Self { device: device.clone(), start })
    }

    /// The changes so far.
    ///
    /// # Errors
    /// From the device.
    pub fn delta(&self) -> Result<Delta> {
        let now = self.device.memory()?;
        Ok(Delta {
            allocated: now.allocated as i64 - self.start.allocated as i64,
            reserved: now.reserved as i64 - self.start.reserved as i64,
            peak: now.peak.saturating_sub(self.start.allocated),
        })
    }

    /// The changes at the end.
    ///
    /// # Errors
    /// From the device.
    pub fn finish(self) -> Result<Delta> {
        self.delta()
    }
}

impl Drop for Monitor {
    /// Restores the enclosing monitor's peak.
    fn drop(&mut self) {
        self.device.raise_peak(self.start.peak);
    }
}

impl fmt::Display for Delta {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let signed = |bytes: i64| {
            format!("{}{}", if bytes < 0 { '-' } else { '+' }, Bytes(bytes.unsigned_abs() as usize))
        };
        let (allocated, reserved) = (signed(self.allocated), signed(self.reserved));
        write!(f, "peak +{}, allocated {allocated}, reserved {reserved}", Bytes(self.peak))
    }
}
