//! Errors as Python exceptions: the classes of `gradewise._errors`, with the texts that they have here.

use gradewise_autograd::Error;
use gradewise_kernels::Error as Kernel;
use pyo3::{prelude::*, types::PyType};

/// The class that stands for a kind of error.
#[derive(Clone, Copy)]
pub enum Class {
    Argument,
    Shape,
    DType,
    Device,
    Memory,
    NotDifferentiable,
    Other,
}

impl Class {
    fn name(self) -> &'static str {
        match self {
            Self::Argument => "ArgumentError",
            Self::Shape => "ShapeError",
            Self::DType => "DTypeError",
            Self::Device => "DeviceError",
            Self::Memory => "OutOfMemoryError",
            Self::NotDifferentiable => "NotDifferentiableError",
            Self::Other => "GradewiseError",
        }
    }

    fn of_kernel(error: &Kernel) -> Self {
        use gradewise_core::Error as Core;
        match error {
            Kernel::Core(Core::Shape { .. } | Core::Broadcast { .. } | Core::Axis { .. })
            | Kernel::NotContiguous { .. }
            | Kernel::Length { .. }
            | Kernel::Range { .. }
            | Kernel::Axes { .. } => Self::Shape,
            Kernel::Core(Core::DType { .. } | Core::InvalidDType { .. })
            | Kernel::UnsupportedDType { .. } => Self::DType,
            Kernel::Core(_) | Kernel::Index { .. } | Kernel::Argument { .. } | Kernel::Borrow { .. } => {
                Self::Argument
            }
            Kernel::OutOfMemory { .. } | Kernel::DeviceOutOfMemory { .. } | Kernel::Allocator { .. } => {
                Self::Memory
            }
            _ => Self::Device,
        }
    }

    /// The class of an error of an operator.
    pub fn of(error: &Error) -> Self {
        match error {
            Error::Kernel(error) => Self::of_kernel(error),
            Error::Backward { source, .. } => Self::of(source),
            Error::GradientShape { .. } | Error::GivenGradient { .. } | Error::NotScalar { .. } => {
                Self::Shape
            }
            Error::GradientPlace { .. } => Self::Device,
            Error::NotTwiceDifferentiable { .. } => Self::NotDifferentiable,
            Error::GradientCount { .. } | Error::Argument { .. } => Self::Argument,
            _ => Self::Other,
        }
    }

    /// An exception of the class.
    pub fn exception(self, py: Python<'_>, message: &str) -> PyErr {
        let class = py
            .import("gradewise._errors")
            .and_then(|module| module.getattr(self.name()))
            .and_then(|class| Ok(class.cast_into::<PyType>()?));
        match class {
            Ok(class) => PyErr::from_type(class, (message.to_owned(),)),
            Err(error) => error,
        }
    }
}

/// An error of an operator as an exception.
pub fn raised(py: Python<'_>, error: impl Into<Error>) -> PyErr {
    let error = error.into();
    Class::of(&error).exception(py, &error.to_string())
}
