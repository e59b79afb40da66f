//! Where arrays live and operators run.

use crate::{DType, Error, Result};
use std::{fmt, str::FromStr};

/// A place for arrays and their operators. Nothing moves between devices by itself.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub enum Device {
    /// The host's processor and memory.
    #[default]
    Cpu,
    /// A CUDA device.
    Cuda(CudaDevice),
}

/// A CUDA device. Uninhabited in a build without a CUDA backend, which keeps every match over devices complete.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum CudaDevice {}

impl Device {
    /// The CUDA device number `ordinal`.
    ///
    /// # Errors
    /// [`Error::NoBackend`] if this build or machine has none. There is never a silent fall back to the CPU.
    pub fn cuda(ordinal: usize) -> Result<Self> {
        Err(Error::NoBackend {
            device: format!("cuda:{ordinal}"),
            reason: "this build has no CUDA backend; choose the device cpu",
        })
    }

    /// Whether operators can compute in `dtype` here.
    pub fn supports(&self, dtype: DType) -> bool {
        match self {
            Self::Cpu => matches!(dtype, DType::F32 | DType::F64),
            Self::Cuda(cuda) => match *cuda {},
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
            Self::Cuda(cuda) => match *cuda {},
        };
        Error::UnsupportedDType { operation, dtype, device: self.clone(), supported }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.pad("cpu"),
            Self::Cuda(cuda) => match *cuda {},
        }
    }
}

impl FromStr for Device {
    type Err = Error;

    /// Reads `cpu`, `cuda` (device 0) or `cuda:N`, in any case.
    fn from_str(text: &str) -> Result<Self> {
        let lower = text.to_ascii_lowercase();
        if lower == "cpu" {
            return Ok(Self::Cpu);
        }
        let ordinal = match lower.strip_prefix("cuda") {
            Some("") => Some(0),
            Some(rest) => rest.strip_prefix(':').and_then(|number| number.parse().ok()),
            None => None,
        };
        Self::cuda(ordinal.ok_or_else(|| Error::InvalidDevice { text: text.to_owned() })?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuda_without_a_backend_is_an_error_that_says_so() {
        for (text, name) in [("cuda", "cuda:0"), ("CUDA:3", "cuda:3")] {
            let error = text.parse::<Device>().unwrap_err();
            assert!(matches!(&error, Error::NoBackend { device, .. } if device == name), "{error}");
        }
    }

    #[test]
    fn text_that_is_no_device_is_named() {
        assert_eq!("CPU".parse::<Device>().unwrap(), Device::Cpu);
        for text in ["", "gpu", "cuda:", "cuda:x", "cuda3", "cuda:-1", "cpu:0"] {
            assert_eq!(text.parse::<Device>().unwrap_err(), Error::InvalidDevice { text: text.to_owned() });
        }
    }

    #[test]
    fn half_precision_is_refused_with_what_is_supported() {
        let error = Device::Cpu.require(DType::BF16, "add").unwrap_err().to_string();
        assert!(error.contains("add") && error.contains("bf16") && error.contains("f32 and f64"), "{error}");
    }
}
