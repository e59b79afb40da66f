//! Collecting the jets of a file.

use super::{FourMomentum, JetSets, momenta::Momenta, sets::OPERATION};
use gradewise_nn::{Error, Result, data::Split};
use std::path::{Path, PathBuf};

/// A shuffled file does not begin with this many jets of one class.
const ONE_CLASS: usize = 64;
/// Squared masses below −10⁻³ of the squared energy are no rounding, not even of 16 bits.
const SPACELIKE: f64 = 1e-3;
/// Jets whose transverse momenta decide the unit.
const WEIGHED: usize = 1000;
/// In GeV: half of what protons of the largest collider that is planned have. The median of a sample of jets in GeV is below.
const LARGEST: f64 = 50_000.0;

/// Collects the jets of a file.
pub(super) struct Kept {
    path: PathBuf,
    particles: usize,
    pub(super) limit: usize,
    /// The particles of the current jet.
    pub(super) jet: Vec<FourMomentum>,
    /// The number of jets read, and of those without a mass.
    seen: usize,
    massless: usize,
    /// Transverse momenta of the first jets.
    transverse: Vec<f64>,
    momenta: Momenta,
    labels: Vec<bool>,
}

impl Kept {
    pub fn new(path: &Path, particles: usize, limit: usize) -> Self {
        let (path, jet, momenta, labels) = (path.to_owned(), Vec::new(), Momenta::new(), Vec::new());
        Self { path, particles, limit, jet, seen: 0, massless: 0, transverse: Vec::new(), momenta, labels }
    }

    /// Adds jets of `momenta` `[jets, stored, 4]`, up to the limit.
    pub fn extend(&mut self, stored: usize, momenta: &[f64], labels: &[f64]) -> Result<()> {
        let room = self.limit - self.seen;
        for (position, &label) in labels.iter().enumerate().take(room) {
            let numbers = momenta.iter().skip(position * stored * 4).take(stored * 4).copied();
            let numbers: Vec<f64> = numbers.collect();
            self.jet.clear();
            self.jet
                .extend(numbers.chunks_exact(4).map(|row| FourMomentum([row[0], row[1], row[2], row[3]])));
            self.push(label)?;
        }
        Ok(())
    }

    /// Adds the current jet.
    pub fn push(&mut self, label: f64) -> Result<()> {
        let number = self.seen;
        self.seen += 1;
        for (particle, momentum) in self.jet.iter().enumerate() {
            if let Some(axis) = momentum.0.iter().position(|value| !value.is_finite()) {
                return Err(Error::NotFinite {
                    operation: OPERATION,
                    argument: self.path.display().to_string(),
                    index: vec![number, particle, axis],
                    value: momentum.0[axis],
                });
            }
        }
        if label != 0.0 && label != 1.0 {
            return Err(self.refused(format!(
                "jet {number} is of class {label}; expected are 1 for signal and 0 for background"
            )));
        }
        if let Some(particle) = self.jet.iter().position(|momentum| !is_physical(momentum)) {
            let [energy, x, y, z] = self.jet[particle].0;
            return Err(self.refused(format!(
                "particle {particle} of jet {number} has the energy {energy} and the momentum ({x}, {y}, {z}), and no particle is spacelike or \
                 of negative energy; rows are E, px, py, pz, in this order"
            )));
        }
        // Removes padding and beam particles.
        self.jet.retain(|particle| particle.transverse() > 0.0);
        if !self.jet.is_sorted_by(|a, b| a.transverse() >= b.transverse()) {
            self.jet.sort_by(|a, b| b.transverse().total_cmp(&a.transverse()));
        }
        self.jet.truncate(self.particles);
        let total = self.jet.iter().fold(FourMomentum([0.0; 4]), |sum, particle| sum.plus(particle));
        if self.transverse.len() < WEIGHED {
            self.transverse.push(total.transverse());
        }
        if total.square() <= 0.0 {
            self.massless += 1;
            return Ok(());
        }
        self.momenta.push(self.jet.iter().copied());
        self.labels.push(label == 1.0);
        Ok(())
    }

    fn refused(&self, reason: String) -> Error {
        Error::DataSet { path: self.path.clone(), reason }
    }

    pub fn finish(mut self, split: Split) -> Result<JetSets> {
        if self.massless > 0 {
            tracing::warn!(
                "{}: {} of {} jets are left out: their first {} particles have no mass together",
                self.path.display(),
                self.massless,
                self.seen,
                self.particles
            );
        }
        let signal = self.labels.iter().filter(|&&label| label).count();
        if self.labels.is_empty() || (self.labels.len() >= ONE_CLASS && signal % self.labels.len() == 0) {
            let reason = if self.labels.is_empty() {
                format!("none of the {} jets read can be used", self.seen)
            } else {
                format!(
                    "the first {} jets are of one class; shuffle the file, or raise data.{split} to read more",
                    self.seen
                )
            };
            return Err(self.refused(reason));
        }
        self.transverse.sort_by(f64::total_cmp);
        let median = self.transverse[self.transverse.len() / 2];
        if median > LARGEST {
            return Err(self.refused(format!(
                "half of the first {} jets have a transverse momentum above {median:.0}; GeV are expected, and these are MeV, it seems: divide \
                 them by 1000",
                self.transverse.len()
            )));
        }
        JetSets::of(self.particles, self.momenta, self.labels)
    }
}

/// Whether a momentum is that of a particle, or of none, up to rounding.
fn is_physical(momentum: &FourMomentum) -> bool {
    let energy = momentum.0[0];
    energy >= 0.0 && momentum.square() >= -SPACELIKE * energy * energy
}
