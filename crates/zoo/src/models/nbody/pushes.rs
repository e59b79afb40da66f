//! Learned changes of velocity along the lines between particles.

use crate::data::nbody::batch::GEOMETRY;
use gradewise_autograd::Tensor;
use gradewise_core::Signature;
use gradewise_nn::{
    DeepClone, Module, Placement, Result,
    data::Edges,
    layers::{Layer, MvLinear},
};

/// Number of powers of the inverse distance: 0, 1 and 2, each times the direction.
const POWERS: usize = 3;
/// Standard deviation of the initial coefficients, for features of size 1.
const FIRST_PUSH: f64 = 0.01;

/// Pushes along the lines between particles: `Σⱼ (c₀ + c₁/ρ + c₂/ρ²) (xᵢ − xⱼ)/ρ` with coefficients that are linear in the scalars of
/// the messages and ρ the softened distance.
#[derive(Module, DeepClone)]
pub(super) struct Pushes(#[module(rename = "coefficients")] MvLinear);

impl Pushes {
    pub(super) fn init<R: rand::Rng + ?Sized>(
        features: usize,
        placement: impl Into<Placement>,
        rng: &mut R,
    ) -> Result<Self> {
        let placement = &placement.into();
        let variance = FIRST_PUSH.powi(2) / features.max(1) as f64;
        Ok(Self(MvLinear::new(features, POWERS, Signature::CL3).variance(variance).init(placement, rng)?))
    }

    /// Changes of velocity `[3, nodes, 1]` from messages `[8, edges, features]` and the attributes of their edges, geometry included.
    pub(super) fn forward(&self, messages: &Tensor, attributes: &Tensor, edges: &Edges) -> Result<Tensor> {
        let coefficients = self.0.forward(messages)?.slice(0, 0..1)?;
        let relative = attributes.slice(0, 1..4)?.slice(2, 1..2)?;
        let inverse = attributes.slice(0, 0..1)?.slice(2, GEOMETRY..GEOMETRY + 1)?;
        let mut strength = coefficients.slice(2, POWERS - 1..POWERS)?;
        for power in (0..POWERS - 1).rev() {
            strength = strength.mul(&inverse)?.add(&coefficients.slice(2, power..power + 1)?)?;
        }
        let push = strength.mul(&inverse)?.mul(&relative)?;
        Ok(push.segment_sum(1, &edges.receivers)?)
    }
}
