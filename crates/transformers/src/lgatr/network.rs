//! The network.

use super::{LGATrBlock, LGATrConfig};
use crate::{
    Space, Streams, TokenBatch,
    layers::{EquiLinear, FeaturePlanes, require_channels},
};
use gradewise_nn::{DeepClone, Module, Placement, Result, in_layer};

/// L-GATr: a linear map, blocks, and a linear map. It is equivariant under Lorentz transformations, and under permutations of the tokens of a
/// set. Blades lie in this library's order, which for Cl(1,3) is the published one: 1; t, x, y, z; tx, ty, tz, xy, xz, yz; …
///
/// ```
/// use gradewise_autograd::Tensor;
/// use gradewise_kernels::{Array, Device};
/// use gradewise_nn::Placement;
/// use gradewise_transformers::{Channels, Streams, TokenBatch, lgatr::{AttentionConfig, LGATr, LGATrConfig}};
/// use rand::SeedableRng;
///
/// let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(0);
/// let config = LGATrConfig {
///     attention: AttentionConfig { num_heads: 4, ..AttentionConfig::default() },
///     ..LGATrConfig::new(2, Channels::new(1, 1), Channels::new(8, 16), Channels::new(1, 1))
/// };
/// let model = LGATr::init(&config, &Device::Cpu, &mut rng)?;
/// // Two sets of five tokens.
/// let random = |shape: &[usize], rng: &mut _| {
///     let Placement { dtype, device } = Placement::from(&Device::Cpu);
///     Array::randn(shape, dtype, &device, rng).map(Tensor::new)
/// };
/// let x = Streams::new(random(&[16, 10, 1], &mut rng)?, random(&[10, 1], &mut rng)?)?;
/// let y = model.forward(&x, &TokenBatch::new(2, 5))?;
/// assert_eq!(y.multivectors.shape().dims(), [16, 10, 1]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Module, DeepClone)]
pub struct LGATr {
    #[module(skip)]
    space: Space,
    linear_in: EquiLinear,
    blocks: Vec<LGATrBlock>,
    linear_out: EquiLinear,
    #[module(skip)]
    reinserted: Option<[Vec<usize>; 2]>,
}

impl LGATr {
    /// Draws the parameters.
    ///
    /// # Errors
    /// Sizes of 0, products without hidden scalars, channels to reinsert that the input does not have, a probability outside 0 ≤ p < 1; a
    /// dtype the device does not serve, or no memory.
    pub fn init<R: rand::Rng + ?Sized>(
        config: &LGATrConfig,
        placement: impl Into<Placement>,
        rng: &mut R,
    ) -> Result<Self> {
        Self::init_in(&config.primitives.space()?, config, placement, rng)
    }

    /// The same network in any space, equivariant under the space's group; `primitives.subgroup` is not asked.
    ///
    /// # Errors
    /// As [`init`](Self::init).
    pub fn init_in<R: rand::Rng + ?Sized>(
        space: &Space,
        config: &LGATrConfig,
        placement: impl Into<Placement>,
        rng: &mut R,
    ) -> Result<Self> {
        let placement = &placement.into();
        let [inputs, hidden, outputs] = config.channels();
        let LGATrConfig { reinsert_mv_channels, reinsert_s_channels, .. } = config;
        require_channels("LGATr", "reinsert_mv_channels", reinsert_mv_channels, inputs.multivectors)?;
        require_channels("LGATr", "reinsert_s_channels", reinsert_s_channels, inputs.scalars)?;
        let mut seeds = 0u64..;
        let mut block = |rng: &mut R| LGATrBlock::init(config, space, &mut seeds, placement, rng);
        let numbers = [reinsert_mv_channels.clone(), reinsert_s_channels.clone()];
        Ok(Self {
            linear_in: EquiLinear::new(inputs, hidden, space).init(placement, rng)?,
            blocks: (0..config.num_blocks).map(|_| block(rng)).collect::<Result<_>>()?,
            linear_out: EquiLinear::new(hidden, outputs, space).init(placement, rng)?,
            reinserted: numbers.iter().any(|numbers| !numbers.is_empty()).then_some(numbers),
            space: space.clone(),
        })
    }

    /// Maps streams with the input's channels to streams with the output's.
    ///
    /// # Errors
    /// Blades, channels or tokens that differ from the configured ones.
    pub fn forward(&self, x: &Streams, tokens: &TokenBatch) -> Result<Streams> {
        in_layer("LGATr::forward", || {
            tokens.check(x)?;
            let input = FeaturePlanes::new(&self.space, x)?;
            let mut hidden = self.linear_in.forward(&input)?;
            let select =
                |[multivectors, scalars]: &[Vec<usize>; 2]| input.select(&self.space, multivectors, scalars);
            let additional = self.reinserted.as_ref().map(select).transpose()?;
            for block in &self.blocks {
                hidden = block.forward(&hidden, additional.as_ref(), tokens)?;
            }
            self.linear_out.forward(&hidden)?.streams(&self.space)
        })
    }
}
