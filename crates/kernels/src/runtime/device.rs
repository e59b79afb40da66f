//! Where arrays live and operators run.

use crate::{
    CudaDevice, DType, Error, Holder, Result, Target,
    runtime::memory::{self, Stats},
};
use std::{fmt, str::FromStr};

/// A place for arrays and their operators. Nothing moves between devices implicitly.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub enum Device {
    /// The host's processor and memory.
    #[default]
    Cpu,
    /// A CUDA device.
    Cuda(CudaDevice),
}

impl Device {
    /// The CUDA device number `ordinal`.
    ///
    /// # Errors
    /// [`Error::NoBackend`] if this build has no kernels for it, [`Error::Cuda`] if this machine has no driver or no such
    /// device. There is never a silent fall back to the CPU.
    pub fn cuda(ordinal: usize) -> Result<Self> {
        CudaDevice::new(ordinal).map(Self::Cuda)
    }

    /// Waits until everything queued so far is done, and reports what went wrong meanwhile.
    ///
    /// # Errors
    /// [`Error::Cuda`].
    pub fn synchronize(&self) -> Result<()> {
        match self {
            Self::Cpu => Ok(()),
            Self::Cuda(cuda) => cuda.synchronize(),
        }
    }

    /// The memory use of this process's arrays on the device.
    ///
    /// # Errors
    /// [`Error::Cuda`].
    pub fn memory(&self) -> Result<Stats> {
        match self {
            Self::Cpu => Ok(memory::stats()),
            Self::Cuda(cuda) => cuda.stats(),
        }
    }

    /// The holders of allocated memory, largest first.
    pub fn memory_holders(&self) -> Vec<Holder> {
        match self {
            Self::Cpu => memory::holders(),
            Self::Cuda(cuda) => cuda.holders(),
        }
    }

    /// Resets [`Stats::peak`] to the current allocation.
    pub fn reset_peak(&self) {
        match self {
            Self::Cpu => memory::reset_peak(),
            Self::Cuda(cuda) => cuda.reset_peak(),
        }
    }

    pub(crate) fn raise_peak(&self, bytes: usize) {
        match self {
            Self::Cpu => memory::raise_peak(bytes),
            Self::Cuda(cuda) => cuda.raise_peak(bytes),
        }
    }

    /// The same device for work that runs concurrently with this one's: see [`CudaDevice::beside`]. For the CPU, the CPU.
    ///
    /// # Errors
    /// As [`CudaDevice::beside`].
    pub fn beside(&self) -> Result<Self> {
        Ok(match self {
            Self::Cpu => Self::Cpu,
            Self::Cuda(cuda) => Self::Cuda(cuda.beside()?),
        })
    }

    /// Limits the memory of arrays to `bytes` in total: beyond that, allocations fail as out of memory. 0 for no limit.
    pub fn limit_memory(&self, bytes: usize) {
        match self {
            Self::Cpu => memory::set_limit(bytes),
            Self::Cuda(cuda) => cuda.set_limit(bytes),
        }
    }

    /// Returns to the system the memory that is kept for reuse, and returns its size in bytes.
    ///
    /// # Errors
    /// As [`CudaDevice::trim`].
    pub fn trim_memory(&self) -> Result<usize> {
        match self {
            Self::Cpu => Ok(memory::trim()),
            Self::Cuda(cuda) => cuda.trim(),
        }
    }

    /// Whether operators can compute in `dtype` here.
    pub fn supports(&self, dtype: DType) -> bool {
        match self {
            Self::Cpu => matches!(dtype, DType::F32 | DType::F64),
            Self::Cuda(_) => true,
        }
    }

    /// Refuses a dtype that this device does not compute in, on behalf of `operation`.
    ///
    /// # Errors
    /// [`Error::UnsupportedDType`].
    pub fn require(&self, dtype: DType, operation: &'static str) -> Result<()> {
        if self.supports(dtype) { Ok(()) } else { Err(self.unsupported(dtype, operation)) }
    }

    pub(crate) fn unsupported(&self, dtype: DType, operation: &'static str) -> Error {
        let supported = match self {
            Self::Cpu => "f32 and f64",
            Self::Cuda(_) => "f64, f32, bf16 and f16",
        };
        Error::UnsupportedDType { operation, dtype, device: self.clone(), supported }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.pad("cpu"),
            Self::Cuda(cuda) => f.pad(&format!("cuda:{}", cuda.ordinal())),
        }
    }
}

