//! Message passing between multivector features of nodes.

use gradewise_autograd::{Tensor, concat};
use gradewise_core::Signature;
use gradewise_nn::{
    DeepClone, Module, Placement, Result, Visitor,
    data::Edges,
    layers::{Layer, MvBlock},
};

/// A sequence of identical blocks: mv_linear → mv_silu → steerable product → mv_layer_norm ([`MvBlock`]).
///
/// Parameters are named by the position of their layer, counted across blocks: `0.weight`, `1.a`, `2.weight`, `3.a`, `4.weight`, ….
#[derive(DeepClone)]
pub struct MvMlp(Vec<MvBlock>);

impl MvMlp {
    /// `blocks` blocks from `inputs` to `outputs` features, `outputs` wide throughout.
    ///
    /// # Errors
    /// More generators than are supported, a dtype the device does not serve, or no memory.
    pub fn init<R: rand::Rng + ?Sized>(
        (inputs, outputs, blocks): (usize, usize, usize),
        signature: Signature,
        placement: impl Into<Placement>,
        rng: &mut R,
    ) -> Result<Self> {
        let placement = &placement.into();
        let width = |block: usize| if block == 0 { inputs } else { outputs };
        let blocks =
            (0..blocks).map(|block| MvBlock::new(width(block), outputs, signature).init(placement, rng));
        Ok(Self(blocks.collect::<Result<_>>()?))
    }
}

impl MvMlp {
    /// `residual + self(x)`, with the addition fused into the last block.
    ///
    /// # Errors
    /// As [`forward`](Layer::forward); a residual of another shape than the result's.
    pub fn forward_residual(&self, x: &Tensor, residual: &Tensor) -> Result<Tensor> {
        let Some((last, before)) = self.0.split_last() else { return Ok(residual.add(x)?) };
        let x = before.iter().try_fold(x.clone(), |x, block| block.forward(&x))?;
        last.forward_residual(&x, residual)
    }
}

impl Module for MvMlp {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        let layers = self.0.iter().flat_map(|block| block.layers());
        for (position, layer) in layers.enumerate() {
            visitor.module(position, layer);
        }
    }
}

impl Layer for MvMlp {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.0.iter().try_fold(x.clone(), |x, block| block.forward(&x))
    }
}

/// One round of messages: `m_ij = edge([h_i − h_j, e_ij])`, averaged over j, then `h_i += node([h_i, m̄_i])` (Ruhe et al.
/// 2023, arXiv:2305.11141).
#[derive(Module, DeepClone)]
pub struct MessagePassing {
    edge: MvMlp,
    node: MvMlp,
}

impl MessagePassing {
    /// For `features` per node and `attributes` per edge; both networks have two blocks.
    ///
    /// # Errors
    /// More generators than are supported, a dtype the device does not serve, or no memory.
    pub fn init<R: rand::Rng + ?Sized>(
        features: usize,
        attributes: usize,
        signature: Signature,
        placement: impl Into<Placement>,
        rng: &mut R,
    ) -> Result<Self> {
        let placement = &placement.into();
        Ok(Self {
            edge: MvMlp::init((features + attributes, features, 2), signature, placement, rng)?,
            node: MvMlp::init((2 * features, features, 2), signature, placement, rng)?,
        })
    }

    /// New features of the nodes: `h` `[blades, nodes, features]`, `attributes` `[blades, edges, attributes]`.
    ///
    /// # Errors
    /// Shapes, dtypes or devices that do not match.
    pub fn forward(&self, h: &Tensor, attributes: &Tensor, edges: &Edges) -> Result<Tensor> {
        Ok(self.forward_with_messages(h, attributes, edges)?.0)
    }

    /// As [`forward`](Self::forward), but also returns the messages `[blades, edges, features]`.
    ///
    /// # Errors
    /// As [`forward`](Self::forward).
    pub fn forward_with_messages(
        &self,
        h: &Tensor,
        attributes: &Tensor,
        edges: &Edges,
    ) -> Result<(Tensor, Tensor)> {
        let messages = self.messages(h, attributes, edges)?;
        let joined = h.concat_segment_mean(&messages, &edges.receivers)?;
        Ok((self.update(h, &joined)?, messages))
    }

    /// As [`forward`](Self::forward), with the sum of the messages times `weights` `[1, edges, 1]` instead of their mean: a weight of 0
    /// masks an edge.
    ///
    /// # Errors
    /// As [`forward`](Self::forward).
    pub fn forward_weighted(
        &self,
        h: &Tensor,
        attributes: &Tensor,
        edges: &Edges,
        weights: &Tensor,
    ) -> Result<Tensor> {
        let messages = self.messages(h, attributes, edges)?.mul(weights)?;
        let received = messages.segment_sum(1, &edges.receivers)?;
        self.update(h, &concat(&[h, &received], 2)?)
    }

    fn messages(&self, h: &Tensor, attributes: &Tensor, edges: &Edges) -> Result<Tensor> {
        let Edges { receivers, senders } = edges;
        self.edge.forward(&h.edge_difference(Some(attributes), receivers, senders)?)
    }

    /// `joined` are the features of the nodes, concatenated with the messages that each received.
    fn update(&self, h: &Tensor, joined: &Tensor) -> Result<Tensor> {
        self.node.forward_residual(joined, h)
    }
}
