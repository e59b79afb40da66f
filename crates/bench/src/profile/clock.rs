//! Timestamps of the device or the host.

use crate::{Error, Result};
use gradewise_ffi::Event;
use gradewise_kernels::{CudaDevice, Device};
use std::time::Instant;

/// The clock of a device: CUDA events in its stream, or the host's clock.
#[derive(Clone, Debug)]
pub struct Clock(Option<CudaDevice>);

/// A timestamp. On a GPU, it is the moment when the previously queued work completes.
#[derive(Debug)]
pub enum Mark {
    /// A timestamp of the host's clock.
    Host(Instant),
    /// A CUDA event.
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

    /// Whether this is the clock of a GPU.
    pub fn is_device(&self) -> bool {
        self.0.is_some()
    }

    /// Records a timestamp, without waiting on a GPU.
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

    /// Waits for all queued work.
    ///
    /// # Errors
    /// Those of the work.
    pub fn wait(&self) -> Result<()> {
        self.0.as_ref().map_or(Ok(()), |device| Ok(device.synchronize()?))
    }
}

impl Mark {
    /// Seconds from `start` to this timestamp; on a GPU, both events must have completed.
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
