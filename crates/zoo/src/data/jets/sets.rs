//! Jets with their class.

use super::{
    momenta::Momenta,
    shower::{FourMomentum, one_prong, smeared, three_prong},
};
use gradewise_nn::{
    Error, Result,
    data::{Split, check_finite},
    symmetry::Isometry,
};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;

pub(super) const OPERATION: &str = "jets";

/// Jets of four-momenta, each with its class: 1 for three prongs, 0 for one.
#[derive(Clone, PartialEq, Debug)]
pub struct JetSets {
    particles: usize,
    multiple: usize,
    momenta: Momenta,
    labels: Vec<bool>,
}

impl JetSets {
    /// Jets from row-major `momenta` `[jets, particles, 4]` (E, px, py, pz); rows of zeros are no particles.
    ///
    /// # Errors
    /// [`Error::Argument`] if the lengths disagree, or for a jet whose total momentum is not time-like; [`Error::NotFinite`].
    pub fn new(particles: usize, momenta: &[f64], labels: Vec<bool>) -> Result<Self> {
        if particles == 0 || momenta.len() != labels.len() * particles * 4 {
            return Err(Error::Argument {
                operation: OPERATION,
                argument: "momenta",
                actual: format!("{} numbers", momenta.len()),
                expected: format!("{} jets of {particles} particles of 4, neither 0", labels.len()),
            });
        }
        check_finite(OPERATION, "momenta", &[labels.len(), particles, 4], momenta)?;
        let mut kept = Momenta::new();
        for jet in momenta.chunks_exact(particles * 4) {
            let rows = jet.chunks_exact(4).map(|row| FourMomentum([row[0], row[1], row[2], row[3]]));
            kept.push(rows.filter(|row| row.0 != [0.0; 4]));
        }
        Self::of(particles, kept, labels)
    }

    /// Jets of at most `particles` particles each, all finite.
    pub(super) fn of(particles: usize, mut momenta: Momenta, labels: Vec<bool>) -> Result<Self> {
        momenta.shrink_to_fit();
        let jets = Self { particles, multiple: 1, momenta, labels };
        if let Some(bad) = (0..jets.labels.len()).find(|&jet| jets.total(jet).square() <= 0.0) {
            return Err(Error::Argument {
                operation: OPERATION,
                argument: "momenta",
                actual: format!("jet {bad} has the total momentum {:?}", jets.total(bad).0),
                expected: "a positive squared mass: at least two particles that do not fly in parallel"
                    .to_owned(),
            });
        }
        Ok(jets)
    }

    /// Jets of both classes with equal probability, the `particles` of largest transverse momentum of each, with an error of
    /// measurement. Jet `i` depends only on `(seed, split, i)`, and on `particles`.
    ///
    /// # Errors
    /// [`Error::Argument`] for fewer than two particles.
    pub fn simulate(jets: usize, particles: usize, seed: u64, split: Split) -> Result<Self> {
        if particles < 2 {
            return Err(Error::Argument {
                operation: OPERATION,
                argument: "particles",
                actual: particles.to_string(),
                expected: "at least 2".to_owned(),
            });
        }
        let draw = |index: usize| {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            // 2⁵⁶ jets per split before two streams could meet.
            rng.set_stream(((split as u64 + 1) << 56) | index as u64);
            let label = rng.random();
            let exact = if label { three_prong(&mut rng) } else { one_prong(&mut rng) };
            let mut seen: Vec<FourMomentum> =
                exact.iter().map(|particle| smeared(particle, &mut rng)).collect();
            seen.sort_by(|a, b| b.transverse().total_cmp(&a.transverse()));
            seen.truncate(particles);
            (seen, label)
        };
        let drawn: Vec<(Vec<FourMomentum>, bool)> = (0..jets).into_par_iter().map(draw).collect();
        let (mut momenta, mut labels) = (Momenta::new(), Vec::with_capacity(jets));
        for (jet, label) in drawn {
            momenta.push(jet);
            labels.push(label);
        }
        Self::of(particles, momenta, labels)
    }

    /// Pads batches to a multiple of so many particles, at least 1, or to [`particles`](Self::particles) if that is less, in place of their longest
    /// jet: batches then have fewer shapes, for each of which a GPU records a step of its own.
    #[must_use]
    pub fn padded_to(self, multiple: usize) -> Self {
        Self { multiple: multiple.max(1), ..self }
    }

    /// The number of particles of a batch whose longest jet has `longest`: no more than any jet can have. Messages need a pair.
    pub(super) fn padded(&self, longest: usize) -> usize {
        longest.next_multiple_of(self.multiple).min(self.particles).max(2)
    }

