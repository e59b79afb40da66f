//! Failures of the driver as errors of an operation.

use crate::{Error, Fault, runtime::debug};

/// The error of an operation on device number `ordinal`, with the last launches where the device itself failed and they were kept.
pub(super) fn failed(operation: &'static str, ordinal: usize) -> impl Fn(gradewise_ffi::Error) -> Error {
    move |source| {
        let told = debug::is_on() && Fault::of(&source).is_some();
        let launches = if told { debug::Launches::now() } else { debug::Launches::default() };
        Error::Cuda { operation, device: ordinal, source, launches }
    }
}
