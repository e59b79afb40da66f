//! L-GATr-slim, the Lorentz-equivariant transformer of vectors and scalars (Petitjean et al. 2025, arXiv:2512.17011), with the functions, the
//! names and the shapes of parameters, and the options of the published package `lgatr` 2.0. Settings are written and read as the arguments
//! of its constructor.

mod attention;
mod conditional;
mod linear;
mod mlp;
mod network;
mod norm;

pub use attention::SlimSelfAttention;
pub use conditional::{
    ConditionalLGATrSlim, ConditionalLGATrSlimConfig, ConditionalSlimBlock, SlimCrossAttention,
};
pub use linear::SlimLinear;
pub use mlp::{SlimGlu, SlimMlp};
pub use network::{LGATrSlim, LGATrSlimConfig, SlimBlock};
pub use norm::{SlimDropout, SlimRmsNorm};

use gradewise_autograd::Tensor;
use gradewise_kernels::Array;
use gradewise_nn::{Error, Result};

/// Tokens of vectors of space-time and of scalars.
#[derive(Clone, Debug)]
pub struct VectorStreams {
    /// `[4, tokens, channels]`: t, x, y, z.
    pub vectors: Tensor,
    /// `[tokens, channels]`
    pub scalars: Tensor,
}

/// Channels of vectors and of scalars.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VectorChannels {
    /// Vectors.
    pub vectors: usize,
    /// Scalars.
    pub scalars: usize,
}

impl VectorChannels {
    /// The numbers of channels.
    pub const fn new(vectors: usize, scalars: usize) -> Self {
        Self { vectors, scalars }
    }
}

impl VectorStreams {
    /// Streams with the same number of tokens.
    ///
    /// # Errors
    /// Vectors that are not `[4, tokens, channels]`, scalars that are not `[tokens, channels]` with one channel or more.
    pub fn new(vectors: Tensor, scalars: Tensor) -> Result<Self> {
        let (v, s) = (vectors.shape().dims(), scalars.shape().dims());
        if matches!((v, s), (&[4, tokens, _], &[others, channels]) if tokens == others && channels > 0) {
            return Ok(Self { vectors, scalars });
        }
        Err(Error::Argument {
            operation: "VectorStreams",
            argument: "vectors, scalars",
            actual: format!("{} and {}", vectors.shape(), scalars.shape()),
            expected: "[4, tokens, channels] and [tokens, channels], with one scalar or more".to_owned(),
        })
    }

    /// Number of tokens.
    pub fn tokens(&self) -> usize {
        self.scalars.shape()[0]
    }

    fn channels(&self) -> VectorChannels {
        VectorChannels::new(self.vectors.shape()[2], self.scalars.shape()[1])
    }

    fn add(&self, other: &Self) -> Result<Self> {
        Ok(Self { vectors: self.vectors.add(&other.vectors)?, scalars: self.scalars.add(&other.scalars)? })
    }
}

/// The signs of t², x², y², z², to broadcast against `rank` axes of which the first are the components.
fn metric(like: &Tensor, rank: usize) -> Result<Tensor> {
    let mut shape = vec![1; rank];
    shape[0] = 4;
    let signs = [1.0, -1.0, -1.0, -1.0];
    Ok(Tensor::new(Array::constant(&signs, shape.as_slice(), like.dtype(), &like.device())?))
}

/// t·t′ − x·x′ − y·y′ − z·z′ of vectors `[4, …]`: `[1, …]`.
fn interval(x: &Tensor, y: &Tensor) -> Result<Tensor> {
    Ok(x.mul(y)?.mul(&metric(x, x.shape().rank())?)?.sum(&[0], true)?)
}
