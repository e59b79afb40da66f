//! The maps to queries, keys and values.

use super::{EquiLinear, FeaturePlanes, HeadSplit};
use crate::{Channels, Space, TokenBatch};
use gradewise_autograd::Tensor;
use gradewise_nn::{DeepClone, Module, Placement, Result, Visitor};

/// Queries, keys and values of heads.
///
/// Parameters: those of `in_linear`; or with keys and values that all heads share, of `q_linear`, `k_linear` and `v_linear`.
#[derive(Debug, DeepClone)]
pub(crate) struct Projection {
    space: Space,
    of_head: Channels,
    heads: usize,
    /// One map, or those of queries, keys and values, by name.
    linears: Vec<(&'static str, EquiLinear)>,
}

impl Module for Projection {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        for (name, linear) in &self.linears {
            visitor.module(name, linear);
        }
    }
}

/// Sizes of a [`Projection`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProjectionSize {
    pub channels: Channels,
    /// Channels that queries and keys are made of besides.
    pub additional: Channels,
    pub of_head: Channels,
    pub heads: usize,
    /// Whether all heads share keys and values.
    pub multi_query: bool,
    pub bias: bool,
}

impl Projection {
    pub fn init<R: rand::Rng + ?Sized>(
        size: ProjectionSize,
        space: &Space,
        placement: &Placement,
        rng: &mut R,
    ) -> Result<Self> {
        let ProjectionSize { channels, additional, of_head, heads, multi_query, bias } = size;
        let more = channels.plus(additional);
        let mut linear = |inputs: Channels, count: usize| {
            EquiLinear::new(inputs, of_head.times(count), space).bias(bias).init(placement, rng)
        };
        let linears = match multi_query {
            false => vec![("in_linear", linear(more, 3 * heads)?)],
            true => vec![
                ("q_linear", linear(more, heads)?),
                ("k_linear", linear(more, 1)?),
                ("v_linear", linear(channels, 1)?),
            ],
        };
        Ok(Self { space: space.clone(), of_head, heads, linears })
    }

    /// Queries, keys and values `[batch, heads or 1, tokens, blades · multivectors + scalars]`, normalised with an ε. Queries are multiplied
    /// by the diagonal of the quadratic form if `is_inner`, so that their dot products with keys are inner products.
    pub fn forward(
        &self,
        x: &FeaturePlanes,
        additional: Option<&FeaturePlanes>,
        tokens: &TokenBatch,
        (epsilon, is_inner): (Option<f64>, bool),
    ) -> Result<[Tensor; 3]> {
        let space = &self.space;
        let more = additional.map(|additional| x.beside(space, additional)).transpose()?;
        let more = more.as_ref().unwrap_or(x);
        let (of_head, heads) = (self.of_head, self.heads);
        let key = HeadSplit { of_head, heads: 1, groups: 1, epsilon, query: None };
        let query = HeadSplit { heads, query: is_inner.then_some(0), ..key };
        let split = |options: HeadSplit, linear: &EquiLinear, x: &FeaturePlanes| {
            options.forward(space, &linear.forward(x)?, tokens)
        };
        let joint = HeadSplit { groups: 3, ..query };
        let all = match self.linears.as_slice() {
            [(_, q), (_, k), (_, v)] => {
                [split(query, q, more)?, split(key, k, more)?, split(key, v, x)?].concat()
            }
            linears => {
                let heads = linears.iter().map(|(_, linear)| split(joint, linear, more));
                heads.collect::<Result<Vec<_>>>()?.concat()
            }
        };
        Ok([0, 1, 2].map(|group| all[group].clone()))
    }
}
