//! What a motion is at one moment.

use super::OPERATION;
use crate::data::atoms::Vector;
use gradewise_nn::{Error, Result};
use serde::{Deserialize, Serialize};

/// What the next step follows from.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct State {
    /// Steps taken.
    pub step: u64,
    /// In Å; they leave the cell where atoms do.
    pub positions: Vec<Vector>,
    /// In Å/fs.
    pub velocities: Vec<Vector>,
    /// At these positions, in eV/Å.
    pub forces: Vec<Vector>,
    /// The potential energy, in eV.
    pub potential: f64,
    /// The energy that came from the thermostat, in eV.
    pub heat: f64,
}

/// Energies at one moment, in eV.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Record {
    /// Steps taken.
    pub step: u64,
    /// In fs.
    pub time: f64,
    /// The potential energy.
    pub potential: f64,
    /// The kinetic energy.
    pub kinetic: f64,
    /// Their sum.
    pub total: f64,
    /// The total less the heat from the thermostat: constant but for the errors of steps and of forces.
    pub conserved: f64,
    /// In K.
    pub temperature: f64,
}

impl State {
    /// # Errors
    /// [`Error::NotFinite`] that names what is not finite.
    pub(super) fn require_finite(&self) -> Result<()> {
        let energies = [[self.potential, self.heat, 0.0]];
        for (argument, vectors) in [
            ("positions", &self.positions[..]),
            ("velocities", &self.velocities[..]),
            ("forces", &self.forces[..]),
            ("energies", &energies[..]),
        ] {
            let flat = vectors.as_flattened();
            if let Some(at) = flat.iter().position(|x| !x.is_finite()) {
                return Err(Error::NotFinite {
                    operation: OPERATION,
                    argument: argument.to_owned(),
                    index: vec![at / 3, at % 3],
                    value: flat[at],
                });
            }
        }
        Ok(())
    }
}
