//! NVML: utilisation, processes, power and temperature of devices. Part of the NVIDIA driver.

mod calls;

pub use calls::{Calls, nvmlDevice_t, nvmlMemory_t, nvmlProcessInfo_t, nvmlReturn_t, nvmlUtilization_t};

use crate::{DeviceInfo, Dynamic, Error, Provider, Result};
use std::{
    ffi::{CStr, CString, c_char, c_uint},
    fmt,
    sync::Arc,
};

/// The management library, started. Cheap to clone.
#[derive(Clone)]
pub struct Nvml(Arc<Started>);

struct Started(Calls);

impl Drop for Started {
    fn drop(&mut self) {
        // A failure cannot be reported: no handle of the library is left.
        // SAFETY: started in `Nvml::new`, ended once; no device is left, for each holds the library.
        let _ = unsafe { self.0.nvmlShutdown() };
    }
}

impl std::ops::Deref for Nvml {
    type Target = Calls;

    fn deref(&self) -> &Calls {
        &self.0.0
    }
}

impl Nvml {
    /// Names under which the library is looked for.
    pub const PATHS: &[&str] = if cfg!(windows) {
        &["nvml.dll", r"C:\Program Files\NVIDIA Corporation\NVSMI\nvml.dll"]
    } else {
        &["libnvidia-ml.so.1", "libnvidia-ml.so", "/usr/lib/wsl/lib/libnvidia-ml.so.1"]
    };

    /// Opens and starts the library.
    ///
    /// # Errors
    /// [`Error::Library`] with everything tried; otherwise as [`new`](Self::new).
    pub fn load() -> Result<Self> {
        Self::new(Dynamic::open(
            Calls::LIBRARY,
            Self::PATHS,
            "it comes with the NVIDIA driver; install that",
        )?)
    }

    /// A library whose functions come from `provider`, started.
    ///
    /// # Errors
    /// [`Error::Status`] if it does not start.
    pub fn new(provider: impl Provider + 'static) -> Result<Self> {
        let calls = Calls::new(Box::new(provider));
        // SAFETY: no preconditions.
        unsafe { calls.nvmlInit_v2()? };
        Ok(Self(Arc::new(Started(calls))))
    }

    /// The driver's version, such as `580.65.06`.
    ///
    /// # Errors
    /// From the library.
    pub fn driver_version(&self) -> Result<String> {
        // SAFETY: the buffer has the length given.
        text(|buffer, length| unsafe { self.nvmlSystemGetDriverVersion(buffer, length) })
    }

    /// The library's own version.
    ///
    /// # Errors
    /// From the library.
    pub fn version(&self) -> Result<String> {
        // SAFETY: the buffer has the length given.
        text(|buffer, length| unsafe { self.nvmlSystemGetNVMLVersion(buffer, length) })
    }

    /// Number of devices, those hidden from CUDA (`CUDA_VISIBLE_DEVICES`) included.
    ///
    /// # Errors
    /// From the library.
    pub fn device_count(&self) -> Result<usize> {
        let mut count = 0;
        // SAFETY: the pointer is valid for the write.
        unsafe { self.nvmlDeviceGetCount_v2(&mut count)? };
        Ok(count as usize)
    }

    /// A device by its number here, which may differ from CUDA's.
    ///
    /// # Errors
    /// From the library, if there is no such device.
    pub fn device(&self, index: usize) -> Result<Device> {
        let index = c_uint::try_from(index).unwrap_or(c_uint::MAX);
        let mut raw = nvmlDevice_t::NULL;
        // SAFETY: the pointer is valid for the write.
        unsafe { self.nvmlDeviceGetHandleByIndex_v2(index, &mut raw)? };
        Ok(Device { nvml: self.clone(), raw })
    }

    /// The device that CUDA knows as `info`.
    ///
    /// # Errors
    /// From the library.
    pub fn device_of(&self, info: &DeviceInfo) -> Result<Device> {
        let bus_id = CString::new(info.pci_bus_id.as_str()).map_err(|_| Error::Argument {
            call: "Nvml::device_of",
            problem: "a zero byte inside the bus id".to_owned(),
        })?;
        let mut raw = nvmlDevice_t::NULL;
        // SAFETY: the string ends with a zero byte; the pointer is valid for the write.
        unsafe { self.nvmlDeviceGetHandleByPciBusId_v2(bus_id.as_ptr(), &mut raw)? };
        Ok(Device { nvml: self.clone(), raw })
    }

    fn process_name(&self, pid: u32) -> Option<String> {
        // SAFETY: the buffer has the length given.
        text(|buffer, length| unsafe { self.nvmlSystemGetProcessName(pid, buffer, length) }).ok()
    }
}

impl fmt::Debug for Nvml {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Nvml({})", self.provider())
    }
}

/// A device as NVML sees it.
#[derive(Clone, Debug)]
pub struct Device {
    nvml: Nvml,
    raw: nvmlDevice_t,
}

/// A process that computes on a device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Process {
    /// The process id; inside a container, the host's.
    pub pid: u32,
    /// The name of the program, if the library knows it.
    pub name: Option<String>,
    /// The device memory that the process uses in bytes, if the library knows it.
    pub memory: Option<u64>,
}

/// A clock of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Clock {
    /// The clock of the multiprocessors.
    Multiprocessor,
    /// The clock of the memory.
    Memory,
}

impl Clock {
    fn code(self) -> c_uint {
        match self {
            Self::Multiprocessor => 1,
            Self::Memory => 2,
        }
    }
}

