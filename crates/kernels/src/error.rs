//! Errors of arrays, devices and operators.

use crate::{
    Device, Holder, Target, code_remedy,
    runtime::{
        debug,
        external::Place,
        fault,
        memory::{Bytes, Largest},
    },
};
use gradewise_core::{DType, Shape};

/// The result of a fallible operation of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Errors of arrays, devices and operators.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A shape, axis, broadcast or dtype mistake, or a bad signature.
    #[error(transparent)]
    Core(#[from] gradewise_core::Error),
    /// This build has no backend for the device.
    #[error("device {device} is not available: {reason}")]
    NoBackend {
        /// The device asked for.
        device: String,
        /// What is missing, and what to do instead.
        reason: &'static str,
    },
    /// Text that is not a device.
    #[error("`{text}` is not a device; write cpu, cuda or cuda:N with N the device's number")]
    InvalidDevice {
        /// The text as given.
        text: String,
    },
    /// A device of a kind that this project has no kernels for.
    #[error(
        "`{text}`: {target} are not supported: {}. What works: cpu on any machine, and cuda or cuda:N on NVIDIA GPUs of compute \
         capability 7.5 or newer",
        target.reason()
    )]
    UnsupportedTarget {
        /// The text as given.
        text: String,
        /// What it names.
        target: Target,
    },
    /// Operands live on different devices.
    #[error("{operation}: `{argument}` is on {actual}, expected {expected}; move it with to_device")]
    DeviceMismatch {
        /// The operation that refused.
        operation: &'static str,
        /// Name of the argument.
        argument: &'static str,
        /// Where it is.
        actual: Device,
        /// Where it should be.
        expected: Device,
    },
    /// The device's backend does not compute in this dtype.
    #[error(
        "{operation}: dtype {dtype} is not supported on {device}, which supports {supported}; convert with cast"
    )]
    UnsupportedDType {
        /// The operation that refused.
        operation: &'static str,
        /// The dtype asked for.
        dtype: DType,
        /// The device.
        device: Device,
        /// What the device supports.
        supported: &'static str,
    },
    /// A view with gaps or reordered axes where adjacent elements are needed.
    #[error(
        "{operation}: an array of shape {shape} with strides {strides:?} is not contiguous; call contiguous() first"
    )]
    NotContiguous {
        /// The operation that refused.
        operation: &'static str,
        /// Shape of the view.
        shape: Shape,
        /// Its strides in elements.
        strides: Vec<usize>,
    },
    /// An [`Allocator`](crate::runtime::external::Allocator) had no memory, or returned an invalid allocation.
    #[error("{operation}: the allocator in force has no {requested} bytes on {place}: {message}")]
    Allocator {
        /// The operation that asked.
        operation: &'static str,
        /// Where the memory should be.
        place: Place,
        /// Bytes asked for.
        requested: usize,
        /// What the allocator said.
        message: String,
    },
    /// Memory of another library that cannot be an array.
    #[error(
        "borrow: memory at {address:#x} for an array {dtype} {shape} with strides {strides:?} on {place}: {reason}"
    )]
    Borrow {
        /// The address of the first element.
        address: u64,
        /// The dtype of the array.
        dtype: DType,
        /// The shape of the array.
        shape: Shape,
        /// Its strides in elements.
        strides: Vec<usize>,
        /// Where the memory should be.
        place: Place,
        /// What is wrong.
        reason: String,
    },
    /// The number of elements does not fit the shape.
    #[error("{operation}: {actual} elements were given for shape {shape}, which has {}", shape.elements())]
    Length {
        /// The operation that refused.
        operation: &'static str,
        /// The shape.
        shape: Shape,
        /// Number of elements given.
        actual: usize,
    },
    /// A range outside an axis.
    #[error("{operation}: range {start}..{end} is not inside axis {axis} of shape {shape}")]
    Range {
        /// The operation that refused.
        operation: &'static str,
        /// Start of the range.
        start: usize,
        /// End of the range, exclusive.
        end: usize,
        /// The axis.
        axis: usize,
        /// The shape.
        shape: Shape,
    },
    /// Axes that are not a permutation, or occur twice.
    #[error("{operation}: axes {axes:?} {reason} (shape {shape})")]
    Axes {
        /// The operation that refused.
        operation: &'static str,
        /// The axes given.
        axes: Vec<usize>,
        /// What they should be.
        reason: &'static str,
        /// The shape.
        shape: Shape,
    },
    /// An index outside what it indexes.
    #[error("{operation}: index {value} at position {position} is out of range, expected less than {bound}")]
    Index {
        /// The operation that refused.
        operation: &'static str,
        /// Position in the list of indices.
        position: usize,
        /// The index.
        value: usize,
        /// Size of what it indexes.
        bound: usize,
    },
    /// A parameter outside its range.
    #[error("{operation}: `{argument}` is {actual}, expected {expected}")]
    Argument {
        /// The operation that refused.
        operation: &'static str,
        /// Name of the argument.
        argument: &'static str,
        /// The value given.
        actual: String,
        /// What is accepted.
        expected: &'static str,
    },
    /// The system has no memory left for a buffer.
    #[error(
        "{operation}: out of memory: {} requested, {} in use, {} reserved from the system{}; reduce the batch, or accumulate \
         gradients over smaller batches",
        Bytes(*requested), Bytes(*allocated), Bytes(*reserved), Largest(holders)
    )]
    OutOfMemory {
        /// The operation that asked.
        operation: &'static str,
        /// Bytes requested.
        requested: usize,
        /// Bytes in live buffers.
        allocated: usize,
        /// Bytes obtained from the system.
        reserved: usize,
        /// The operations whose results take most.
        holders: Vec<Holder>,
    },
    /// The CUDA driver refused or failed, in this operation or in one queued before it.
    #[error("{operation} on cuda:{device}: {source}{}", fault::advice(source, launches))]
    Cuda {
        /// The operation that saw the error.
        operation: &'static str,
        /// The device's number.
        device: usize,
        /// The driver's answer.
        source: gradewise_ffi::Error,
        /// In debug mode, the last launches of every thread.
        launches: debug::Launches,
    },
    /// No CUDA device has this number.
    #[error(
        "there is no device cuda:{device}; there {}; choose one of them, and see gradewise doctor for what each can do",
        if devices.is_empty() { "is none".to_owned() } else { format!("are {}", devices.join(", ")) }
    )]
    NoSuchDevice {
        /// The number asked for.
        device: usize,
        /// The devices that CUDA shows, with their names.
        devices: Vec<String>,
    },
    /// A CUDA device has no memory left for an array.
    #[error(
        "{operation} on cuda:{device}: out of memory: {} requested, {} of {} free, {} in arrays of this process{}; reduce the \
         batch, or accumulate gradients over smaller batches",
        Bytes(*requested), Bytes(*free), Bytes(*total), Bytes(*allocated), Largest(holders)
    )]
    DeviceOutOfMemory {
        /// The operation that asked.
        operation: &'static str,
        /// The device's number.
        device: usize,
        /// Bytes requested.
        requested: usize,
        /// Bytes free on the device.
        free: usize,
        /// The device's memory.
        total: usize,
        /// Bytes in arrays of this process.
        allocated: usize,
        /// The operations whose results take most.
        holders: Vec<Holder>,
    },
    /// An environment variable with an invalid value.
    #[error("{name} is `{value}`; it can be {expected}")]
    Variable {
        /// The variable.
        name: &'static str,
        /// Its value.
        value: String,
        /// The values it can have.
        expected: String,
    },
    /// An operation needs a feature of this crate that this build lacks.
    #[error("{operation}: this build has no {what}; build gradewise-kernels with its feature `{feature}`")]
    Feature {
        /// The operation that refused.
        operation: &'static str,
        /// What is not there.
        what: &'static str,
        /// The feature that brings it.
        feature: &'static str,
    },
    /// No kernel was compiled for this operation, algebra and dtype.
    #[error("{operation}: there is no kernel `{kernel}` in this build")]
    NoKernel {
        /// The operation.
        operation: &'static str,
        /// The kernel.
        kernel: String,
    },
    /// A kernel of the user's: its signature, its source, or a call.
    #[error("kernel `{kernel}`: {problem}")]
    CustomKernel {
        /// The kernel, or its signature where that cannot be read.
        kernel: String,
        /// What is wrong.
        problem: String,
    },
    /// The embedded kernels do not run on the device.
    #[error(
        "cuda:{device} ({name}) has compute capability {}.{}, but this build has machine code for sm {} and PTX for {}; {}",
        capability.0, capability.1, targets.join(", "), if ptx.is_empty() { "none" } else { ptx }, code_remedy(*capability)
    )]
    UnsupportedDevice {
        /// The device's number.
        device: usize,
        /// The device's name.
        name: String,
        /// Its compute capability: major, minor.
        capability: (u32, u32),
        /// The targets with machine code.
        targets: Vec<&'static str>,
        /// The target of the PTX.
        ptx: &'static str,
    },
    /// The first call of an operator inside a capture of another library.
    #[error(
        "the first call of an operator puts on the device what it needs there, which cannot be captured; call it once, with the same \
         algebra and sizes, before the capture"
    )]
    FirstInCapture,
    /// A capture inside a stream of another library.
    #[error(
        "{operation}: only work in the device's own stream is captured here; capture by the library whose stream is in force"
    )]
    OtherStream {
        /// The operation that refused.
        operation: &'static str,
    },
    /// Something that cannot be part of a captured graph.
    #[error(
        "{operation}: cannot be captured, for a replay would not see what the host has then; do it before or after the \
         captured work, or do not capture (train.capture=false)"
    )]
    InCapture {
        /// The operation that refused.
        operation: &'static str,
    },
    /// The host was asked for the elements of an array that is on a device.
    #[error("{operation}: the array is on {device}; copy it to the host first with to_device or to_vec")]
    NotOnHost {
        /// The operation that refused.
        operation: &'static str,
        /// Where the array is.
        device: Device,
    },
    /// Values that a computation cannot use.
    #[error(
        "{operation}: `{argument}` of shape {shape} holds {nan} NaN and {infinite} infinite values; find out where \
         they come from before computing with them"
    )]
    NotFinite {
        /// The operation that refused.
        operation: &'static str,
        /// Name of the argument.
        argument: &'static str,
        /// The shape.
        shape: Shape,
        /// Number of NaN.
        nan: usize,
        /// Number of ±∞.
        infinite: usize,
    },
}

impl Error {
    /// Whether memory ran out, on the host or on a device.
    pub fn is_out_of_memory(&self) -> bool {
        matches!(self, Self::OutOfMemory { .. } | Self::DeviceOutOfMemory { .. })
    }

    /// Whether operands were refused, for their shapes, dtypes, devices or values: a mistake of the caller, not a failure of the system.
    pub fn is_refusal(&self) -> bool {
        matches!(
            self,
            Self::Core(_)
                | Self::DeviceMismatch { .. }
                | Self::UnsupportedDType { .. }
                | Self::NotContiguous { .. }
                | Self::Length { .. }
                | Self::Range { .. }
                | Self::Axes { .. }
                | Self::Index { .. }
                | Self::Argument { .. }
        )
    }
}
