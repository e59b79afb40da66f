//! Heads of an attention.

use super::FeaturePlanes;
use crate::{Channels, Space, TokenBatch};
use gradewise_autograd::{
    Tensor,
    clifford::{MergeHeads, SplitHeads, merge_heads, split_heads},
    concat,
};
use gradewise_kernels::ops::AttentionOptions;
use gradewise_nn::{Error, Result};

/// How features become the heads of an attention.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeadSplit {
    /// Multivectors and scalars of a head.
    pub of_head: Channels,
    pub heads: usize,
    /// Groups that lie side by side: three for queries, keys and values.
    pub groups: usize,
    /// ε of the norm of each head; no norm if `None`.
    pub epsilon: Option<f64>,
    /// The group that is multiplied by the diagonal of the quadratic form, so that dot products with the others are inner products.
    pub query: Option<usize>,
}

impl HeadSplit {
    /// Each group as `[batch, heads, tokens, blades · multivectors + scalars]`.
    pub fn forward(&self, space: &Space, x: &FeaturePlanes, tokens: &TokenBatch) -> Result<Vec<Tensor>> {
        let Self { of_head, heads, groups, epsilon, query } = *self;
        let Channels { multivectors: channels, scalars } = of_head;
        let (batch, items) = tokens.sizes();
        let options = SplitHeads {
            algebra: space.algebra().clone(),
            order: space.order().to_vec(),
            groups,
            channels,
            scalars,
            heads,
            batch,
            items,
            epsilon,
            gain: 1.0,
            query,
        };
        let all = split_heads(&options, x.whole())?;
        let shape = [batch, heads, items, space.blades() * channels + scalars];
        let group = |group: usize| Ok::<_, Error>(all.slice(0, group..group + 1)?.reshape(shape)?);
        (0..groups).map(group).collect()
    }
}

/// Attention of heads to the keys of `tokens`, with values of the same or another number of features than keys.
pub(crate) fn attend([q, k, v]: [&Tensor; 3], tokens: &TokenBatch) -> Result<Tensor> {
    let of = |x: &Tensor| x.shape()[3];
    let width = of(q).max(of(v));
    // The kernel takes queries, keys and values of one number of features.
    let [q_wide, k_wide, v_wide] = [padded(q, width)?, padded(k, width)?, padded(v, width)?];
    let options = AttentionOptions { scale: Some((of(q).max(1) as f64).sqrt().recip()), ..tokens.options()? };
    let h = q_wide.attention(&k_wide, &v_wide, &options)?;
    Ok(if width == of(v) { h } else { h.slice(3, 0..of(v))? })
}

fn padded(x: &Tensor, width: usize) -> Result<Tensor> {
    let &[batch, heads, items, features] = x.shape().dims() else { return Ok(x.clone()) };
    if features == width {
        return Ok(x.clone());
    }
    let zeros = Tensor::zeros([batch, heads, items, width - features], x.dtype(), &x.device())?;
    Ok(concat(&[x, &zeros], 3)?)
}

/// Heads `[batch, heads, tokens, blades · multivectors + scalars]` as features with the heads' channels one after the other.
pub(crate) fn merge(space: &Space, h: &Tensor, of_head: Channels) -> Result<FeaturePlanes> {
    let (blades, heads) = (space.blades(), h.shape()[1]);
    let Channels { multivectors: channels, scalars } = of_head;
    let whole = merge_heads(&MergeHeads { blades, channels, scalars }, h)?;
    Ok(FeaturePlanes::of_whole(whole, Channels::new(heads * channels, heads * scalars)))
}
