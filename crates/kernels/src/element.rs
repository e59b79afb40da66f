//! The Rust types that array elements can have.

use crate::DType;
use bytemuck::Pod;
use num_traits::{Float, NumAssign};
use std::fmt::{Debug, Display};

mod sealed {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for f64 {}
}

/// A floating-point type that an [`Array`](crate::Array) on the CPU can hold: `f32` or `f64`.
pub trait Element:
    sealed::Sealed + Pod + Float + NumAssign + Default + Debug + Display + Send + Sync + 'static
{
    /// The dtype of arrays of this type.
    const DTYPE: DType;

    /// Rounds from double precision.
    fn narrow(value: f64) -> Self;

    /// Widens to double precision.
    fn widen(self) -> f64;
}

impl Element for f32 {
    const DTYPE: DType = DType::F32;

    #[inline(always)]
    fn narrow(value: f64) -> Self {
        value as f32
    }

    #[inline(always)]
    fn widen(self) -> f64 {
        f64::from(self)
    }
}

impl Element for f64 {
    const DTYPE: DType = DType::F64;

    #[inline(always)]
    fn narrow(value: f64) -> Self {
        value
    }

    #[inline(always)]
    fn widen(self) -> f64 {
        self
    }
}

/// Evaluates an expression with `$T` standing for the Rust type of a dtype; returns
/// [`Error::UnsupportedDType`](crate::Error::UnsupportedDType) from the calling function for one the CPU lacks.
macro_rules! with_element {
    ($dtype:expr, $operation:expr, $T:ident => $body:expr) => {
        match $dtype {
            gradewise_core::DType::F32 => {
                type $T = f32;
                $body
            }
            gradewise_core::DType::F64 => {
                type $T = f64;
                $body
            }
            unsupported => return Err($crate::Device::Cpu.unsupported(unsupported, $operation)),
        }
    };
}
pub(crate) use with_element;
