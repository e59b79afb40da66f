//! The systems of the published charged n-body data set, reproduced exactly from its seed.
//!
//! `generate_dataset.py --num-train 10000 --seed 43 --sufix small` of Satorras et al., "E(n) equivariant graph neural networks" (2021,
//! arXiv:2102.09844): 10,000 training, 2,000 validation and 2,000 test systems, drawn one after the other from one stream. The publications
//! train on the first 3,000.

use super::{INPUT_FRAME, NBodyData, PARTICLES, PUBLISHED_FRAMES, Simulation, TARGET_FRAME, Trajectories};
use crate::data::{cache, numpy::RandomState};
use gradewise_nn::{Error, Result, data::Split};

const SEED: u32 = 43;
/// Half the side of the box: initial positions beyond it are reflected. The published generator ignores the walls during the motion.
const BOX: f64 = 5.0;
const SPEED: f64 = 0.5;
/// The charges −1, 0 and 1 with their probabilities, in the order of the published generator.
const CHARGES: [(f64, f64); 3] = [(-1.0, 0.5), (0.0, 0.0), (1.0, 0.5)];
/// Normal deviates of the noise on positions and velocities of a trajectory; it is multiplied by 0.
const NOISE: usize = 2 * PUBLISHED_FRAMES * 3 * PARTICLES;

/// Initial states as drawn. Arrays are row-major.
#[derive(Clone, PartialEq, Debug)]
pub struct PublishedDraws {
    /// ±1, `[systems, 5]`.
    pub charges: Vec<f64>,
    /// Positions `[systems, 3, 5]`, before those outside the box are reflected.
    pub loc: Vec<f64>,
    /// Velocities `[systems, 3, 5]` of length 0.5.
    pub vel: Vec<f64>,
}

impl PublishedDraws {
    /// The number of systems of a split.
    pub const fn available(split: Split) -> usize {
        match split {
            Split::Train => 10_000,
            Split::Valid | Split::Test => 2_000,
        }
    }

    /// The first `systems` systems of a split.
    ///
    /// # Errors
    /// [`Error::Argument`] if the split has fewer.
    pub fn new(split: Split, systems: usize) -> Result<Self> {
        let available = Self::available(split);
        if systems > available {
            return Err(Error::Argument {
                operation: "published n-body systems",
                argument: "systems",
                actual: systems.to_string(),
                expected: format!(
                    "at most {available}, the published {split} systems; data.source=simulate has any number"
                ),
            });
        }
        let before: usize =
            Split::ALL.into_iter().take_while(|&earlier| earlier != split).map(Self::available).sum();
        let mut random = RandomState::new(SEED);
        for _ in 0..before {
            for _ in 0..PARTICLES {
                random.uniform();
            }
            random.skip_normals(2 * 3 * PARTICLES + NOISE);
        }
        let mut draws = Self { charges: Vec::new(), loc: Vec::new(), vel: Vec::new() };
        for _ in 0..systems {
            draws.add(&mut random);
        }
        Ok(draws)
    }

    fn add(&mut self, random: &mut RandomState) {
        let probabilities = CHARGES.map(|(_, probability)| probability);
        self.charges.extend((0..PARTICLES).map(|_| CHARGES[random.choice(&probabilities)].0));
        self.loc.extend((0..3 * PARTICLES).map(|_| random.normal()));
        let directions: [f64; 3 * PARTICLES] = std::array::from_fn(|_| random.normal());
        for (index, component) in directions.iter().enumerate() {
            let [x, y, z] = std::array::from_fn(|axis| directions[axis * PARTICLES + index % PARTICLES]);
            let norm: f64 = (x * x + y * y + z * z).sqrt();
            self.vel.push(component * SPEED / norm);
        }
        random.skip_normals(NOISE);
    }

    /// The simulation of these systems, with initial positions beyond the box reflected.
    fn simulation(&self) -> Result<Simulation> {
        let (mut loc, mut vel) = (self.loc.clone(), self.vel.clone());
        for (x, v) in loc.iter_mut().zip(&mut vel) {
            if *x > BOX {
                (*x, *v) = (2.0 * BOX - *x, -v.abs());
            } else if *x < -BOX {
                (*x, *v) = (-2.0 * BOX - *x, v.abs());
            }
        }
        Simulation::new(PARTICLES, &loc, &vel, &self.charges)
    }
}

impl Trajectories {
    /// The first `systems` systems of a split of the published data set, for `frames` frames.
    ///
    /// # Errors
    /// [`Error::Argument`] if the split has fewer systems.
    pub fn published(split: Split, systems: usize, frames: usize) -> Result<Self> {
        Ok(Self::record(PublishedDraws::new(split, systems)?.simulation()?, frames))
    }
}

impl NBodyData {
    /// The published task on the first `systems` systems of a split of the published data set: from the state at frame 30 to the positions
    /// at frame 40. They are simulated once and kept in the user's cache directory (see [`cache`]).
    ///
    /// # Errors
    /// [`Error::Argument`] if the split has fewer systems.
    pub fn published(split: Split, systems: usize) -> Result<Self> {
        let key = format!(
            "charged n-body, seed {SEED}, {split}, {systems} systems, frames {INPUT_FRAME} and {TARGET_FRAME}"
        );
        let names = ["charges", "loc", "vel", "target", "target_vel"];
        let [charges, loc, vel, target, target_vel] = cache::arrays("nbody", &key, names, || {
            let data = Self::from_trajectories(&Trajectories::published(split, systems, TARGET_FRAME + 1)?)?;
            let Self { charges, loc, vel, target, target_vel, .. } = data;
            Ok([charges, loc, vel, target, target_vel.unwrap_or_default()])
        })?;
        Self::new(PARTICLES, loc, vel, charges, target)?.with_target_velocities(target_vel)
    }
}
