//! Messages between the particles of a jet, in the space-time algebra Cl(1,3).

use super::{super::MessagePassing, JetTaggerConfig};
use crate::data::jets::JetBatch;
use gradewise_autograd::Tensor;
use gradewise_core::{Algebra, Signature};
use gradewise_nn::{
    Module, Placement, Result,
    data::Edges,
    layers::{Activation, Layer, Linear, MvLinear, Sequential},
    quadratic::QuadraticForm,
};

const CHANNELS: usize = crate::data::jets::CHANNELS;

/// Rounds of messages between all particles of a jet, the invariants of their features averaged over the jet, and a perceptron: similar to
/// Ruhe et al. (2023, arXiv:2305.11141) and LorentzNet (Gong et al. 2022, arXiv:2201.08187), smaller than either.
///
/// The logits are invariant under all of O(1,3), boosts included: there are no reference vectors such as beams.
#[derive(Module)]
pub struct JetMessages {
    embedding: MvLinear,
    layers: Vec<MessagePassing>,
    classifier: Sequential,
    #[module(skip)]
    form: QuadraticForm,
}

impl JetMessages {
    /// Draws the parameters.
    ///
    /// # Errors
    /// A dtype the device does not serve, or no memory.
    pub fn init<R: rand::Rng + ?Sized>(
        config: &JetTaggerConfig,
        placement: impl Into<Placement>,
        rng: &mut R,
    ) -> Result<Self> {
        let placement = &placement.into();
        let JetTaggerConfig { hidden, layers, units, .. } = *config;
        let signature = Signature::STA;
        let algebra = Algebra::new(signature)?;
        Ok(Self {
            embedding: MvLinear::new(CHANNELS, hidden, signature).init(placement, rng)?,
            layers: (0..layers)
                .map(|_| MessagePassing::init(hidden, 1, signature, placement, rng))
                .collect::<Result<_>>()?,
            classifier: Sequential::new()
                .then(Linear::new(algebra.grade_count() * hidden, units).init(placement, rng)?)
                .then(Activation::Silu)
                .then(Linear::new(units, 2).init(placement, rng)?),
            form: QuadraticForm::new(&algebra, placement)?,
        })
    }

    /// Logits of the classes, `[jets, 2]`.
    ///
    /// # Errors
    /// A batch of another dtype or device than the parameters.
    pub fn forward(&self, batch: &JetBatch) -> Result<Tensor> {
        let edges: &Edges = &batch.edges;
        let mut h = self.embedding.forward(&batch.features)?;
        for layer in &self.layers {
            h = layer.forward_weighted(&h, &batch.attributes, edges, &batch.edge_weights)?;
        }
        let invariants = self.invariants(&h)?;
        let (grades, nodes, hidden) = (invariants.shape()[0], invariants.shape()[1], invariants.shape()[2]);
        let weighted = invariants.mul(&batch.particle_weights)?;
        let by_jet = weighted.reshape([grades, batch.jets, nodes / batch.jets.max(1), hidden])?;
        let pooled = by_jet.sum(&[2], false)?.permute(&[1, 0, 2])?.reshape([batch.jets, grades * hidden])?;
        self.classifier.forward(&pooled)
    }

    /// The scalar part, and for the other grades sign(q)·√|q| of the quadratic form q, smoothed at 0: `[grades, nodes, features]`.
    fn invariants(&self, h: &Tensor) -> Result<Tensor> {
        let forms = self.form.by_grade(h)?;
        // x/(x² + 1)^¼ approximates x near zero, and sign(x)·√|x| far from it.
        let roots = forms.div(&forms.square()?.add_scalar(1.0)?.sqrt()?.sqrt()?)?;
        let grades = roots.shape()[0];
        Ok(gradewise_autograd::concat(&[&h.slice(0, 0..1)?, &roots.slice(0, 1..grades)?], 0)?)
    }
}
