//! The geometric transformer.

use super::{BlockConfig, Channels, EquiLinear, GeometricBlock, Space, Streams, TokenBatch};
use crate::{Module, Placement, Result};

/// Sizes of a [`GeometricTransformer`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TransformerConfig {
    /// Input channels.
    pub inputs: Channels,
    /// Output channels.
    pub outputs: Channels,
    /// Sizes of each block.
    pub block: BlockConfig,
    /// Number of blocks.
    pub blocks: usize,
}

/// A linear map, blocks, and a linear map (Brehmer et al. 2023, arXiv:2305.18415, in Cl(3,0,1); Spinner et al. 2024, arXiv:2405.14806, in
/// Cl(1,3)). It is equivariant under permutations of the tokens of a set.
///
/// ```
/// use gradewise_autograd::Tensor;
/// use gradewise_kernels::{Array, Device};
/// use gradewise_nn::{
///     Placement,
///     geometric::{AttentionSize, BlockConfig, Channels, GeometricTransformer, Space, Streams, TokenBatch, TransformerConfig},
/// };
/// use rand::SeedableRng;
///
/// let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(0);
/// let space = Space::projective();
/// let block = BlockConfig {
///     channels: Channels::new(8, 16),
///     attention: AttentionSize { heads: 4, channels: Channels::new(2, 4) },
///     hidden: Channels::new(8, 16),
///     dropout: 0.0,
/// };
/// let config = TransformerConfig { inputs: Channels::new(1, 1), outputs: Channels::new(1, 1), block, blocks: 2 };
/// let placement = Placement::from(&Device::Cpu);
/// let model = GeometricTransformer::init(&config, &space, &placement, &mut rng)?;
/// // Two sets of five tokens.
/// let random = |shape: &[usize], rng: &mut _| Array::randn(shape, placement.dtype, &placement.device, rng).map(Tensor::new);
/// let x = Streams::new(random(&[16, 10, 1], &mut rng)?, random(&[10, 1], &mut rng)?)?;
/// let y = model.forward(&x, &TokenBatch::new(2, 5))?;
/// assert_eq!(y.multivectors.shape().dims(), [16, 10, 1]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Module)]
pub struct GeometricTransformer {
    #[module(skip)]
    space: Space,
    input: EquiLinear,
    blocks: Vec<GeometricBlock>,
    output: EquiLinear,
}

impl GeometricTransformer {
    /// Draws the parameters.
    ///
    /// # Errors
    /// As [`GeometricBlock::init`].
    pub fn init<R: rand::Rng + ?Sized>(
        config: &TransformerConfig,
        space: &Space,
        placement: impl Into<Placement>,
        rng: &mut R,
    ) -> Result<Self> {
        let placement = placement.into();
        let TransformerConfig { inputs, outputs, block, blocks } = config;
        let block_at =
            |index: usize, rng: &mut R| GeometricBlock::init(block, space, index as u64, &placement, rng);
        Ok(Self {
            space: space.clone(),
            input: EquiLinear::init((*inputs, block.channels), space, &placement, rng)?,
            blocks: (0..*blocks).map(|index| block_at(index, rng)).collect::<Result<_>>()?,
            output: EquiLinear::init((block.channels, *outputs), space, &placement, rng)?,
        })
    }

    /// Maps streams with the input channels to streams with the output channels.
    ///
    /// # Errors
    /// Channels or tokens that differ from the configured ones.
    pub fn forward(&self, x: &Streams, tokens: &TokenBatch) -> Result<Streams> {
        let reference = tokens.reference(&self.space, x)?;
        let mut hidden = self.input.forward(x)?;
        for block in &self.blocks {
            hidden = block.forward(&hidden, tokens, reference.as_ref())?;
        }
        self.output.forward(&hidden)
    }
}
