//! Layers of geometric-algebra transformers: tokens of multivectors and scalars, and attention between them (Brehmer et al. 2023,
//! arXiv:2305.18415; Spinner et al. 2024, arXiv:2405.14806).
//!
//! All layers map [`Streams`]: multivectors `[blades, tokens, channels]`, which transform under the group, and scalars `[tokens,
//! channels]`, which do not. They are equivariant under the group of their [`Space`]: f(u·x) = u·f(x).

mod attention;
mod bilinear;
mod block;
pub mod gatr;
pub mod layers;
pub mod lgatr;
mod linear;
mod norm;
pub mod slim;
mod space;
mod tokens;
mod transformer;

pub use attention::{AttentionSize, GeometricAttention};
pub use bilinear::GeometricBilinear;
pub use block::{BlockConfig, GeometricBlock};
pub use linear::EquiLinear;
pub use norm::{GradeDropout, InvariantLayerNorm, scalar_gate};
pub use space::Space;
pub use tokens::TokenBatch;
pub use transformer::{GeometricTransformer, TransformerConfig};

use crate::{Error, Result};
use gradewise_autograd::{Tensor, concat};
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

    /// The sum of both streams.
    ///
    /// # Errors
    /// Channels that differ.
    pub fn add(&self, other: &Self) -> Result<Self> {
        Ok(Self {
            multivectors: self.multivectors.add(&other.multivectors)?,
            scalars: self.scalars.add(&other.scalars)?,
        })
    }

    /// Adds `more` `[tokens, channels]` to the scalar parts of multivectors.
    fn raise(multivectors: &Tensor, more: &Tensor) -> Result<Tensor> {
        let (blades, shape) = (multivectors.shape()[0], more.shape());
        let raised = multivectors.slice(0, 0..1)?.add(&more.reshape([1, shape[0], shape[1]])?)?;
        Ok(concat(&[&raised, &multivectors.slice(0, 1..blades)?], 0)?)
    }

    /// The scalar parts of the multivectors, `[tokens, channels]`.
    fn lowered(&self) -> Result<Tensor> {
        let &[_, tokens, channels] = self.multivectors.shape().dims() else {
            return Ok(self.scalars.clone());
        };
        Ok(self.multivectors.slice(0, 0..1)?.reshape([tokens, channels])?)
    }
}
