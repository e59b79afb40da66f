//! Molecular dynamics of atoms under forces of any origin.

mod device;
mod drift;
mod state;
#[cfg(test)]
mod tests;

pub use device::{DeviceSimulation, Interaction};
pub use drift::{Mean, drift, mean};
pub use state::{Record, State};

use crate::data::atoms::{Labels, Vector, elements};
use gradewise_nn::{Error, Result};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::StandardNormal;
use serde::{Deserialize, Serialize};

const OPERATION: &str = "molecular dynamics";
/// The Boltzmann constant, in eV/K.
pub const BOLTZMANN: f64 = 8.617_333_262e-5;
/// An acceleration of 1 eV/Å on 1 u, in Å/fs².
pub const ACCELERATION: f64 = 9.648_533_212e-3;
/// The stream of random numbers of initial velocities; those of noise are numbered by steps.
const INITIAL: u64 = u64::MAX;

/// What keeps the temperature.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Thermostat {
    /// Nothing: the energy is constant (velocity Verlet).
    Nve,
    /// Friction and noise (Langevin dynamics by the BAOAB scheme; Leimkuhler and Matthews 2013, doi:10.1093/amrx/abs010).
    Langevin {
        /// In K.
        temperature: f64,
        /// In 1/ps.
        friction: f64,
    },
}

/// How a motion is computed.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Dynamics {
    /// Length of a step, in fs.
    pub dt: f64,
    /// What keeps the temperature.
    pub thermostat: Thermostat,
    /// Seed of initial velocities and of noise.
    pub seed: u64,
}

impl Dynamics {
    /// Refuses numbers that no motion can have.
    ///
    /// # Errors
    /// [`Error::Argument`] for a step or a friction that is not above 0, or a negative temperature.
    pub fn validate(&self) -> Result<()> {
        if !(self.dt > 0.0 && self.dt.is_finite()) {
            return Err(refused(
                "dt",
                format!("{} fs", self.dt),
                "above 0; 0.5 fs suits molecules with hydrogen",
            ));
        }
        let Thermostat::Langevin { temperature, friction } = self.thermostat else { return Ok(()) };
        require_temperature(temperature)?;
        if friction > 0.0 && friction.is_finite() {
            return Ok(());
        }
        Err(refused("friction", format!("{friction}/ps"), "above 0; 1/ps disturbs the motion little"))
    }
}

fn require_temperature(temperature: f64) -> Result<()> {
    if temperature >= 0.0 && temperature.is_finite() {
        return Ok(());
    }
    Err(refused("temperature", format!("{temperature} K"), "at least 0"))
}

/// Atoms in motion.
#[derive(Clone, Debug)]
pub struct Simulation {
    dynamics: Dynamics,
    /// In u.
    masses: Vec<f64>,
    state: State,
}

impl Simulation {
    /// Atoms at rest at `positions` (Å), with `labels` there; then velocities of a temperature (K) from the seed, without a motion of the whole.
    ///
    /// # Errors
    /// Settings that [`Dynamics::validate`] refuses, a negative temperature, species that are no elements, and forces that are not finite.
    pub fn start(
        dynamics: Dynamics,
        numbers: &[u8],
        positions: Vec<Vector>,
        labels: Labels,
        temperature: f64,
    ) -> Result<Self> {
        require_temperature(temperature)?;
        let state = State {
            step: 0,
            velocities: vec![[0.0; 3]; positions.len()],
            positions,
            forces: labels.forces,
            potential: labels.energy,
            heat: 0.0,
        };
        let mut simulation = Self::resume(dynamics, numbers, state)?;
        simulation.draw_velocities(temperature);
        Ok(simulation)
    }

    /// Goes on from a state: the same bits follow as if the motion had not stopped, from equal forces.
    ///
    /// # Errors
    /// As [`start`](Self::start); numbers of atoms that disagree.
    pub fn resume(dynamics: Dynamics, numbers: &[u8], state: State) -> Result<Self> {
        dynamics.validate()?;
        let mass = |&number: &u8| {
            elements::mass(number)
                .ok_or_else(|| refused("species", number.to_string(), "atomic numbers from 1 to 118"))
        };
        let masses: Vec<f64> = numbers.iter().map(mass).collect::<Result<_>>()?;
        let lengths = [state.positions.len(), state.velocities.len(), state.forces.len()];
        if masses.is_empty() || lengths.iter().any(|&length| length != masses.len()) {
            let actual = format!("{lengths:?} positions, velocities and forces of {} atoms", masses.len());
            return Err(refused(
                "state",
                actual,
                "at least one atom, and a position, velocity and force of each",
            ));
        }
        state.require_finite()?;
        Ok(Self { dynamics, masses, state })
    }

