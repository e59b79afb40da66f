//! The energy consumption of a run.

use gradewise_ffi::nvml::{Device as Counter, Nvml};
use gradewise_kernels::Device;

/// The energy counter of a GPU, if it has one. It counts everything that runs on the device.
pub struct Energy(Option<(Counter, f64)>);

impl Energy {
    /// Starts counting.
    pub fn start(device: &Device) -> Self {
        let Device::Cuda(cuda) = device else { return Self(None) };
        let counter = || {
            let counter = Nvml::load()?.device_of(cuda.info())?;
            let start = counter.energy()?;
            Ok::<_, gradewise_ffi::Error>((counter, start))
        };
        match counter() {
            Ok(counter) => Self(Some(counter)),
            Err(error) => {
                tracing::debug!("no energy is reported: {error}");
                Self(None)
            }
        }
    }

    /// A counter that measures nothing.
    pub fn uncounted() -> Self {
        Self(None)
    }

    /// Joules since the start; `None` on the CPU, or without a counter.
    pub fn joules(&self) -> Option<f64> {
        let (counter, start) = self.0.as_ref()?;
        Some(counter.energy().ok()? - start)
    }
}
