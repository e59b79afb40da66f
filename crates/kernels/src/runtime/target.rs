//! Kinds of devices, including those without kernels, so that a request for one gets a specific error.

use std::fmt;

/// A kind of device.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Target {
    /// The host's processor: every operation, in f64 and f32.
    Cpu,
    /// NVIDIA's GPUs: every operation, in f64, f32, bf16 and f16.
    Cuda,
    /// AMD's GPUs. Not supported.
    Rocm,
    /// Huawei's Ascend processors. Not supported.
    Ascend,
    /// Apple's GPUs. Not supported.
    Metal,
    /// Intel's GPUs. Not supported.
    OneApi,
    /// GPUs by way of Vulkan or WebGPU. Not supported.
    Vulkan,
    /// Google's tensor processors. Not supported.
    Tpu,
}

impl Target {
    /// Every kind.
    pub const ALL: [Self; 8] =
        [Self::Cpu, Self::Cuda, Self::Rocm, Self::Ascend, Self::Metal, Self::OneApi, Self::Vulkan, Self::Tpu];

    /// The kind that a device's name begins with, in lower case: this project's names, and those that other programs use.
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "cpu" => Self::Cpu,
            "cuda" => Self::Cuda,
            "rocm" | "hip" | "amd" => Self::Rocm,
            "ascend" | "npu" | "cann" => Self::Ascend,
            "metal" | "mps" => Self::Metal,
            "oneapi" | "xpu" | "sycl" | "level_zero" => Self::OneApi,
            "vulkan" | "wgpu" | "webgpu" => Self::Vulkan,
            "tpu" | "xla" => Self::Tpu,
            _ => return None,
        })
    }

    /// Whether there are kernels for it.
    pub fn is_supported(self) -> bool {
        matches!(self, Self::Cpu | Self::Cuda)
    }

    /// Why it is not supported; empty for a supported one.
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Self::Cpu | Self::Cuda => "",
            Self::Rocm => {
                "kernels are CUDA C++ with PTX instructions and matrix fragments of 32 threads, which HIP does not translate"
            }
            Self::Ascend => "kernels are CUDA C++, and nothing here generates code for CANN",
            Self::Metal | Self::OneApi | Self::Vulkan | Self::Tpu => {
                "kernels are CUDA C++, and nothing here generates another language"
            }
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Cpu => "processors",
            Self::Cuda => "NVIDIA GPUs (CUDA)",
            Self::Rocm => "AMD GPUs (ROCm, HIP)",
            Self::Ascend => "Ascend processors (CANN)",
            Self::Metal => "Apple GPUs (Metal)",
            Self::OneApi => "Intel GPUs (oneAPI)",
            Self::Vulkan => "GPUs by Vulkan or WebGPU",
            Self::Tpu => "tensor processors (XLA)",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Device, Error};

    #[test]
    fn what_has_no_kernels_says_why_and_what_works() {
        for (text, name) in [
            ("rocm", "AMD"),
            ("hip:0", "AMD"),
            ("AMD", "AMD"),
            ("ascend:1", "Ascend"),
            ("npu:0", "Ascend"),
            ("mps", "Apple"),
            ("xpu", "Intel"),
            ("wgpu", "WebGPU"),
            ("tpu", "XLA"),
        ] {
            let error = text.parse::<Device>().unwrap_err();
            let Error::UnsupportedTarget { target, .. } = error else { panic!("{text}: {error:?}") };
            assert!(!target.is_supported());
            let message = error.to_string();
            for part in [text, name, "not supported: kernels are CUDA C++", "cpu on any machine", "cuda:N"] {
                assert!(message.contains(part), "`{part}` is not in: {message}");
            }
        }
        assert_eq!(Target::ALL.iter().filter(|target| target.is_supported()).count(), 2);
        assert!(Target::ALL.iter().all(|target| target.is_supported() == target.reason().is_empty()));
    }
}
