//! The network along two axes.

use super::{AxialGATrConfig, GATrBlock, JoinReference};
use crate::{
    Space, Streams, TokenBatch,
    layers::{EquiLinear, FeaturePlanes},
};
use gradewise_autograd::Tensor;
use gradewise_nn::{DeepClone, Error, Module, Placement, Result, in_layer};

/// GATr for tokens with two axes, such as objects and times: blocks attend along the second axis and along the first by turns.
#[derive(Debug, Module, DeepClone)]
pub struct AxialGATr {
    #[module(skip)]
    space: Space,
    linear_in: EquiLinear,
    blocks: Vec<GATrBlock>,
    linear_out: EquiLinear,
}

/// Sets of tokens with two axes, the second one running fastest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AxialTokens {
    /// Sets.
    pub batch: usize,
    /// Tokens along the first axis.
    pub first: usize,
    /// Tokens along the second axis.
    pub second: usize,
}

impl AxialTokens {
    /// Features `[…, batch · first · second]` with the axes of the tokens exchanged.
    fn turned(self, x: &Tensor) -> Result<Tensor> {
        let (height, Self { batch, first, second }) = (x.shape()[0], self);
        let turned = x.reshape([height, batch, first, second])?.transpose(2, 3)?.contiguous()?;
        Ok(turned.reshape([height, batch * first * second])?)
    }

    const fn exchanged(self) -> Self {
        Self { batch: self.batch, first: self.second, second: self.first }
    }
}

impl AxialGATr {
    /// Draws the parameters.
    ///
    /// # Errors
    /// Sizes of 0, no hidden scalars; a dtype the device does not serve, or no memory.
    pub fn init<R: rand::Rng + ?Sized>(
        config: &AxialGATrConfig,
        placement: impl Into<Placement>,
        rng: &mut R,
    ) -> Result<Self> {
        let (placement, space) = (&placement.into(), Space::projective());
        let [inputs, hidden, outputs] = config.block(0).channels();
        let mut seeds = 0u64..;
        let mut block =
            |number: usize, rng: &mut R| GATrBlock::init(&config.block(number), &mut seeds, placement, rng);
        Ok(Self {
            linear_in: EquiLinear::new(inputs, hidden, &space).init(placement, rng)?,
            blocks: (0..config.num_blocks).map(|number| block(number, rng)).collect::<Result<_>>()?,
            linear_out: EquiLinear::new(hidden, outputs, &space).init(placement, rng)?,
            space,
        })
    }

    /// Maps streams with the input's channels to streams with the output's. The reference is that of whole sets.
    ///
    /// # Errors
    /// Blades, channels or tokens that differ from the configured ones.
    pub fn forward(&self, x: &Streams, tokens: AxialTokens, reference: JoinReference<'_>) -> Result<Streams> {
        in_layer("AxialGATr::forward", || {
            let AxialTokens { batch, first, second } = tokens;
            let sets = TokenBatch::new(batch, first * second);
            sets.check(x).map_err(|_| Error::Argument {
                operation: "AxialGATr",
                argument: "x",
                actual: format!("{} tokens", x.tokens()),
                expected: format!("{batch} sets of {first} × {second}"),
            })?;
            let reference = reference.rows(&self.space, x, &sets)?;
            let turned = reference.as_ref().map(|reference| tokens.turned(reference)).transpose()?;
            let along = [TokenBatch::new(batch * first, second), TokenBatch::new(batch * second, first)];
            let mut hidden = self.linear_in.forward(&FeaturePlanes::new(&self.space, x)?)?;
            for (number, block) in self.blocks.iter().enumerate() {
                hidden = if number % 2 == 0 {
                    block.forward(&hidden, None, reference.as_ref(), &along[0])?
                } else {
                    let channels = hidden.channels();
                    let x = FeaturePlanes::of_whole(tokens.turned(hidden.whole())?, channels);
                    let y = block.forward(&x, None, turned.as_ref(), &along[1])?;
                    FeaturePlanes::of_whole(tokens.exchanged().turned(y.whole())?, channels)
                };
            }
            self.linear_out.forward(&hidden)?.streams(&self.space)
        })
    }
}
