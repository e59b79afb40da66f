//! Self-attention by the products of vectors and of scalars.

use super::{
    SlimDropout, SlimLinear, VectorChannels, VectorStreams, interval, linear::Options, metric, norm::EPSILON,
};
use crate::{TokenBatch, layers::attend};
use gradewise_autograd::{Tensor, concat};
use gradewise_nn::{DeepClone, Module, Placement, Result, data::at_least_one, in_layer};

/// Heads of an attention of vectors and scalars.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heads {
    of_head: VectorChannels,
    count: usize,
}

impl Heads {
    /// For queries made of `channels`: channels of all heads together are `ratio` times those, and a head has at least one vector and four
    /// scalars.
    pub fn new(channels: VectorChannels, (count, ratio): (usize, usize)) -> Result<Self> {
        at_least_one("SlimSelfAttention", &[("num_heads", count), ("attn_ratio", ratio)])?;
        let share = |channels: usize, least: usize| (ratio * channels / count).max(least);
        let of_head = VectorChannels::new(share(channels.vectors, 1), share(channels.scalars, 4));
        Ok(Self { of_head, count })
    }

    /// The channels of `groups` of all heads.
    pub fn together(self, groups: usize) -> VectorChannels {
        let each = groups * self.count;
        VectorChannels::new(each * self.of_head.vectors, each * self.of_head.scalars)
    }

    /// Each group as `[batch, heads, tokens, 4 · vectors + scalars]`, normalised; vectors of the group `query` with the signs of the metric, so
    /// that dot products with the others are products of vectors.
    pub fn split(
        self,
        x: &VectorStreams,
        tokens: &TokenBatch,
        groups: usize,
        query: Option<usize>,
    ) -> Result<Vec<Tensor>> {
        let (batch, items) = tokens.sizes();
        let Self { of_head: VectorChannels { vectors, scalars }, count: heads } = self;
        // Channels are (groups, channels of a head, heads).
        let v = x.vectors.reshape([4, batch, items, groups, vectors, heads])?;
        let s = x.scalars.reshape([1, batch, items, groups, scalars, heads])?;
        let total = interval(&v, &v)?.abs()?.sum(&[4], true)?.add(&s.square()?.sum(&[4], true)?)?;
        let mean = total.mul_scalar(((vectors + scalars) as f64).recip())?;
        let scale = mean.add_scalar(EPSILON)?.rsqrt()?;
        let (v, s) = (v.mul(&scale)?, s.mul(&scale)?);
        let rows = |x: &Tensor, components: usize, channels: usize| -> Result<Tensor> {
            let turned = x.permute(&[3, 1, 5, 2, 0, 4])?.contiguous()?;
            Ok(turned.reshape([batch, heads, items, components * channels])?)
        };
        let of_group = |group: usize| -> Result<Tensor> {
            let mut v = v.slice(3, group..group + 1)?;
            if query == Some(group) {
                v = v.mul(&metric(&v, 6)?)?;
            }
            Ok(concat(&[&rows(&v, 4, vectors)?, &rows(&s.slice(3, group..group + 1)?, 1, scalars)?], 3)?)
        };
        (0..groups).map(of_group).collect()
    }

    /// The results of queries, keys and values, the heads' channels one after the other; `keys` are the tokens of the keys.
    pub fn attend(self, heads: [&Tensor; 3], keys: &TokenBatch) -> Result<VectorStreams> {
        let h = attend(heads, keys)?;
        let (batch, count, items) = (h.shape()[0], self.count, h.shape()[2]);
        let VectorChannels { vectors, scalars } = self.of_head;
        let split = 4 * vectors;
        let of_vectors = h.slice(3, 0..split)?.reshape([batch, count, items, 4, vectors])?;
        let of_vectors = of_vectors.permute(&[3, 0, 2, 1, 4])?.contiguous()?;
        let of_scalars = h.slice(3, split..split + scalars)?.transpose(1, 2)?.contiguous()?;
        Ok(VectorStreams {
            vectors: of_vectors.reshape([4, batch * items, count * vectors])?,
            scalars: of_scalars.reshape([batch * items, count * scalars])?,
        })
    }
}

/// Of the maps to queries, keys and values, and from the heads.
pub(super) const SMALL: Options = Options { scale: 0.1, ..Options::DEFAULT };
pub(super) const WITHOUT_BIAS: Options = Options { bias: false, ..SMALL };

/// Attention between the tokens of a set: logits are the products of vectors and of scalars of queries and keys, each head's features
/// normalised.
///
/// Parameters: those of `linear_in` and `linear_out`.
#[derive(Debug, Module, DeepClone)]
pub struct SlimSelfAttention {
    #[module(skip)]
    heads: Heads,
    linear_in: SlimLinear,
    linear_out: SlimLinear,
    #[module(skip)]
    dropout: Option<SlimDropout>,
}

impl SlimSelfAttention {
    /// For streams of `channels`, in and out, with so many heads and such a ratio.
    pub(super) fn init<R: rand::Rng + ?Sized>(
        channels: VectorChannels,
        sizes: (usize, usize),
        dropout: Option<SlimDropout>,
        placement: &Placement,
        rng: &mut R,
    ) -> Result<Self> {
        let heads = Heads::new(channels, sizes)?;
        Ok(Self {
            linear_in: SlimLinear::init((channels, heads.together(3)), WITHOUT_BIAS, placement, rng)?,
            linear_out: SlimLinear::init((heads.together(1), channels), SMALL, placement, rng)?,
            heads,
            dropout,
        })
    }

    /// The attention output for each token of `x`.
    ///
    /// # Errors
    /// Channels or tokens that differ from the configured ones; heads that are too large for the device.
    pub fn forward(&self, x: &VectorStreams, tokens: &TokenBatch) -> Result<VectorStreams> {
        in_layer("SlimSelfAttention::forward", || {
            let all = self.heads.split(&self.linear_in.forward(x)?, tokens, 3, Some(0))?;
            let y = self.linear_out.forward(&self.heads.attend([&all[0], &all[1], &all[2]], tokens)?)?;
            match &self.dropout {
                Some(dropout) => dropout.forward(&y),
                None => Ok(y),
            }
        })
    }
}
