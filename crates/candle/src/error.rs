//! What goes wrong at the border between candle and gradewise.

use candle_core::{DType, DeviceLocation, Shape};
use thiserror::Error;

/// Why an operator was not applied. candle's functions return [`candle_core::Error`], which holds one of these or an error
/// of `gradewise_autograd`, and shows its text.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// An input has a dtype that there are no kernels for.
    #[error(
        "{operation}: input {input} of shape {shape:?} has dtype {dtype:?}, expected f32, f64, bf16 or f16; convert it with Tensor::to_dtype"
    )]
    DType {
        /// The operator.
        operation: &'static str,
        /// Which input, counted from 0.
        input: usize,
        /// Its shape.
        shape: Shape,
        /// Its dtype.
        dtype: DType,
    },
    /// An input is on a device that this build does not serve.
    #[error(
        "{operation}: input {input} is on {device:?}, and this crate computes on {served}; move it with Tensor::to_device"
    )]
    Device {
        /// The operator.
        operation: &'static str,
        /// Which input, counted from 0.
        input: usize,
        /// Where it is.
        device: DeviceLocation,
        /// The devices of this build.
        served: &'static str,
    },
    /// An operator was given no inputs.
    #[error("{operation}: no inputs were given; give as many as the operator takes")]
    NoInputs {
        /// The operator.
        operation: &'static str,
    },
    /// Memory for a result could not be had.
    #[error("no memory for {bytes} bytes of a result")]
    Memory {
        /// How many bytes were asked for.
        bytes: usize,
    },
}

impl From<Error> for candle_core::Error {
    fn from(error: Error) -> Self {
        Self::wrap(error)
    }
}

/// The devices that this build computes on.
pub(crate) const SERVED: &str = if cfg!(feature = "cuda") {
    "the CPU and CUDA devices"
} else {
    "the CPU (a build without the feature `cuda`)"
};

/// What an error says of a tensor.
#[derive(Clone, Copy)]
pub(crate) struct Origin {
    pub operation: &'static str,
    /// Which input; the result and its gradient follow the inputs.
    pub input: usize,
}

impl Origin {
    /// The error for a tensor that is not where this build computes.
    pub fn elsewhere(self, device: DeviceLocation) -> CandleError {
        let Self { operation, input } = self;
        Error::Device { operation, input, device, served: SERVED }.into()
    }
}
