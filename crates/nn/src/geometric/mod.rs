//! Layers of geometric-algebra transformers: tokens of multivectors and scalars, and attention between them (Brehmer et al. 2023,
//! arXiv:2305.18415; Spinner et al. 2024, arXiv:2405.14806).
//!
//! Networks map [`Streams`]: multivectors `[blades, tokens, channels]`, which transform under the group, and scalars `[tokens, channels]`,
//! which do not. Within a network layers hand on [`FeaturePlanes`]. All are equivariant under the group of their [`Space`]: f(u·x) = u·f(x).
//!
//! [`lgatr`], [`gatr`] and [`slim`] are the published networks. L-GATr's runs in any [`Space`] ([`lgatr::LGATr::init_in`]); GATr's has
//! points, which Cl(3,0,1) alone has, and the slim one the vectors of space-time alone.

pub mod gatr;
mod layers;
pub mod lgatr;
pub mod slim;
mod space;
mod tokens;

pub use layers::{
    EquiLayerNorm, EquiLayerNormBuilder, EquiLinear, EquiLinearBuilder, FeaturePlanes, GradeDropout,
    Initialization, Nonlinearity,
};
pub use space::Space;
pub use tokens::TokenBatch;

use crate::{Error, Result};
use gradewise_autograd::Tensor;
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

    const fn times(self, count: usize) -> Self {
        Self { multivectors: count * self.multivectors, scalars: count * self.scalars }
    }

    const fn plus(self, other: Self) -> Self {
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
