//! The Rust types that array elements can have.

use crate::DType;
use bytemuck::Pod;
use num_traits::{Float, NumAssign};
use std::fmt::{Debug, Display};

mod sealed {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for f64 {}
    impl Sealed for half::f16 {}
    impl Sealed for half::bf16 {}
}

/// A floating-point type that an [`Array`](crate::Array) can hold: `f64`, `f32`, or 16 bits wide
/// [`f16`](half::f16) or [`bf16`](half::bf16), in which the CPU stores and converts but does not compute.
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

/// To single precision with the last bit set if the value is not exact: from there, rounding to fewer bits rounds once.
fn to_odd(value: f64) -> f32 {
    let nearest = value as f32;
    if f64::from(nearest) == value || !value.is_finite() {
        return nearest;
    }
    let away = f64::from(nearest).abs() > value.abs();
    let toward_zero = nearest.to_bits() - u32::from(away);
    f32::from_bits(toward_zero | 1)
}

macro_rules! half {
    ($($type:ty, $dtype:expr;)*) => {
        $(
            impl Element for $type {
                const DTYPE: DType = $dtype;

                #[inline(always)]
                fn narrow(value: f64) -> Self {
                    Self::from_f32(to_odd(value))
                }

                #[inline(always)]
                fn widen(self) -> f64 {
                    self.to_f64()
                }
            }
        )*
    };
}

half! {
    half::f16, DType::F16;
    half::bf16, DType::BF16;
}

/// Evaluates an expression with `$T` standing for the Rust type that stores a dtype.
macro_rules! with_storage {
    ($dtype:expr, $T:ident => $body:expr) => {
        match $dtype {
            gradewise_core::DType::F16 => {
                type $T = half::f16;
                $body
            }
            gradewise_core::DType::BF16 => {
                type $T = half::bf16;
                $body
            }
            gradewise_core::DType::F32 => {
                type $T = f32;
                $body
            }
            gradewise_core::DType::F64 => {
                type $T = f64;
                $body
            }
        }
    };
}
pub(crate) use with_storage;

/// Evaluates an expression with `$T` standing for the Rust type of a dtype; returns
/// [`Error::UnsupportedDType`](crate::Error::UnsupportedDType) from the calling function for one the CPU lacks. For operators
/// that move or order numbers; those that compute use [`with_element!`](with_element).
macro_rules! with_element_exact {
    ($dtype:expr, $operation:expr, $T:ident => $body:expr) => {{
        // Accounts memory that is allocated from here on to the operator.
        let _account = $crate::runtime::memory::within_operator($operation);
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
    }};
}
pub(crate) use with_element_exact;

/// As [`with_element_exact!`](with_element_exact), for arithmetic: subnormal numbers count as zero
/// ([`FlushSubnormals`](crate::cpu::simd::FlushSubnormals)).
macro_rules! with_element {
    ($dtype:expr, $operation:expr, $T:ident => $body:expr) => {
        $crate::cpu::element::with_element_exact!($dtype, $operation, $T => {
            let _flush = $crate::cpu::simd::FlushSubnormals::enter();
            $body
        })
    };
}
pub(crate) use with_element;