    /// The first `jets` jets, or all if there are fewer.
    #[must_use]
    pub fn take(mut self, jets: usize) -> Self {
        self.momenta.truncate(jets);
        self.labels.truncate(jets);
        self
    }

    /// The most particles of a jet that were kept.
    pub fn particles(&self) -> usize {
        self.particles
    }

    /// The particles of a jet, below [`labels`](Self::labels)`.len()`.
    pub fn jet(&self, jet: usize) -> impl ExactSizeIterator<Item = FourMomentum> {
        self.momenta.jet(jet)
    }

    /// The number of particles of a jet.
    pub fn count(&self, jet: usize) -> usize {
        self.momenta.particles(jet)
    }

    /// Four-momenta, `[jets, particles, 4]`, zero where a jet has fewer particles.
    pub fn momenta(&self) -> Vec<f64> {
        let mut momenta = vec![0.0; self.labels.len() * self.particles * 4];
        for (jet, rows) in momenta.chunks_exact_mut(self.particles * 4).enumerate() {
            for (row, particle) in rows.chunks_exact_mut(4).zip(self.jet(jet)) {
                row.copy_from_slice(&particle.0);
            }
        }
        momenta
    }

    /// Which jets have three prongs.
    pub fn labels(&self) -> &[bool] {
        &self.labels
    }

    /// The memory of the momenta, in bytes: 16 a particle where all numbers are of single precision, else 32.
    pub fn bytes(&self) -> usize {
        self.momenta.bytes()
    }

    /// The jets, those of like numbers of particles together, in groups of at most `most` whose pairs of particles, padding included, are at
    /// most `pairs`: for evaluation.
    pub fn groups(&self, most: usize, pairs: usize) -> Vec<Vec<usize>> {
        let mut order: Vec<usize> = (0..self.labels.len()).collect();
        order.sort_by_key(|&jet| self.count(jet));
        let mut groups: Vec<Vec<usize>> = Vec::new();
        for jet in order {
            let fits = |group: &Vec<usize>| {
                group.len() < most && (group.len() + 1) * self.count(jet).pow(2) <= pairs
            };
            match groups.last_mut().filter(|group| fits(group)) {
                Some(group) => group.push(jet),
                None => groups.push(vec![jet]),
            }
        }
        groups
    }

    /// Applies a Lorentz transformation to the jets.
    ///
    /// # Errors
    /// [`Error::Argument`] for an isometry of another dimension.
    pub fn moved(self, isometry: &Isometry) -> Result<Self> {
        let mut momenta = Momenta::new();
        for jet in 0..self.labels.len() {
            let mut numbers: Vec<f64> = self.jet(jet).flat_map(|particle| particle.0).collect();
            isometry.apply_all(&mut numbers)?;
            momenta.push(numbers.chunks_exact(4).map(|row| FourMomentum([row[0], row[1], row[2], row[3]])));
        }
        Ok(Self { momenta, ..self })
    }

    /// The sum of a jet's particles.
    pub(super) fn total(&self, jet: usize) -> FourMomentum {
        self.jet(jet).fold(FourMomentum([0.0; 4]), |sum, particle| sum.plus(&particle))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jets_have_both_classes_and_depend_on_their_number_alone() {
        let jets = JetSets::simulate(400, 12, 3, Split::Train).unwrap();
        let signal = jets.labels().iter().filter(|&&label| label).count();
        assert!((140..260).contains(&signal), "{signal}");
        assert_eq!(jets.clone().take(7), JetSets::simulate(7, 12, 3, Split::Train).unwrap());
        assert_ne!(jets.clone().take(7), JetSets::simulate(7, 12, 3, Split::Test).unwrap());
        assert!(JetSets::simulate(1, 1, 0, Split::Train).is_err());
        assert!(
            JetSets::new(2, &[1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0], vec![true]).is_err(),
            "one particle"
        );
    }

    #[test]
    fn groups_have_every_jet_once_and_little_padding() {
        let jets = JetSets::simulate(300, 40, 2, Split::Train).unwrap();
        let groups = jets.groups(50, 8_000);
        let mut seen = groups.concat();
        seen.sort_unstable();
        assert_eq!(seen, (0..300).collect::<Vec<_>>());
        for group in &groups {
            let longest = group.iter().map(|&jet| jets.count(jet)).max().unwrap();
            assert!(group.len() <= 50 && (group.len() == 1 || group.len() * longest * longest <= 8_000));
        }
        assert!(groups.len() < 60, "{}", groups.len());
        assert_eq!(jets.groups(1, 1).len(), 300, "a jet alone, however large");
    }
}
