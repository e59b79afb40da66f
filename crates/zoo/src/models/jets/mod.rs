//! Taggers of jets: message passing in the space-time algebra Cl(1,3), attention that sees pairs, and the published Lorentz-equivariant
//! transformers.

mod messages;
mod pairs;
mod products;
mod reference;
mod transformer;

pub use messages::JetMessages;
pub use pairs::JetPairs;
pub use reference::Reference;
pub use transformer::{JetLGATr, JetSlim};

use crate::data::jets::JetBatch;
use gradewise_autograd::Tensor;
use gradewise_nn::{DeepClone, Module, Placement, Result, Visitor, loss};
use gradewise_transformers::{
    Channels,
    lgatr::{AttentionConfig, LGATrConfig},
    slim::{LGATrSlimConfig, VectorChannels},
};
use serde::{Deserialize, Serialize};

gradewise_nn::choices! {
    /// The kind of tagger.
    pub enum JetKind {
        /// Messages between all particles in Cl(1,3), and their invariants
        Messages = "messages",
        /// L-GATr, the published transformer of multivectors
        LGATr = "lgatr",
        /// L-GATr-slim, the published transformer of vectors and scalars
        Slim = "slim",
        /// A small transformer of vectors and scalars whose attention sees the invariants of pairs
        Pairs = "pairs",
    }
}

/// Sizes of the tagger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JetTaggerConfig {
    /// Which model.
    #[serde(default = "messages")]
    pub kind: JetKind,
    /// Multivectors of a particle, or vectors (slim, pairs).
    pub hidden: usize,
    /// Rounds of messages, or blocks.
    pub layers: usize,
    /// Units of the classifier's hidden layer, and of the perceptron of pairs; not for the published transformers.
    pub units: usize,
    /// Scalars of a particle; only for transformers.
    #[serde(default = "sixteen")]
    pub scalars: usize,
    /// Attention heads; only for transformers.
    #[serde(default = "four")]
    pub heads: usize,
    /// Directions of the laboratory that the model sees; only for pairs.
    #[serde(default)]
    pub reference: Reference,
}

// The defaults for configurations written before there were transformers.
const fn messages() -> JetKind {
    JetKind::Messages
}

const fn sixteen() -> usize {
    16
}

const fn four() -> usize {
    4
}

impl JetTaggerConfig {
    /// The published settings of the tagger's L-GATr: two vectors and two scalars of each particle become the scalar part of one multivector.
    pub fn lgatr(&self) -> LGATrConfig {
        let (inputs, outputs) = (Channels::new(2, 2), Channels::new(1, 0));
        LGATrConfig {
            attention: AttentionConfig { num_heads: self.heads, ..AttentionConfig::default() },
            ..LGATrConfig::new(self.layers, inputs, Channels::new(self.hidden, self.scalars), outputs)
        }
    }

    /// The published settings of the tagger's L-GATr-slim: two vectors and two scalars of each particle become one scalar.
    pub fn slim(&self) -> LGATrSlimConfig {
        let hidden = VectorChannels::new(self.hidden, self.scalars);
        let channels = [VectorChannels::new(2, 2), hidden, VectorChannels::new(0, 1)];
        LGATrSlimConfig::new(self.layers, channels, self.heads)
    }
}

/// A tagger of jets.
#[derive(DeepClone)]
pub enum JetTagger {
    /// Messages between all particles.
    Messages(JetMessages),
    /// L-GATr.
    LGATr(Box<JetLGATr>),
    /// L-GATr-slim.
    Slim(JetSlim),
    /// Attention that sees pairs.
    Pairs(JetPairs),
}

impl JetTagger {
    /// Draws the parameters.
    ///
    /// # Errors
    /// A dtype the device does not serve, or no memory.
    pub fn init<R: rand::Rng + ?Sized>(
        config: &JetTaggerConfig,
        placement: impl Into<Placement>,
        rng: &mut R,
    ) -> Result<Self> {
        Ok(match config.kind {
            JetKind::Messages => Self::Messages(JetMessages::init(config, placement, rng)?),
            JetKind::LGATr => Self::LGATr(Box::new(JetLGATr::init(config, placement, rng)?)),
            JetKind::Slim => Self::Slim(JetSlim::init(config, placement, rng)?),
            JetKind::Pairs => Self::Pairs(JetPairs::init(config, placement, rng)?),
        })
    }

    /// Logits of the classes, `[jets, 2]`.
    ///
    /// # Errors
    /// A batch of another dtype or device than the parameters.
    pub fn forward(&self, batch: &JetBatch) -> Result<Tensor> {
        match self {
            Self::Messages(model) => model.forward(batch),
            Self::LGATr(model) => model.forward(batch),
            Self::Slim(model) => model.forward(batch),
            Self::Pairs(model) => model.forward(batch),
        }
    }

    /// Mean cross-entropy of the classes.
    ///
    /// # Errors
    /// As [`forward`](Self::forward).
    pub fn loss(&self, batch: &JetBatch) -> Result<Tensor> {
        loss::cross_entropy(&self.forward(batch)?, &batch.target)
    }

    /// The directions of the laboratory that the model sees; the logits are invariant under what keeps them.
    pub const fn reference(&self) -> Reference {
        match self {
            Self::Pairs(model) => model.reference(),
            Self::Messages(_) | Self::LGATr(_) | Self::Slim(_) => Reference::None,
        }
    }

    /// Whether reflections leave the logits alone too. L-GATr sees orientation, as published.
    pub const fn admits_reflections(&self) -> bool {
        !matches!(self, Self::LGATr(_))
    }
}

impl Module for JetTagger {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        match self {
            Self::Messages(model) => model.visit(visitor),
            Self::LGATr(model) => model.visit(visitor),
            Self::Slim(model) => model.visit(visitor),
            Self::Pairs(model) => model.visit(visitor),
        }
    }
}
