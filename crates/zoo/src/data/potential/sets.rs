//! Snapshots of the motion with their energies and forces.

use super::{Motion, Potential, langevin::langevin, velocity_verlet};
use crate::data::nbody::NBodyBatch;
use gradewise_autograd::Tensor;
use gradewise_kernels::Device;
use gradewise_nn::{
    Error, Placement, Result,
    data::{Batch, Samples, Split, check_finite, overwrite, to_device},
    symmetry::Isometry,
};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;
use rayon::prelude::*;

/// Time step of the simulated motion.
const TIME_STEP: f64 = 0.01;
/// The latest step at which a snapshot is taken.
const LATEST: usize = 1000;
/// Standard deviation of velocities at the start.
const SPEED: f64 = 0.5;

/// Snapshots of systems in motion. All arrays are row-major.
#[derive(Clone, PartialEq, Debug)]
pub struct ForceData {
    potential: Potential,
    particles: usize,
    motion: Motion,
    charges: Vec<f64>,
    energy: Vec<f64>,
    force: Vec<f64>,
}

impl ForceData {
    /// Systems in given states, `[systems, 3, particles]`, with charges `[systems, particles]`; energies and forces are those of the
    /// potential's closed form.
    ///
    /// # Errors
    /// [`Error::Argument`] if the lengths disagree; [`Error::NotFinite`].
    pub fn new(potential: Potential, particles: usize, motion: Motion, charges: Vec<f64>) -> Result<Self> {
        const OPERATION: &str = "force field samples";
        let length = 3 * charges.len();
        let whole = particles > 0 && charges.len().is_multiple_of(particles);
        if !whole || motion.loc.len() != length || motion.vel.len() != length {
            return Err(Error::Argument {
                operation: OPERATION,
                argument: "motion",
                actual: format!("{} positions, {} velocities", motion.loc.len(), motion.vel.len()),
                expected: format!(
                    "{length} of each, for {} charges of {particles} to a system",
                    charges.len()
                ),
            });
        }
        let shape = [charges.len() / particles, 3, particles];
        check_finite(OPERATION, "loc", &shape, &motion.loc)?;
        check_finite(OPERATION, "vel", &shape, &motion.vel)?;
        check_finite(OPERATION, "charges", &[shape[0], particles], &charges)?;
        let (energy, force) = potential.evaluate(particles, &motion.loc, &charges);
        Ok(Self { potential, particles, motion, charges, energy, force })
    }

    /// Samples of a potential. [`Potential::Charges`]: [`simulate`](Self::simulate). The others: snapshots of one trajectory for each split
    /// at a temperature of 0.02, with charges of 1; a longer trajectory begins with the shorter ones. They are cached in the user's cache
    /// directory.
    ///
    /// # Errors
    /// [`Error::Argument`] for systems without particles, or with more particles than the initial grid has points.
    pub fn sample(
        potential: Potential,
        systems: usize,
        particles: usize,
        seed: u64,
        split: Split,
    ) -> Result<Self> {
        match potential {
            Potential::Charges => Self::simulate(systems, particles, seed, split),
            Potential::Quadrupole | Potential::StillingerWeber => {
                let motion = langevin(potential, systems, particles, seed, split)?;
                Self::new(potential, particles, motion, vec![1.0; systems * particles])
            }
        }
    }

    /// Charges bound by springs: systems drawn at random, with charges ±1, at a random time within the following ten units of time. System
    /// `i` depends only on `(seed, split, i)`.
    ///
    /// # Errors
    /// [`Error::Argument`] for systems without particles.
    pub fn simulate(systems: usize, particles: usize, seed: u64, split: Split) -> Result<Self> {
        if particles == 0 {
            return Err(Error::Argument {
                operation: "force field samples",
                argument: "particles",
                actual: "0".to_owned(),
                expected: "at least 1".to_owned(),
            });
        }
        let draw = |system: usize| -> Result<(Motion, Vec<f64>)> {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            // 2⁵⁶ systems per split before two streams could meet.
            rng.set_stream(((split as u64 + 1) << 56) | system as u64);
            let charges: Vec<f64> = (0..particles).map(|_| if rng.random() { 1.0 } else { -1.0 }).collect();
            let mut normal = |deviation: f64| -> Vec<f64> {
                (0..3 * particles).map(|_| deviation * rng.sample::<f64, _>(StandardNormal)).collect()
            };
            let mut motion = Motion { loc: normal(1.0), vel: normal(SPEED) };
            let steps = rng.random_range(0..=LATEST);
            let forces = |loc: &[f64]| Ok(super::potential(particles, loc, &charges).1);
            velocity_verlet(&mut motion, (steps, TIME_STEP), forces, |_, _| Ok(()))?;
            Ok((motion, charges))
        };
        let drawn = (0..systems).into_par_iter().map(draw).collect::<Result<Vec<_>>>()?;
        let mut all = (Motion { loc: Vec::new(), vel: Vec::new() }, Vec::new());
        for (motion, charges) in drawn {
            all.0.loc.extend(motion.loc);
            all.0.vel.extend(motion.vel);
            all.1.extend(charges);
        }
        Self::new(Potential::Charges, particles, all.0, all.1)
    }

    /// The potential that gives the energies and forces.
    pub fn potential(&self) -> Potential {
        self.potential
    }

    /// Particles of each system.
    pub fn particles(&self) -> usize {
        self.particles
    }

    /// Positions and velocities.
    pub fn motion(&self) -> &Motion {
        &self.motion
    }

    /// Charges, `[systems, particles]`.
    pub fn charges(&self) -> &[f64] {
        &self.charges
    }

    /// Potential energies, `[systems]`.
    pub fn energy(&self) -> &[f64] {
        &self.energy
    }

