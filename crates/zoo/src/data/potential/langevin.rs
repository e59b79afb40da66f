//! Langevin dynamics: snapshots of a motion with friction and noise sample a potential at a temperature.

use super::{Motion, Potential};
use crate::data::cache;
use gradewise_nn::{Error, Result, data::Split};
use rand::{RngExt, SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;

const TIME_STEP: f64 = 0.01;
/// kT.
const TEMPERATURE: f64 = 0.02;
const FRICTION: f64 = 0.5;
/// Stiffness of the springs to the origin that hold a system together. They are not part of the forces to learn.
const CONFINEMENT: f64 = 0.05;
/// Points of the initial cubic grid along an axis, their distance, and the standard deviation of initial displacements.
const GRID: usize = 3;
const SPACING: f64 = 1.1;
const JITTER: f64 = 0.05;
/// Steps before the first snapshot, and steps between snapshots.
const DROPPED: usize = 4000;
const EVERY: usize = 100;

/// The most particles that trajectories of [`Potential::Quadrupole`] and [`Potential::StillingerWeber`] start with: the points of a grid.
pub const MOST_PARTICLES: usize = GRID * GRID * GRID;

/// `samples` snapshots of one trajectory for each split. Particles of mass 1 start on a cubic grid and move by the BAOAB scheme of
/// Leimkuhler and Matthews (2013, doi:10.1093/amrx/abs010), held together by weak springs. A longer trajectory begins with the shorter
/// ones. Snapshots are cached in the user's cache directory (see [`cache`]).
///
/// # Errors
/// [`Error::Argument`] for more particles than the grid has points, or none.
pub(super) fn langevin(
    potential: Potential,
    samples: usize,
    particles: usize,
    seed: u64,
    split: Split,
) -> Result<Motion> {
    if particles == 0 || particles > MOST_PARTICLES {
        return Err(Error::Argument {
            operation: "force field samples",
            argument: "particles",
            actual: particles.to_string(),
            expected: format!(
                "from 1 to {MOST_PARTICLES}, the points of the grid that {potential} starts from"
            ),
        });
    }
    let key = format!(
        "{potential}, {samples} snapshots of {particles} particles, seed {seed}, {split}, BAOAB {TIME_STEP} {TEMPERATURE} \
         {FRICTION} {CONFINEMENT} {SPACING} {JITTER} {DROPPED} {EVERY}"
    );
    let [loc, vel] = cache::arrays(&format!("forces-{potential}-{split}"), &key, ["loc", "vel"], || {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(split as u64 + 1);
        let mut walk = Walk::start(potential, particles, &mut rng);
        walk.steps(if samples > 0 { DROPPED } else { 0 }, &mut rng);
        let (mut loc, mut vel) = (Vec::new(), Vec::new());
        for _ in 0..samples {
            walk.steps(EVERY, &mut rng);
            loc.extend(&walk.motion.loc);
            vel.extend(&walk.motion.vel);
        }
        Ok([loc, vel])
    })?;
    Ok(Motion { loc, vel })
}

/// The state of a running simulation.
struct Walk {
    potential: Potential,
    particles: usize,
    motion: Motion,
    charges: Vec<f64>,
    forces: Vec<f64>,
}

impl Walk {
    /// Random points of the grid, and thermal velocities.
    fn start(potential: Potential, particles: usize, rng: &mut ChaCha8Rng) -> Self {
        let mut points: Vec<usize> = (0..MOST_PARTICLES).collect();
        points.shuffle(rng);
        let coordinate = |point: usize, axis: usize| {
            SPACING * ((point / GRID.pow(axis as u32) % GRID) as f64 - (GRID - 1) as f64 / 2.0)
        };
        let mut motion = Motion { loc: Vec::new(), vel: Vec::new() };
        for axis in 0..3 {
            for &point in &points[..particles] {
                motion.loc.push(coordinate(point, axis) + JITTER * rng.sample::<f64, _>(StandardNormal));
                motion.vel.push(TEMPERATURE.sqrt() * rng.sample::<f64, _>(StandardNormal));
            }
        }
        let mut walk =
            Self { potential, particles, motion, charges: vec![1.0; particles], forces: Vec::new() };
        walk.update();
        walk
    }

    fn update(&mut self) {
        let (_, mut forces) = self.potential.evaluate(self.particles, &self.motion.loc, &self.charges);
        forces.iter_mut().zip(&self.motion.loc).for_each(|(force, x)| *force -= CONFINEMENT * x);
        self.forces = forces;
    }

    /// The BAOAB steps: half a kick, half a drift, friction and noise integrated exactly, half a drift, half a kick.
    fn steps(&mut self, count: usize, rng: &mut ChaCha8Rng) {
        let kept = (-FRICTION * TIME_STEP).exp();
        let noise = (TEMPERATURE * (1.0 - kept * kept)).sqrt();
        let half = 0.5 * TIME_STEP;
        let along = |to: &mut [f64], by: &[f64]| to.iter_mut().zip(by).for_each(|(x, v)| *x += half * v);
        for _ in 0..count {
            along(&mut self.motion.vel, &self.forces);
            along(&mut self.motion.loc, &self.motion.vel);
            for v in &mut self.motion.vel {
                *v = kept * *v + noise * rng.sample::<f64, _>(StandardNormal);
            }
            along(&mut self.motion.loc, &self.motion.vel);
            self.update();
            along(&mut self.motion.vel, &self.forces);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn velocities_have_the_temperature_and_particles_stay_together() {
        let mut rng = ChaCha8Rng::seed_from_u64(5);
        let mut walk = Walk::start(Potential::Quadrupole, 8, &mut rng);
        walk.steps(2000, &mut rng);
        let (mut kinetic, mut count) = (0.0, 0);
        for _ in 0..400 {
            walk.steps(50, &mut rng);
            kinetic += walk.motion.kinetic(8)[0];
            count += 1;
            assert!(walk.motion.loc.iter().all(|x| x.abs() < 6.0));
        }
        // 24 degrees of freedom of ½ kT each.
        let temperature = kinetic / f64::from(count) / 12.0;
        assert!((temperature / TEMPERATURE - 1.0).abs() < 0.1, "{temperature}");
    }
}
