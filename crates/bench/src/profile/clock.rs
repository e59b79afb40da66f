//! Moments by the clock of what computes.

use crate::{Error, Result};
use gradewise_ffi::Event;
use gradewise_kernels::{CudaDevice, Device};
use std::time::Instant;

/// The clock of a device: CUDA events in its stream, or the host's clock.
#[derive(Clone, Debug)]
pub struct Clock(Option<CudaDevice>);

/// A moment. On a GPU that at which the work queued before is done.
#[derive(Debug)]
pub enum Mark {
    /// By the host's clock.
    Host(Instant),
    /// By a device's.
    Device(Event),
}

impl Clock {
    /// The clock of a device.
    pub fn new(device: &Device) -> Self {
        Self(match device {
            Device::Cpu => None,
            Device::Cuda(cuda) => Some(cuda.clone()),
        })
    }

    /// Whether it is that of a GPU.
    pub fn is_device(&self) -> bool {
        self.0.is_some()
    }

    /// This moment. On a GPU nothing is waited for.
    ///
    /// # Errors
    /// From the driver.
    pub fn mark(&self) -> std::result::Result<Mark, gradewise_kernels::Error> {
        let Some(device) = &self.0 else { return Ok(Mark::Host(Instant::now())) };
        let event = || -> std::result::Result<Event, gradewise_ffi::Error> {
            let event = Event::new(device.context(), true)?;
            event.record(device.stream())?;
            Ok(event)
        };
        event().map(Mark::Device).map_err(|source| gradewise_kernels::Error::Cuda {
            operation: "mark",
            device: device.ordinal(),
            source,
            launches: Default::default(),
        })
    }

    /// Waits for everything queued so far.
    ///
    /// # Errors
    /// Those of the work.
    pub fn wait(&self) -> Result<()> {
        self.0.as_ref().map_or(Ok(()), |device| Ok(device.synchronize()?))
    }
}

impl Mark {
    /// Seconds from `start` to this moment; on a GPU both must have come.
    ///
    /// # Errors
    /// From the driver; marks of two clocks.
    pub fn since(&self, start: &Self) -> Result<f64> {
        match (start, self) {
            (Self::Host(start), Self::Host(end)) => Ok(end.saturating_duration_since(*start).as_secs_f64()),
            (Self::Device(start), Self::Device(end)) => Ok(f64::from(end.milliseconds_since(start)?) * 1e-3),
            _ => Err(Error::Request("the marks are of two clocks".to_owned())),
        }
    }
}