    /// Forces, `[systems, 3, particles]`.
    pub fn force(&self) -> &[f64] {
        &self.force
    }

    /// The first `systems` systems, or all if there are fewer.
    #[must_use]
    pub fn take(mut self, systems: usize) -> Self {
        let nodes = systems * self.particles;
        for values in [&mut self.motion.loc, &mut self.motion.vel, &mut self.force] {
            values.truncate(3 * nodes);
        }
        self.charges.truncate(nodes);
        self.energy.truncate(systems);
        self
    }

    /// The systems turned by an isometry of space, then moved by `shift`.
    ///
    /// # Errors
    /// As [`ForceData::new`].
    pub fn moved(&self, isometry: &Isometry, shift: [f64; 3]) -> Result<Self> {
        let motion = Motion {
            loc: turned(&self.motion.loc, self.particles, isometry, shift)?,
            vel: turned(&self.motion.vel, self.particles, isometry, [0.0; 3])?,
        };
        Self::new(self.potential, self.particles, motion, self.charges.clone())
    }
}

/// Applies an isometry of space to vectors `[systems, 3, particles]`, then translates them by `shift`.
///
/// # Errors
/// [`Error::Argument`] for an isometry of another dimension.
pub fn turned(values: &[f64], particles: usize, isometry: &Isometry, shift: [f64; 3]) -> Result<Vec<f64>> {
    let mut moved = values.to_vec();
    let width = (3 * particles).max(1);
    for (system, moved) in values.chunks_exact(width).zip(moved.chunks_exact_mut(width)) {
        for particle in 0..particles {
            let vector = [0, 1, 2].map(|axis| system[axis * particles + particle]);
            for (axis, (x, shift)) in isometry.apply(&vector)?.into_iter().zip(shift).enumerate() {
                moved[axis * particles + particle] = x + shift;
            }
        }
    }
    Ok(moved)
}

/// A batch of systems with the forces to learn.
#[derive(Clone, Debug)]
pub struct ForceExample {
    /// Positions and charges; the velocities are not used.
    pub batch: NBodyBatch,
    /// `[3, systems × particles]`
    pub forces: Tensor,
}

impl Samples for ForceData {
    type Batch = ForceExample;

    fn len(&self) -> usize {
        self.energy.len()
    }

    fn batch(&self, indices: &[usize], placement: &Placement) -> Result<ForceExample> {
        let gather = |values: &[f64], width: usize| -> Vec<f64> {
            indices.iter().flat_map(|&index| &values[index * width..][..width]).copied().collect()
        };
        let n = self.particles;
        let (loc, vel) = (gather(&self.motion.loc, 3 * n), gather(&self.motion.vel, 3 * n));
        let batch = NBodyBatch::new((&loc, &vel, &gather(&self.charges, n)), n, placement)?;
        let forces = batch.targets(&gather(&self.force, 3 * n))?;
        Ok(ForceExample { batch, forces })
    }
}

impl Batch for ForceExample {
    fn to_device(&self, device: &Device) -> Result<Self> {
        Ok(Self { batch: self.batch.to_device(device)?, forces: to_device(&self.forces, device)? })
    }

    fn overwrite(&self, source: &Self) -> Result<bool> {
        if self.forces.shape() != source.forces.shape() || !self.batch.overwrite(&source.batch)? {
            return Ok(false);
        }
        overwrite(&[(&self.forces, &source.forces)])
    }

    fn scaled(&self, factor: f64) -> Result<Option<Self>> {
        Ok(Some(Self { batch: self.batch.scaled(factor)?, forces: self.forces.clone() }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshots_depend_on_their_number_alone_and_stay_bound() {
        let few = ForceData::simulate(4, 5, 3, Split::Train).unwrap();
        let many = ForceData::simulate(50, 5, 3, Split::Train).unwrap();
        assert_eq!(many.clone().take(4), few);
        assert_ne!(ForceData::simulate(4, 5, 3, Split::Test).unwrap(), few);
        assert!(many.motion().loc.iter().all(|x| x.abs() < 40.0));
        assert!(ForceData::simulate(1, 0, 0, Split::Train).is_err());
    }

    #[test]
    fn snapshots_of_a_longer_trajectory_begin_with_those_of_a_shorter_one() {
        for potential in [Potential::Quadrupole, Potential::StillingerWeber] {
            let sample = |systems, split| ForceData::sample(potential, systems, 6, 2, split).unwrap();
            let (few, many) = (sample(2, Split::Train), sample(5, Split::Train));
            assert_eq!(many.clone().take(2), few);
            assert_eq!(many, sample(5, Split::Train), "from the cache as when it was made");
            assert_ne!(sample(2, Split::Test), few);
            let distinct = many.energy().windows(2).all(|pair| pair[0] != pair[1]);
            assert!(distinct, "{potential} moves: {:?}", many.energy());
            assert!(sample(0, Split::Valid).energy().is_empty());
        }
        let error = ForceData::sample(Potential::Quadrupole, 1, 28, 0, Split::Train).unwrap_err().to_string();
        assert!(error.contains("28") && error.contains("27"), "{error}");
    }

    #[test]
    fn energies_stay_and_forces_turn_under_motions() {
        let data = ForceData::simulate(6, 4, 1, Split::Valid).unwrap();
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let isometry = Isometry::random(gradewise_core::Signature::CL3, 3, &mut rng).unwrap();
        let moved = data.moved(&isometry, [1.0, -2.0, 0.5]).unwrap();
        let close = |a: &[f64], b: &[f64]| gradewise_nn::symmetry::relative_distance(a, b) < 1e-12;
        assert!(close(moved.energy(), data.energy()));
        assert!(close(moved.force(), &turned(data.force(), 4, &isometry, [0.0; 3]).unwrap()));
    }
}