/// A device by its name, as settings state it; the machine need not have the device.
///
/// ```
/// use gradewise_kernels::{Device, DeviceName};
///
/// assert_eq!("CUDA:1".parse(), Ok(DeviceName::Cuda(Some(1))));
/// assert_eq!(DeviceName::Cuda(None).to_string(), "cuda");
/// assert_eq!("cpu".parse::<DeviceName>()?.open()?, Device::Cpu);
/// # Ok::<(), gradewise_kernels::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum DeviceName {
    /// `cpu`
    #[default]
    Cpu,
    /// `cuda:N`; `cuda` is device 0 unless the caller chooses another, such as one of several processes.
    Cuda(Option<usize>),
}

impl DeviceName {
    /// The device.
    ///
    /// # Errors
    /// Those of [`Device::cuda`].
    pub fn open(self) -> Result<Device> {
        match self {
            Self::Cpu => Ok(Device::Cpu),
            Self::Cuda(ordinal) => Device::cuda(ordinal.unwrap_or(0)),
        }
    }

    /// The number of the GPU that it names, if it names one.
    #[must_use]
    pub fn ordinal(self) -> Option<usize> {
        match self {
            Self::Cpu => None,
            Self::Cuda(ordinal) => Some(ordinal.unwrap_or(0)),
        }
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.pad("cpu"),
            Self::Cuda(None) => f.pad("cuda"),
            Self::Cuda(Some(ordinal)) => f.pad(&format!("cuda:{ordinal}")),
        }
    }
}

impl FromStr for DeviceName {
    type Err = Error;

    /// Reads `cpu`, `cuda` or `cuda:N`, in any case.
    ///
    /// # Errors
    /// [`Error::UnsupportedTarget`] for a device of a kind that has no kernels here, such as `rocm:1`; [`Error::InvalidDevice`] for
    /// text that names no device.
    fn from_str(text: &str) -> Result<Self> {
        let invalid = || Error::InvalidDevice { text: text.to_owned() };
        let lower = text.trim().to_ascii_lowercase();
        let (name, number) = match lower.split_once(':') {
            Some((name, number)) => (name, Some(number)),
            None => (lower.as_str(), None),
        };
        let target = Target::named(name).ok_or_else(invalid)?;
        match (target, number) {
            (Target::Cpu, None) => Ok(Self::Cpu),
            (Target::Cpu, Some(_)) => Err(invalid()),
            (Target::Cuda, None) => Ok(Self::Cuda(None)),
            (Target::Cuda, Some(number)) => match number.parse() {
                Ok(ordinal) => Ok(Self::Cuda(Some(ordinal))),
                Err(_) => Err(invalid()),
            },
            (target, _) => Err(Error::UnsupportedTarget { text: text.to_owned(), target }),
        }
    }
}

impl FromStr for Device {
    type Err = Error;

    /// Reads `cpu`, `cuda` (device 0) or `cuda:N`, in any case.
    ///
    /// # Errors
    /// As [`DeviceName`] is read; those of [`Device::cuda`].
    fn from_str(text: &str) -> Result<Self> {
        text.parse::<DeviceName>()?.open()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuda_without_kernels_or_device_is_an_error_that_says_so() {
        for (text, name) in [("cuda:977", "cuda:977"), ("CUDA:978", "cuda:978")] {
            let error = text.parse::<Device>().unwrap_err();
            assert!(
                matches!(&error, Error::NoBackend { .. } | Error::Cuda { .. } | Error::NoSuchDevice { .. }),
                "{error:?}"
            );
            assert!(error.to_string().contains(name), "{error}");
        }
    }

    #[test]
    fn text_that_is_no_device_is_named() {
        assert_eq!("CPU".parse::<Device>().unwrap(), Device::Cpu);
        for text in ["rocm:1", "HIP", "npu:0", "mps"] {
            let error = text.parse::<Device>().unwrap_err();
            assert!(matches!(&error, Error::UnsupportedTarget { .. }), "{error:?}");
        }
        for text in ["", "gpu", "cuda:", "cuda:x", "cuda3", "cuda:-1", "cpu:0"] {
            assert_eq!(text.parse::<Device>().unwrap_err(), Error::InvalidDevice { text: text.to_owned() });
        }
        for name in [DeviceName::Cpu, DeviceName::Cuda(None), DeviceName::Cuda(Some(7))] {
            assert_eq!(name.to_string().parse(), Ok(name));
        }
    }

    #[test]
    fn half_precision_is_refused_with_what_is_supported() {
        let error = Device::Cpu.require(DType::BF16, "add").unwrap_err().to_string();
        assert!(error.contains("add") && error.contains("bf16") && error.contains("f32 and f64"), "{error}");
    }
}
