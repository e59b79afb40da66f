//! The functions of NVML (`nvml.h`), with their own names.

#![allow(non_camel_case_types)]

use crate::{
    Error, Provider, Result,
    table::{table, text_of},
};
use std::ffi::{c_char, c_int, c_uint, c_void};

/// A device.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct nvmlDevice_t(pub *mut c_void);

impl nvmlDevice_t {
    /// The null handle.
    pub const NULL: Self = Self(std::ptr::null_mut());
}

// SAFETY: a handle is an opaque name; NVML may be called with it from any thread.
unsafe impl Send for nvmlDevice_t {}
// SAFETY: as above.
unsafe impl Sync for nvmlDevice_t {}

/// The result code of a call. An integer, not an enum: a library may return codes unknown to this crate.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct nvmlReturn_t(pub c_uint);

impl nvmlReturn_t {
    /// `NVML_SUCCESS`
    pub const SUCCESS: Self = Self(0);
    /// `NVML_ERROR_NOT_SUPPORTED`: the device does not report this.
    pub const ERROR_NOT_SUPPORTED: Self = Self(3);
    /// `NVML_ERROR_NO_PERMISSION`
    pub const ERROR_NO_PERMISSION: Self = Self(4);
    /// `NVML_ERROR_INSUFFICIENT_SIZE`
    pub const ERROR_INSUFFICIENT_SIZE: Self = Self(7);
}

/// Memory of a device in bytes.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct nvmlMemory_t {
    /// Total.
    pub total: u64,
    /// Not in use.
    pub free: u64,
    /// In use by all processes, or reserved by the driver.
    pub used: u64,
}

/// How busy a device was in the last sample period (a sixth of a second to a second).
#[repr(C)]
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct nvmlUtilization_t {
    /// Percent of the time in which a kernel ran.
    pub gpu: c_uint,
    /// Percent of the time in which memory was read or written.
    pub memory: c_uint,
}

/// A process that uses a device.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct nvmlProcessInfo_t {
    /// The process id.
    pub pid: c_uint,
    /// The memory that the process uses in bytes; all bits are set if unknown.
    pub used_gpu_memory: u64,
    /// The GPU instance of a MIG device.
    pub gpu_instance: c_uint,
    /// The compute instance of a MIG device.
    pub compute_instance: c_uint,
}

/// The functions as `unsafe` methods under their own names.
pub struct Calls {
    table: Table,
    provider: Box<dyn Provider>,
}

table! {
    impl Calls, struct Table, code nvmlReturn_t;

    /// Initialises the library; calls are reference-counted.
    fn nvmlInit_v2();
    /// Undoes one `nvmlInit_v2`.
    fn nvmlShutdown();
    /// The driver's version as text.
    fn nvmlSystemGetDriverVersion(text: *mut c_char, length: c_uint);
    /// The library's version as text.
    fn nvmlSystemGetNVMLVersion(text: *mut c_char, length: c_uint);
    /// The newest CUDA version the driver serves, as 1000·major + 10·minor.
    fn nvmlSystemGetCudaDriverVersion_v2(version: *mut c_int);
    /// A process's name.
    fn nvmlSystemGetProcessName(pid: c_uint, text: *mut c_char, length: c_uint);
    /// Number of devices.
    fn nvmlDeviceGetCount_v2(count: *mut c_uint);
    /// A device by its number, which may differ from CUDA's.
    fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, device: *mut nvmlDevice_t);
    /// A device by its place on the PCI bus.
    fn nvmlDeviceGetHandleByPciBusId_v2(bus_id: *const c_char, device: *mut nvmlDevice_t);
    /// A device's name.
    fn nvmlDeviceGetName(device: nvmlDevice_t, text: *mut c_char, length: c_uint);
    /// A device's memory.
    fn nvmlDeviceGetMemoryInfo(device: nvmlDevice_t, memory: *mut nvmlMemory_t);
    /// The utilisation of a device.
    fn nvmlDeviceGetUtilizationRates(device: nvmlDevice_t, utilization: *mut nvmlUtilization_t);
    /// The processes that compute on a device.
    fn nvmlDeviceGetComputeRunningProcesses_v3(
        device: nvmlDevice_t,
        count: *mut c_uint,
        processes: *mut nvmlProcessInfo_t,
    );
    /// Power in milliwatts.
    fn nvmlDeviceGetPowerUsage(device: nvmlDevice_t, milliwatts: *mut c_uint);
    /// Energy since the driver was loaded, in millijoules.
    fn nvmlDeviceGetTotalEnergyConsumption(device: nvmlDevice_t, millijoules: *mut u64);
    /// Temperature in degrees Celsius.
    fn nvmlDeviceGetTemperature(device: nvmlDevice_t, sensor: c_uint, degrees: *mut c_uint);
    /// A clock in MHz.
    fn nvmlDeviceGetClockInfo(device: nvmlDevice_t, clock: c_uint, megahertz: *mut c_uint);
    /// A clock's maximum in MHz.
    fn nvmlDeviceGetMaxClockInfo(device: nvmlDevice_t, clock: c_uint, megahertz: *mut c_uint);
    /// Why the clocks are lower than they could be, as bits.
    fn nvmlDeviceGetCurrentClocksThrottleReasons(device: nvmlDevice_t, reasons: *mut u64);
}

impl Calls {
    pub(crate) const LIBRARY: &str = "NVML, the management library of the NVIDIA driver";
    const MISSING: &str = "it is older than what this function needs; update the NVIDIA driver";

    pub(crate) fn new(provider: Box<dyn Provider>) -> Self {
        Self { table: Table::default(), provider }
    }

    pub(crate) fn check(&self, call: &'static str, code: nvmlReturn_t) -> Result<()> {
        if code == nvmlReturn_t::SUCCESS {
            return Ok(());
        }
        // SAFETY: the function has this type; it answers with constants.
        let text = unsafe { text_of(&*self.provider, c"nvmlErrorString", code) };
        let text = text.unwrap_or_else(|| "unknown error".to_owned());
        Err(Error::Status { library: "NVML", call, code: code.0 as i32, text })
    }

    /// Where the functions come from.
    pub fn provider(&self) -> String {
        self.provider.describe()
    }
}
