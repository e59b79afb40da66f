//! Messages between the particles of a jet, in the space-time algebra Cl(1,3).

use super::{super::MessagePassing, JetTaggerConfig, products};
use crate::data::jets::JetBatch;
use gradewise_autograd::{Tensor, concat};
use gradewise_core::{Algebra, Signature};
use gradewise_nn::{
    DeepClone, Module, Placement, Result,
    data::Edges,
    layers::{Activation, Layer, Linear, MvLinear, Sequential},
    quadratic::QuadraticForm,
};

const CHANNELS: usize = crate::data::jets::CHANNELS;

/// Rounds of messages between all particles of a jet, the invariants of their features averaged over the jet, and a perceptron: similar to
/// Ruhe et al. (2023, arXiv:2305.11141) and LorentzNet (Gong et al. 2022, arXiv:2201.08187), smaller than either.
///
/// The logits are invariant under all of O(1,3), boosts included: there are no reference vectors such as beams.
#[derive(Module, DeepClone)]
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
        let edges: &Edges = batch.edges()?;
        let (attributes, weights) = (attributes(batch)?, edge_weights(batch)?);
        let mut h = self.embedding.forward(&batch.multivectors()?)?;
        for layer in &self.layers {
            h = layer.forward_weighted(&h, &attributes, edges, &weights)?;
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
        Ok(concat(&[&h.slice(0, 0..1)?, &roots.slice(0, 1..grades)?], 0)?)
    }
}

/// Blades of the space-time algebra.
const BLADES: usize = 16;

/// `[16, edges, 1]`: the logarithm of the product of the momenta as a scalar.
fn attributes(batch: &JetBatch) -> Result<Tensor> {
    let logarithms = products::logarithms(&off_diagonal(&batch.products)?)?;
    let edges = logarithms.shape().elements();
    let others = Tensor::zeros([BLADES - 1, edges, 1], logarithms.dtype(), &logarithms.device())?;
    Ok(concat(&[&logarithms.reshape([1, edges, 1])?, &others], 0)?)
}

/// `[1, edges, 1]`: one over the number of neighbours of the receiver; zero if sender or receiver is padding.
fn edge_weights(batch: &JetBatch) -> Result<Tensor> {
    let (jets, particles) = (batch.jets, batch.particles);
    let senders = batch.particle_weights.reshape([jets, 1, particles])?;
    // Weights are at least 1/200, so that this is exactly 1 for particles.
    let there = senders.mul_scalar(1e6)?.clamp(0.0, 1.0)?;
    let weights = batch.neighbour_weights.reshape([jets, particles, 1])?.mul(&there)?;
    let weights = off_diagonal(&weights)?;
    Ok(weights.reshape([1, weights.shape().elements(), 1])?)
}

/// The elements of square matrices `[jets, particles, particles]` beside their diagonals, by rows: those of the edges of complete graphs.
fn off_diagonal(matrices: &Tensor) -> Result<Tensor> {
    let (jets, particles) = (matrices.shape()[0], matrices.shape()[1]);
    // Without its first element, a matrix has a diagonal element at the end of each run of `particles` + 1.
    let rows = matrices.reshape([jets, particles * particles])?.slice(1, 1..particles * particles)?;
    let runs = rows.reshape([jets, particles - 1, particles + 1])?.slice(2, 0..particles)?;
    Ok(runs.reshape([jets * (particles - 1) * particles])?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gradewise_kernels::{DType, Device};
    use gradewise_nn::data::{Samples, Split};

    #[test]
    fn attributes_and_weights_are_those_of_the_edges() {
        let jets = crate::data::jets::JetSets::simulate(3, 7, 2, Split::Train).unwrap();
        let batch = jets.batch(&[0, 2, 1], &Placement::new(&Device::Cpu, DType::F64)).unwrap();
        let values = |tensor: &Tensor| tensor.array().to_f64_vec().unwrap();
        let (found, weights) = (values(&attributes(&batch).unwrap()), values(&edge_weights(&batch).unwrap()));
        let (products, particles) = (values(&batch.products), batch.particles);
        let counts = [0, 2, 1].map(|jet| jets.count(jet));
        let edges = batch.edges().unwrap();
        let pairs = edges.receivers.to_vec().unwrap().into_iter().zip(edges.senders.to_vec().unwrap());
        for (edge, (receiver, sender)) in pairs.enumerate() {
            let (jet, i, j) = (receiver / particles, receiver % particles, sender % particles);
            let product = products[(jet * particles + i) * particles + j];
            assert!((found[edge] - (0.25 * (product + 1e-6).ln() + 1.5)).abs() < 1e-12);
            let count = counts[jet];
            let expected = if i < count && j < count { 1.0 / (count - 1) as f64 } else { 0.0 };
            assert_eq!(weights[edge], expected);
        }
        assert!(found[weights.len()..].iter().all(|&other| other == 0.0));
    }
}
