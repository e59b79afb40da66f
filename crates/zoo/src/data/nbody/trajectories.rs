//! Recorded frames of many systems.

use super::{PUBLISHED_FRAMES, Simulation};
use gradewise_nn::data::Split;
use gradewise_nn::{Error, Result};

/// Positions and velocities of many systems at consecutive frames, in the published layout.
#[derive(Clone, PartialEq, Debug)]
pub struct Trajectories {
    pub(super) systems: usize,
    pub(super) frames: usize,
    pub(super) particles: usize,
    /// `[systems, frames, 3, particles]`
    pub(super) loc: Vec<f64>,
    /// `[systems, frames, 3, particles]`
    pub(super) vel: Vec<f64>,
    /// `[systems, particles]`
    pub(super) charges: Vec<f64>,
}

impl Trajectories {
    /// Simulates `systems` systems of `particles` particles for `frames` frames (see [`Simulation::sample`]). The
    /// initial state is not among them: frame k is the state after 100·(k + 1) time steps.
    ///
    /// # Errors
    /// [`Error::Argument`] for systems without particles.
    pub fn simulate(
        particles: usize,
        systems: usize,
        frames: usize,
        seed: u64,
        split: Split,
    ) -> Result<Self> {
        Ok(Self::record(Simulation::sample(particles, systems, seed, split)?, frames))
    }

    /// Records `frames` frames of a simulation.
    pub(super) fn record(mut simulation: Simulation, frames: usize) -> Self {
        let (systems, particles) = (simulation.systems(), simulation.particles());
        let size = frames * 3 * particles;
        let (mut loc, mut vel) = (vec![0.0; systems * size], vec![0.0; systems * size]);
        for frame in 0..frames {
            simulation.advance(1);
            for (all, state) in [(&mut loc, simulation.loc()), (&mut vel, simulation.vel())] {
                let width = 3 * particles;
                for (system, values) in state.chunks_exact(width).enumerate() {
                    all[system * size + frame * width..][..width].copy_from_slice(values);
                }
            }
        }
        Self { systems, frames, particles, loc, vel, charges: simulation.charges().to_vec() }
    }

    /// Simulates all [`PUBLISHED_FRAMES`] frames.
    ///
    /// # Errors
    /// As [`Trajectories::simulate`].
    pub fn simulate_published(particles: usize, systems: usize, seed: u64, split: Split) -> Result<Self> {
        Self::simulate(particles, systems, PUBLISHED_FRAMES, seed, split)
    }

    /// Number of systems.
    pub fn systems(&self) -> usize {
        self.systems
    }

    /// Number of frames.
    pub fn frames(&self) -> usize {
        self.frames
    }

    /// Particles of each system.
    pub fn particles(&self) -> usize {
        self.particles
    }

    /// Charges, `[systems, particles]` row-major.
    pub fn charges(&self) -> &[f64] {
        &self.charges
    }

    /// Positions of all systems at `frame`, `[systems, 3, particles]` row-major.
    ///
    /// # Errors
    /// [`Error::Argument`] if there is no such frame.
    pub fn loc_at(&self, frame: usize) -> Result<Vec<f64>> {
        self.at(frame, &self.loc)
    }

    /// Velocities of all systems at `frame`, `[systems, 3, particles]` row-major.
    ///
    /// # Errors
    /// [`Error::Argument`] if there is no such frame.
    pub fn vel_at(&self, frame: usize) -> Result<Vec<f64>> {
        self.at(frame, &self.vel)
    }

    /// The first `systems` systems.
    ///
    /// # Errors
    /// [`Error::Argument`] if there are fewer.
    pub fn take(mut self, systems: usize) -> Result<Self> {
        if systems > self.systems {
            return Err(Error::Argument {
                operation: "n-body trajectories",
                argument: "systems",
                actual: systems.to_string(),
                expected: format!("at most {}, the number there are", self.systems),
            });
        }
        self.systems = systems;
        self.loc.truncate(systems * self.frames * 3 * self.particles);
        self.vel.truncate(systems * self.frames * 3 * self.particles);
        self.charges.truncate(systems * self.particles);
        Ok(self)
    }

    fn at(&self, frame: usize, values: &[f64]) -> Result<Vec<f64>> {
        if frame >= self.frames {
            return Err(Error::Argument {
                operation: "n-body trajectories",
                argument: "frame",
                actual: frame.to_string(),
                expected: format!("less than {}, the number of frames", self.frames),
            });
        }
        let width = 3 * self.particles;
        let start = |system: usize| (system * self.frames + frame) * width;
        Ok((0..self.systems).flat_map(|system| &values[start(system)..][..width]).copied().collect())
    }
}
