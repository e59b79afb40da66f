//! The network.

use super::{GATrBlock, GATrConfig};
use crate::{
    Space, Streams, TokenBatch,
    layers::{EquiLinear, FeaturePlanes, require_channels},
};
use gradewise_autograd::Tensor;
use gradewise_nn::{DeepClone, Error, Module, Placement, Result, in_layer};

/// What joins take their behaviour under reflections from.
#[derive(Clone, Copy, Debug, Default)]
pub enum JoinReference<'a> {
    /// The mean of the input of each set.
    #[default]
    Data,
    /// The weight 1: joins flip their sign under reflections, and the network is not equivariant under them.
    Canonical,
    /// The component e₁₂₃ of a multivector for each token, `[tokens]`.
    Weights(&'a Tensor),
}

impl JoinReference<'_> {
    /// What the joins of each token are multiplied by, `[1, tokens]`; `None` for 1.
    pub(super) fn rows(self, space: &Space, x: &Streams, tokens: &TokenBatch) -> Result<Option<Tensor>> {
        let rows = x.tokens();
        match self {
            Self::Canonical => Ok(None),
            Self::Data => match tokens.reference(space, x)? {
                Some(weights) => Ok(Some(weights.reshape([1, rows])?)),
                None => Ok(None),
            },
            Self::Weights(weights) if weights.shape().dims() == [rows] => {
                Ok(Some(weights.reshape([1, rows])?))
            }
            Self::Weights(weights) => Err(Error::Argument {
                operation: "GATr",
                argument: "reference",
                actual: weights.shape().to_string(),
                expected: format!("[{rows}], a number for each token"),
            }),
        }
    }
}

/// GATr: a linear map, blocks, and a linear map. It is equivariant under rotations, reflections and translations, and without positions
/// under permutations of the tokens of a set. Multivectors are those of this library's Cl(3,0,1), as in [`gradewise_core::pga3`].
///
/// ```
/// use gradewise_autograd::Tensor;
/// use gradewise_kernels::{Array, Device};
/// use gradewise_nn::Placement;
/// use gradewise_transformers::{Channels, Streams, TokenBatch, gatr::{AttentionConfig, GATr, GATrConfig, JoinReference}};
/// use rand::SeedableRng;
///
/// let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(0);
/// let config = GATrConfig {
///     attention: AttentionConfig { num_heads: 4, ..AttentionConfig::default() },
///     ..GATrConfig::new(2, Channels::new(1, 1), Channels::new(8, 16), Channels::new(1, 0))
/// };
/// let model = GATr::init(&config, &Device::Cpu, &mut rng)?;
/// // Two sets of five tokens.
/// let random = |shape: &[usize], rng: &mut _| {
///     let Placement { dtype, device } = Placement::from(&Device::Cpu);
///     Array::randn(shape, dtype, &device, rng).map(Tensor::new)
/// };
/// let x = Streams::new(random(&[16, 10, 1], &mut rng)?, random(&[10, 1], &mut rng)?)?;
/// let y = model.forward(&x, &TokenBatch::new(2, 5), JoinReference::Data)?;
/// assert_eq!(y.multivectors.shape().dims(), [16, 10, 1]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Module, DeepClone)]
pub struct GATr {
    #[module(skip)]
    space: Space,
    linear_in: EquiLinear,
    blocks: Vec<GATrBlock>,
    linear_out: EquiLinear,
    #[module(skip)]
    reinserted: Option<[Vec<usize>; 2]>,
}

impl GATr {
    /// Draws the parameters.
    ///
    /// # Errors
    /// Sizes of 0, no hidden scalars, channels to reinsert that the input does not have, a probability outside 0 ≤ p < 1; a dtype the device
    /// does not serve, or no memory.
    pub fn init<R: rand::Rng + ?Sized>(
        config: &GATrConfig,
        placement: impl Into<Placement>,
        rng: &mut R,
    ) -> Result<Self> {
        let (placement, space) = (&placement.into(), Space::projective());
        let [inputs, hidden, outputs] = config.channels();
        let numbers = [config.reinsert_mv_channels.clone(), config.reinsert_s_channels.clone()];
        require_channels("GATr", "reinsert_mv_channels", &numbers[0], inputs.multivectors)?;
        require_channels("GATr", "reinsert_s_channels", &numbers[1], inputs.scalars)?;
        let mut seeds = 0u64..;
        let mut block = |rng: &mut R| GATrBlock::init(config, &mut seeds, placement, rng);
        Ok(Self {
            linear_in: EquiLinear::new(inputs, hidden, &space).init(placement, rng)?,
            blocks: (0..config.num_blocks).map(|_| block(rng)).collect::<Result<_>>()?,
            linear_out: EquiLinear::new(hidden, outputs, &space).init(placement, rng)?,
            reinserted: numbers.iter().any(|numbers| !numbers.is_empty()).then_some(numbers),
            space,
        })
    }

    /// Maps streams with the input's channels to streams with the output's.
    ///
    /// # Errors
    /// Blades, channels or tokens that differ from the configured ones.
    pub fn forward(&self, x: &Streams, tokens: &TokenBatch, reference: JoinReference<'_>) -> Result<Streams> {
        in_layer("GATr::forward", || {
            tokens.check(x)?;
            let input = FeaturePlanes::new(&self.space, x)?;
            let reference = reference.rows(&self.space, x, tokens)?;
            let select =
                |[multivectors, scalars]: &[Vec<usize>; 2]| input.select(&self.space, multivectors, scalars);
            let additional = self.reinserted.as_ref().map(select).transpose()?;
            let mut hidden = self.linear_in.forward(&input)?;
            for block in &self.blocks {
                hidden = block.forward(&hidden, additional.as_ref(), reference.as_ref(), tokens)?;
            }
            self.linear_out.forward(&hidden)?.streams(&self.space)
        })
    }
}