/// Each query fails with an [`Error::Status`] of code 3 (not supported) if the device does not report the quantity.
impl Device {
    /// The vendor's name.
    ///
    /// # Errors
    /// From the library.
    pub fn name(&self) -> Result<String> {
        // SAFETY: the buffer has the length given.
        text(|buffer, length| unsafe { self.nvml.nvmlDeviceGetName(self.raw, buffer, length) })
    }

    /// Memory in bytes.
    ///
    /// # Errors
    /// From the library.
    pub fn memory(&self) -> Result<nvmlMemory_t> {
        let mut memory = nvmlMemory_t::default();
        // SAFETY: the pointer is valid for the write.
        unsafe { self.nvml.nvmlDeviceGetMemoryInfo(self.raw, &mut memory)? };
        Ok(memory)
    }

    /// Utilisation in percent.
    ///
    /// # Errors
    /// From the library.
    pub fn utilization(&self) -> Result<nvmlUtilization_t> {
        let mut utilization = nvmlUtilization_t::default();
        // SAFETY: the pointer is valid for the write.
        unsafe { self.nvml.nvmlDeviceGetUtilizationRates(self.raw, &mut utilization)? };
        Ok(utilization)
    }

    /// The processes that compute on the device, this one included.
    ///
    /// # Errors
    /// From the library.
    pub fn processes(&self) -> Result<Vec<Process>> {
        let mut found = vec![nvmlProcessInfo_t::default(); 64];
        let count = loop {
            let mut count = c_uint::try_from(found.len()).unwrap_or(c_uint::MAX);
            // SAFETY: the array has room for `count` elements.
            let result = unsafe {
                self.nvml.nvmlDeviceGetComputeRunningProcesses_v3(self.raw, &mut count, found.as_mut_ptr())
            };
            let short = nvmlReturn_t::ERROR_INSUFFICIENT_SIZE.0 as i32;
            match result {
                Ok(()) => break count as usize,
                // More processes may have started since the size was queried.
                Err(Error::Status { code, .. }) if code == short && found.len() < 1 << 20 => {
                    found.resize(2 * found.len().max(count as usize), nvmlProcessInfo_t::default());
                }
                Err(error) => return Err(error),
            }
        };
        found.truncate(count);
        let process = |info: nvmlProcessInfo_t| Process {
            pid: info.pid,
            name: self.nvml.process_name(info.pid),
            memory: Some(info.used_gpu_memory).filter(|&bytes| bytes != u64::MAX),
        };
        Ok(found.into_iter().map(process).collect())
    }

    /// Power in watts.
    ///
    /// # Errors
    /// From the library.
    pub fn power(&self) -> Result<f64> {
        let mut milliwatts = 0;
        // SAFETY: the pointer is valid for the write.
        unsafe { self.nvml.nvmlDeviceGetPowerUsage(self.raw, &mut milliwatts)? };
        Ok(f64::from(milliwatts) * 1e-3)
    }

    /// Energy in joules since the driver was loaded; the difference of two readings is the energy used between them.
    ///
    /// # Errors
    /// From the library.
    pub fn energy(&self) -> Result<f64> {
        let mut millijoules = 0;
        // SAFETY: the pointer is valid for the write.
        unsafe { self.nvml.nvmlDeviceGetTotalEnergyConsumption(self.raw, &mut millijoules)? };
        Ok(millijoules as f64 * 1e-3)
    }

    /// Temperature in degrees Celsius.
    ///
    /// # Errors
    /// From the library.
    pub fn temperature(&self) -> Result<u32> {
        const CORE: c_uint = 0;
        let mut degrees = 0;
        // SAFETY: the pointer is valid for the write.
        unsafe { self.nvml.nvmlDeviceGetTemperature(self.raw, CORE, &mut degrees)? };
        Ok(degrees)
    }

    /// The current frequency of a clock, in MHz.
    ///
    /// # Errors
    /// From the library.
    pub fn clock(&self, clock: Clock) -> Result<u32> {
        let mut megahertz = 0;
        // SAFETY: the pointer is valid for the write.
        unsafe { self.nvml.nvmlDeviceGetClockInfo(self.raw, clock.code(), &mut megahertz)? };
        Ok(megahertz)
    }

    /// The maximum frequency of a clock, in MHz.
    ///
    /// # Errors
    /// From the library.
    pub fn max_clock(&self, clock: Clock) -> Result<u32> {
        let mut megahertz = 0;
        // SAFETY: the pointer is valid for the write.
        unsafe { self.nvml.nvmlDeviceGetMaxClockInfo(self.raw, clock.code(), &mut megahertz)? };
        Ok(megahertz)
    }

    /// Why the clocks are lower than they could be, as bits (`nvmlClocksThrottleReason*`): 1 idle, 4 the power limit,
    /// 8 and 128 an external power brake or slowdown, 32 and 64 the temperature.
    ///
    /// # Errors
    /// From the library.
    pub fn throttle_reasons(&self) -> Result<u64> {
        let mut reasons = 0;
        // SAFETY: the pointer is valid for the write.
        unsafe { self.nvml.nvmlDeviceGetCurrentClocksThrottleReasons(self.raw, &mut reasons)? };
        Ok(reasons)
    }
}

/// A string that the library writes into a buffer of some length.
fn text(write: impl FnOnce(*mut c_char, c_uint) -> Result<()>) -> Result<String> {
    let mut buffer = [0u8; 256];
    write(buffer.as_mut_ptr().cast::<c_char>(), buffer.len() as c_uint)?;
    Ok(CStr::from_bytes_until_nul(&buffer).unwrap_or_default().to_string_lossy().into_owned())
}
