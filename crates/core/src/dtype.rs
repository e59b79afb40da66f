//! Element types of arrays.

use crate::{Error, Result};
use alloc::borrow::ToOwned;
use core::{fmt, str::FromStr};

/// The storage type of an array's elements.
///
/// Accumulation is always `f32` or wider whatever the storage.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum DType {
    /// IEEE 754 binary16.
    F16,
    /// bfloat16: the upper half of a binary32.
    BF16,
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary64.
    F64,
}

impl DType {
    /// Every dtype, widest first.
    pub const ALL: [Self; 4] = [Self::F64, Self::F32, Self::BF16, Self::F16];

    /// Size of one element in bytes.
    pub const fn size(self) -> usize {
        match self {
            Self::F16 | Self::BF16 => 2,
            Self::F32 => 4,
            Self::F64 => 8,
        }
    }

    /// Whether an element has 16 bits.
    pub const fn is_short(self) -> bool {
        self.size() == 2
    }

    /// The dtype of sums and intermediate results: `f32` for 16 bits, else the same.
    pub const fn accumulator(self) -> Self {
        if self.is_short() { Self::F32 } else { self }
    }

    /// The name used on the command line and in files: `f64`, `f32`, `bf16` or `f16`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F16 => "f16",
            Self::BF16 => "bf16",
            Self::F32 => "f32",
            Self::F64 => "f64",
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for DType {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let lower = text.to_ascii_lowercase();
        Self::ALL
            .into_iter()
            .find(|dtype| dtype.name() == lower)
            .ok_or_else(|| Error::InvalidDType { text: text.to_owned() })
    }
}
