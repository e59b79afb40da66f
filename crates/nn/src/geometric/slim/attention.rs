//! Self-attention by the products of vectors and of scalars.

use super::{
    super::{TokenBatch, layers::attend},
    SlimDropout, SlimLinear, VectorChannels, VectorStreams, interval,
    linear::Options,
    metric,
    norm::EPSILON,
};
use crate::{Module, Placement, Result, error::at_least_one};
use gradewise_autograd::{Tensor, concat};

/// Attention between the tokens of a set: logits are the products of vectors and of scalars of queries and keys, each head's features
/// normalised.
///
/// Parameters: those of `linear_in` and `linear_out`.
#[derive(Debug, Module)]
pub struct SlimSelfAttention {
    #[module(skip)]
    of_head: VectorChannels,
    #[module(skip)]
    heads: usize,
    linear_in: SlimLinear,
    linear_out: SlimLinear,
    #[module(skip)]
    dropout: Option<SlimDropout>,
}

impl SlimSelfAttention {
    /// For streams of `channels`, in and out. Channels of all heads together are `ratio` times those of the input, and a head has at least one
    /// vector and four scalars.
    pub(super) fn init<R: rand::Rng + ?Sized>(
        channels: VectorChannels,
        (heads, ratio): (usize, usize),
        dropout: Option<SlimDropout>,
        placement: &Placement,
        rng: &mut R,
    ) -> Result<Self> {
        at_least_one("SlimSelfAttention", &[("num_heads", heads), ("attn_ratio", ratio)])?;
        let share = |count: usize, least: usize| (ratio * count / heads).max(least);
        let of_head = VectorChannels::new(share(channels.vectors, 1), share(channels.scalars, 4));
        let together = |groups: usize| {
            VectorChannels::new(groups * heads * of_head.vectors, groups * heads * of_head.scalars)
        };
        let small = Options { scale: 0.1, ..Options::DEFAULT };
        let into = Options { bias: false, ..small };
        Ok(Self {
            of_head,
            heads,
            linear_in: SlimLinear::init((channels, together(3)), into, placement, rng)?,
            linear_out: SlimLinear::init((together(1), channels), small, placement, rng)?,
            dropout,
        })
    }

    /// The attention output for each token of `x`.
    ///
    /// # Errors
    /// Channels or tokens that differ from the configured ones; heads that are too large for the device.
    pub fn forward(&self, x: &VectorStreams, tokens: &TokenBatch) -> Result<VectorStreams> {
        let all = self.linear_in.forward(x)?;
        let (batch, items) = tokens.sizes();
        let VectorChannels { vectors, scalars } = self.of_head;
        let heads = self.heads;
        // Channels are (groups, channels of a head, heads).
        let v = all.vectors.reshape([4, batch, items, 3, vectors, heads])?;
        let s = all.scalars.reshape([1, batch, items, 3, scalars, heads])?;
        let total = interval(&v, &v)?.abs()?.sum(&[4], true)?.add(&s.square()?.sum(&[4], true)?)?;
        let mean = total.mul_scalar(((vectors + scalars) as f64).recip())?;
        let scale = mean.add_scalar(EPSILON)?.rsqrt()?;
        let (v, s) = (v.mul(&scale)?, s.mul(&scale)?);
        let of_group = |group: usize| -> Result<Tensor> {
            let mut v = v.slice(3, group..group + 1)?;
            if group == 0 {
                v = v.mul(&metric(&v, 6)?)?;
            }
            let rows = |x: &Tensor, components: usize, channels: usize| -> Result<Tensor> {
                let turned = x.permute(&[3, 1, 5, 2, 0, 4])?.contiguous()?;
                Ok(turned.reshape([batch, heads, items, components * channels])?)
            };
            Ok(concat(&[&rows(&v, 4, vectors)?, &rows(&s.slice(3, group..group + 1)?, 1, scalars)?], 3)?)
        };
        let [q, k, v] = [of_group(0)?, of_group(1)?, of_group(2)?];
        let h = attend([&q, &k, &v], tokens)?;
        let split = 4 * vectors;
        let of_vectors = h.slice(3, 0..split)?.reshape([batch, heads, items, 4, vectors])?;
        let of_vectors = of_vectors.permute(&[3, 0, 2, 1, 4])?.contiguous()?;
        let of_scalars = h.slice(3, split..split + scalars)?.transpose(1, 2)?.contiguous()?;
        let y = self.linear_out.forward(&VectorStreams {
            vectors: of_vectors.reshape([4, batch * items, heads * vectors])?,
            scalars: of_scalars.reshape([batch * items, heads * scalars])?,
        })?;
        match &self.dropout {
            Some(dropout) => dropout.forward(&y),
            None => Ok(y),
        }
    }
}
