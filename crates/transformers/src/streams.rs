//! Tokens of multivectors and scalars.

use gradewise_autograd::Tensor;
use gradewise_nn::{Error, Result};
use std::fmt;

/// The features of a geometric network: tokens of multivectors and of scalars.
#[derive(Clone, Debug)]
pub struct Streams {
    /// `[blades, tokens, channels]`
    pub multivectors: Tensor,
    /// `[tokens, channels]`
    pub scalars: Tensor,
}

/// Channels of multivectors and of scalars.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Channels {
    /// Multivector channels.
    pub multivectors: usize,
    /// Scalar channels.
    pub scalars: usize,
}

impl Channels {
    /// The numbers of channels.
    pub const fn new(multivectors: usize, scalars: usize) -> Self {
        Self { multivectors, scalars }
    }

    pub(crate) const fn times(self, count: usize) -> Self {
        Self { multivectors: count * self.multivectors, scalars: count * self.scalars }
    }

    pub(crate) const fn plus(self, other: Self) -> Self {
        Self { multivectors: self.multivectors + other.multivectors, scalars: self.scalars + other.scalars }
    }
}

impl fmt::Display for Channels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} multivectors and {} scalars", self.multivectors, self.scalars)
    }
}

impl Streams {
    /// Streams with the same number of tokens.
    ///
    /// # Errors
    /// Multivectors that are not `[blades, tokens, channels]`, scalars that are not `[tokens, channels]`.
    pub fn new(multivectors: Tensor, scalars: Tensor) -> Result<Self> {
        let tokens = multivectors.shape().get(1).copied().unwrap_or(0);
        if multivectors.shape().rank() != 3 || scalars.shape().rank() != 2 || scalars.shape()[0] != tokens {
            return Err(Error::Argument {
                operation: "Streams",
                argument: "scalars",
                actual: format!("{} beside multivectors {}", scalars.shape(), multivectors.shape()),
                expected: "[tokens, channels] beside [blades, tokens, channels]".to_owned(),
            });
        }
        Ok(Self { multivectors, scalars })
    }

    /// Number of tokens.
    pub fn tokens(&self) -> usize {
        self.multivectors.shape()[1]
    }
}
