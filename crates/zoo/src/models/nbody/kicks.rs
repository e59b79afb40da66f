//! Pair forces that are applied many times in each substep.

use super::NBodyConfig;
use crate::data::nbody::NBodyBatch;
use gradewise_autograd::{Tensor, concat, no_grad};
use gradewise_core::Signature;
use gradewise_nn::{
    DeepClone, Module, Placement, Result,
    data::Edges,
    layers::{Layer, MvLinear},
};

/// Standard deviation of the initial coefficients, for features of size 1.
const FIRST: f64 = 0.01;
/// Adaptive steps: the step length as a fraction of r^1.5, the time in which a pair of unit charges at distance r collapses.
const PART: f64 = 0.15;
/// Adaptive steps: the shortest step, as a fraction of the remaining time over the remaining steps.
const LEAST: f64 = 0.25;

/// The sum over the pairs of a system of the time integral of ρ⁻³ above which paths are sensitive to errors.
const PASSAGE: f64 = 20.0;

/// Inverse-square forces between pairs, `s (xᵢ − xⱼ)/ρ³` with `ρ² = r² + ε²`, integrated by many small steps of symplectic Euler. The
/// strength `s` of each pair and the logarithm of its `ε²`, up to a constant, are linear in the scalars of its messages and in the
/// attribute of its edge. Both are constant until the next messages.
#[derive(Module, DeepClone)]
pub(super) struct Kicks {
    coefficients: MvLinear,
    #[module(skip)]
    count: usize,
    #[module(skip)]
    softening: f64,
    #[module(skip)]
    adaptive: bool,
    #[module(skip)]
    paths: bool,
}

/// The parameters of the pair forces.
pub(super) struct Forces {
    /// `[1, edges, 1]`
    strength: Tensor,
    /// ε², `[1, edges, 1]`
    softening: Tensor,
}

/// The state of the integration.
#[derive(Clone)]
pub(super) struct Motion {
    /// Positions `[3, nodes, 1]`.
    pub loc: Tensor,
    /// Velocities `[3, nodes, 1]`.
    pub vel: Tensor,
    /// The closeness of each pair's encounters: the time integral of ρ⁻³ so far, `[1, edges, 1]`.
    pub encounters: Tensor,
}

impl Motion {
    /// The weight of the messages' corrections for each particle, `[1, nodes, 1]`: c²/(c² + 20²), where c is the sum of `encounters` over
    /// its system. It is about 0.01 if particles stay apart, and nearly 1 after an encounter at a tenth of their usual distance.
    pub(super) fn chaos(&self, batch: &NBodyBatch) -> Result<Tensor> {
        let NBodyBatch { systems, particles, edges, .. } = batch;
        let sums = self.encounters.segment_sum(1, &edges.receivers)?.reshape([1, *systems, *particles])?;
        let sums = sums.sum(&[2], true)?.broadcast_to(&[1, *systems, *particles].into())?;
        let squares = sums.reshape([1, systems * particles, 1])?.square()?;
        Ok(squares.div(&squares.add_scalar(PASSAGE * PASSAGE)?)?)
    }
}

impl Kicks {
    pub(super) fn init<R: rand::Rng + ?Sized>(
        config: &NBodyConfig,
        placement: impl Into<Placement>,
        rng: &mut R,
    ) -> Result<Self> {
        let placement = &placement.into();
        let variance = FIRST.powi(2) / config.hidden.max(1) as f64;
        let coefficients = MvLinear::new(config.hidden + 1, 2, Signature::CL3).variance(variance);
        let NBodyConfig { kicks: count, softening, adaptive, paths, .. } = *config;
        Ok(Self { coefficients: coefficients.init(placement, rng)?, count, softening, adaptive, paths })
    }

    /// Computes the forces from messages `[8, edges, features]` and the attribute `[8, edges, 1]` of their edges.
    pub(super) fn forces(&self, messages: &Tensor, attribute: &Tensor) -> Result<Forces> {
        let coefficients = self.coefficients.forward(&concat(&[messages, attribute], 2)?)?.slice(0, 0..1)?;
        let softening = coefficients.slice(2, 1..2)?.exp()?.mul_scalar(self.softening)?;
        Ok(Forces { strength: coefficients.slice(2, 0..1)?, softening })
    }

    /// Integrates the motion for `duration`; the `particles` particles of a system are adjacent.
    pub(super) fn drive(
        &self,
        start: Motion,
        forces: &Forces,
        edges: &Edges,
        (duration, particles): (f64, usize),
    ) -> Result<Motion> {
        let Motion { mut loc, mut vel, mut encounters } = start;
        let mut rest = Rest::new(&loc, duration, particles)?;
        for kick in 0..self.count {
            // Without `paths`, gradients flow through the forces, but not through the positions at which they are evaluated.
            let met = if self.paths { loc.clone() } else { loc.detach() };
            let apart = met.edge_difference(None, &edges.receivers, &edges.senders)?;
            let squared = apart.square()?.sum(&[0], true)?.add(&forces.softening)?;
            let inverse = squared.pow(-1.5)?;
            let force = forces.strength.mul(&inverse)?.mul(&apart)?.segment_sum(1, &edges.receivers)?;
            if self.adaptive {
                let (step, of_edges) = rest.step(&inverse, edges, self.count - kick)?;
                vel = vel.add(&force.mul(&step)?)?;
                loc = loc.add(&vel.mul(&step)?)?;
                encounters = encounters.add(&inverse.mul(&of_edges)?)?;
            } else {
                let step = duration / self.count as f64;
                vel = vel.add(&force.mul_scalar(step)?)?;
                loc = loc.add(&vel.mul_scalar(step)?)?;
                encounters = encounters.add(&inverse.mul_scalar(step)?)?;
            }
        }
        Ok(Motion { loc, vel, encounters })
    }
}

/// The remaining time of each system. Step lengths are not differentiated.
struct Rest {
    /// `[1, nodes, 1]`, equal for all particles of a system.
    left: Tensor,
    particles: usize,
}

impl Rest {
    fn new(loc: &Tensor, duration: f64, particles: usize) -> Result<Self> {
        let left = Tensor::full([1, loc.shape()[1], 1], duration, loc.dtype(), &loc.device())?;
        Ok(Self { left, particles })
    }

    /// The next step of each particle's system, `[1, nodes, 1]` and for its edges `[1, edges, 1]`, with `steps` steps remaining. It is
    /// shorter if a pair is close: it depends on the sum of ρ⁻⁶ over pairs, which the closest pair dominates. The last step takes all the
    /// remaining time.
    fn step(&mut self, inverse: &Tensor, edges: &Edges, steps: usize) -> Result<(Tensor, Tensor)> {
        no_grad(|| {
            let step = if steps == 1 {
                self.left.clone()
            } else {
                let (nodes, particles) = (self.left.shape()[1], self.particles);
                let sums = inverse.detach().square()?.segment_sum(1, &edges.receivers)?;
                let of_system = sums.reshape([1, nodes / particles, particles])?.sum(&[2], true)?;
                let of_system = of_system.broadcast_to(&[1, nodes / particles, particles].into())?;
                let wanted = of_system.reshape([1, nodes, 1])?.pow(-0.25)?.mul_scalar(PART)?;
                let least = self.left.mul_scalar(LEAST / steps as f64)?;
                wanted.maximum(&least)?.minimum(&self.left)?
            };
            self.left = self.left.sub(&step)?;
            let of_edges = step.index_select(1, &edges.receivers)?;
            Ok((step, of_edges))
        })
    }
}
