//! A block: attention, then a perceptron of each particle.

use super::{
    attention::PairAttention,
    streams::{Streams, products, smooth_root},
};
use gradewise_autograd::{Tensor, concat};
use gradewise_nn::{
    DeepClone, Module, Placement, Result,
    layers::{Layer, LayerNorm, Linear},
};

#[derive(Module, DeepClone)]
pub struct Block {
    norm: LayerNorm,
    attention: PairAttention,
    perceptron_norm: LayerNorm,
    up: Linear,
    down: Linear,
    vectors: Linear,
}

impl Block {
    pub fn init<R: rand::Rng + ?Sized>(
        (vectors, scalars): (usize, usize),
        heads: usize,
        placement: &Placement,
        rng: &mut R,
    ) -> Result<Self> {
        let inputs = scalars + vectors;
        let residual = 0.5 / (2.0 * scalars as f64).sqrt();
        Ok(Self {
            norm: LayerNorm::new(scalars).init(placement)?,
            attention: PairAttention::init((vectors, scalars, inputs), heads, placement, rng)?,
            perceptron_norm: LayerNorm::new(scalars).init(placement)?,
            up: Linear::new(inputs, 2 * scalars).init(placement, rng)?,
            down: Linear::new(2 * scalars, inputs).deviation(residual).init(placement, rng)?,
            vectors: Linear::new(vectors, vectors).bias(false).init(placement, rng)?,
        })
    }

    /// `bias` is `[jets, heads, particles, particles]`.
    pub fn forward(&self, x: &Streams, bias: &Tensor, (jets, particles): (usize, usize)) -> Result<Streams> {
        let seen = self.attention.forward(&inputs(&self.norm, x)?, &x.vectors, bias, (jets, particles))?;
        let x = Streams { scalars: x.scalars.add(&seen.scalars)?, vectors: x.vectors.add(&seen.vectors)? };
        let hidden = self.up.forward(&inputs(&self.perceptron_norm, &x)?)?.silu()?;
        let out = self.down.forward(&hidden)?;
        let (scalars, all) = (x.scalars.shape()[1], out.shape()[1]);
        let gates = out.slice(1, scalars..all)?.tanh()?;
        let turned = self.vectors.forward(&x.vectors)?.mul(&gates)?;
        Ok(Streams { scalars: x.scalars.add(&out.slice(1, 0..scalars)?)?, vectors: x.vectors.add(&turned)? })
    }
}

/// Normalised scalars, and the masses of vectors: `[nodes, scalars + vectors]`.
fn inputs(norm: &LayerNorm, x: &Streams) -> Result<Tensor> {
    let masses = smooth_root(&products(&x.vectors, &x.vectors)?)?;
    let (nodes, vectors) = (masses.shape()[1], masses.shape()[2]);
    Ok(concat(&[&norm.forward(&x.scalars)?, &masses.reshape([nodes, vectors])?], 1)?)
}