    fn draw_velocities(&mut self, temperature: f64) {
        let mut rng = self.random(INITIAL);
        for (v, mass) in self.state.velocities.iter_mut().zip(&self.masses) {
            let deviation = (BOLTZMANN * temperature * ACCELERATION / mass).sqrt();
            *v = [(); 3].map(|()| deviation * rng.sample::<f64, _>(StandardNormal));
        }
        let whole: f64 = self.masses.iter().sum();
        for axis in 0..3 {
            let momentum: f64 =
                self.state.velocities.iter().zip(&self.masses).map(|(v, mass)| v[axis] * mass).sum();
            self.state.velocities.iter_mut().for_each(|v| v[axis] -= momentum / whole);
        }
    }

    /// Random numbers that depend on the seed and the step alone, so that none need be kept for going on.
    fn random(&self, stream: u64) -> ChaCha8Rng {
        let mut rng = ChaCha8Rng::seed_from_u64(self.dynamics.seed);
        rng.set_stream(stream);
        rng
    }

    /// Takes a step, with the energy and forces at new positions from `evaluate`.
    ///
    /// # Errors
    /// Those of `evaluate`; [`Error::NotFinite`] for energies or forces that are not finite. The state is then that before the step.
    pub fn step(&mut self, evaluate: impl FnOnce(&[Vector]) -> Result<Labels>) -> Result<()> {
        let Dynamics { dt, thermostat, .. } = self.dynamics;
        let mut next = self.state.clone();
        next.step += 1;
        self.kick(&mut next, 0.5 * dt);
        match thermostat {
            Thermostat::Nve => drift_by(&mut next, dt),
            Thermostat::Langevin { temperature, friction } => {
                drift_by(&mut next, 0.5 * dt);
                self.exchange(&mut next, temperature, friction);
                drift_by(&mut next, 0.5 * dt);
            }
        }
        let labels = evaluate(&next.positions)?;
        (next.potential, next.forces) = (labels.energy, labels.forces);
        next.require_finite()?;
        self.kick(&mut next, 0.5 * dt);
        self.state = next;
        Ok(())
    }

    fn kick(&self, state: &mut State, time: f64) {
        for ((v, force), mass) in state.velocities.iter_mut().zip(&state.forces).zip(&self.masses) {
            for axis in 0..3 {
                v[axis] += time * ACCELERATION / mass * force[axis];
            }
        }
    }

    /// Friction and noise for a step, exactly; notes the heat that flows in.
    fn exchange(&self, state: &mut State, temperature: f64, friction: f64) {
        let before = self.kinetic_of(&state.velocities);
        // The friction is in 1/ps, the step in fs.
        let kept = (-1e-3 * friction * self.dynamics.dt).exp();
        let mut rng = self.random(state.step);
        for (v, mass) in state.velocities.iter_mut().zip(&self.masses) {
            let noise = (BOLTZMANN * temperature * ACCELERATION / mass * (1.0 - kept * kept)).sqrt();
            *v = v.map(|v| kept * v + noise * rng.sample::<f64, _>(StandardNormal));
        }
        state.heat += self.kinetic_of(&state.velocities) - before;
    }

    fn kinetic_of(&self, velocities: &[Vector]) -> f64 {
        let of = |(v, mass): (&Vector, &f64)| 0.5 * mass * v.iter().map(|v| v * v).sum::<f64>();
        velocities.iter().zip(&self.masses).map(of).sum::<f64>() / ACCELERATION
    }

    /// Degrees of freedom: three for each atom, less those of the whole where nothing changes its momentum.
    pub fn freedom(&self) -> usize {
        let all = 3 * self.masses.len();
        match self.dynamics.thermostat {
            Thermostat::Nve => all.saturating_sub(3),
            Thermostat::Langevin { .. } => all,
        }
    }

    /// How the motion is computed.
    pub fn dynamics(&self) -> Dynamics {
        self.dynamics
    }

    /// The state now.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Energies and temperature now.
    pub fn record(&self) -> Record {
        let kinetic = self.kinetic_of(&self.state.velocities);
        let total = self.state.potential + kinetic;
        Record {
            step: self.state.step,
            time: self.state.step as f64 * self.dynamics.dt,
            potential: self.state.potential,
            kinetic,
            total,
            conserved: total - self.state.heat,
            temperature: 2.0 * kinetic / (BOLTZMANN * self.freedom().max(1) as f64),
        }
    }
}

fn drift_by(state: &mut State, time: f64) {
    for (x, v) in state.positions.iter_mut().zip(&state.velocities) {
        for axis in 0..3 {
            x[axis] += time * v[axis];
        }
    }
}

fn refused(argument: &'static str, actual: String, expected: &str) -> Error {
    Error::Argument { operation: OPERATION, argument, actual, expected: expected.to_owned() }
}
