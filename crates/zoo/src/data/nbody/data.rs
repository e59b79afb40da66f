//! The samples a model sees.

use super::{INPUT_FRAME, TARGET_FRAME, Trajectories};
use crate::data::potential::turned;
use gradewise_nn::data::check_finite;
use gradewise_nn::symmetry::Isometry;
use gradewise_nn::{Error, Result};

/// Samples of the n-body task, or a batch of them: the state of every system at one frame and the positions at a
/// later one. All arrays are row-major.
#[derive(Clone, PartialEq, Debug)]
pub struct NBodyData {
    samples: usize,
    particles: usize,
    pub(super) loc: Vec<f64>,
    pub(super) vel: Vec<f64>,
    pub(super) charges: Vec<f64>,
    pub(super) target: Vec<f64>,
    pub(super) target_vel: Option<Vec<f64>>,
}

impl NBodyData {
    /// Samples from arrays: `loc`, `vel` and `target` of shape `[samples, 3, particles]`, `charges`
    /// `[samples, particles]`.
    ///
    /// # Errors
    /// [`Error::Argument`] if the lengths disagree; [`Error::NotFinite`] with the index of the first NaN or infinity.
    pub fn new(
        particles: usize,
        loc: Vec<f64>,
        vel: Vec<f64>,
        charges: Vec<f64>,
        target: Vec<f64>,
    ) -> Result<Self> {
        const OPERATION: &str = "n-body samples";
        if particles == 0 || !charges.len().is_multiple_of(particles) {
            return Err(Error::Argument {
                operation: OPERATION,
                argument: "charges",
                actual: format!("{} values", charges.len()),
                expected: format!("a multiple of the {particles} particles of a sample, which must not be 0"),
            });
        }
        let samples = charges.len() / particles;
        check_finite(OPERATION, "charges", &[samples, particles], &charges)?;
        for (argument, values) in [("loc", &loc), ("vel", &vel), ("target", &target)] {
            if values.len() != charges.len() * 3 {
                return Err(Error::Argument {
                    operation: OPERATION,
                    argument,
                    actual: format!("{} values", values.len()),
                    expected: format!("{}: [samples {samples}, 3, particles {particles}]", charges.len() * 3),
                });
            }
            check_finite(OPERATION, argument, &[samples, 3, particles], values)?;
        }
        Ok(Self { samples, particles, loc, vel, charges, target, target_vel: None })
    }

    /// Adds target velocities, `[samples, 3, particles]`.
    ///
    /// # Errors
    /// As [`NBodyData::new`].
    pub fn with_target_velocities(mut self, vel: Vec<f64>) -> Result<Self> {
        if vel.len() != self.target.len() {
            return Err(Error::Argument {
                operation: "n-body samples",
                argument: "target velocities",
                actual: format!("{} values", vel.len()),
                expected: self.target.len().to_string(),
            });
        }
        check_finite("n-body samples", "target velocities", &[self.samples, 3, self.particles], &vel)?;
        self.target_vel = Some(vel);
        Ok(self)
    }

    /// The published task: from the state at frame 30 to the positions at frame 40.
    ///
    /// # Errors
    /// As [`NBodyData::between`].
    pub fn from_trajectories(trajectories: &Trajectories) -> Result<Self> {
        Self::between(trajectories, INPUT_FRAME, TARGET_FRAME)
    }

    /// From the state at frame `input` to the positions at frame `target`.
    ///
    /// # Errors
    /// [`Error::Argument`] if the trajectories lack a frame; [`Error::NotFinite`].
    pub fn between(trajectories: &Trajectories, input: usize, target: usize) -> Result<Self> {
        Self::new(
            trajectories.particles(),
            trajectories.loc_at(input)?,
            trajectories.vel_at(input)?,
            trajectories.charges().to_vec(),
            trajectories.loc_at(target)?,
        )?
        .with_target_velocities(trajectories.vel_at(target)?)
    }

    /// The samples in reversed time: from the targets, with velocities negated, to the initial positions. The motion has no friction, so it
    /// is reversible up to the error of the simulator's time step.
    ///
    /// # Errors
    /// [`Error::Argument`] for samples without target velocities.
    pub fn reversed(&self) -> Result<Self> {
        let Some(end) = &self.target_vel else {
            return Err(Error::Argument {
                operation: "n-body samples",
                argument: "target velocities",
                actual: "none".to_owned(),
                expected: "those at the end of the motion, to run it backwards".to_owned(),
            });
        };
        let back = |vel: &[f64]| vel.iter().map(|v| -v).collect::<Vec<_>>();
        Self::new(self.particles, self.target.clone(), back(end), self.charges.clone(), self.loc.clone())?
            .with_target_velocities(back(&self.vel))
    }

    /// The samples of several sets, one after the other.
    ///
    /// # Errors
    /// [`Error::Argument`] for sets of different numbers of particles, if only some have target velocities, or for no sets.
    pub fn concat(parts: &[Self]) -> Result<Self> {
        let same = |a: &Self, b: &Self| {
            a.particles == b.particles && a.target_vel.is_some() == b.target_vel.is_some()
        };
        let Some(first) = parts.first().filter(|first| parts.iter().all(|part| same(part, first))) else {
            return Err(Error::Argument {
                operation: "n-body samples",
                argument: "parts",
                actual: format!("{} sets that differ in kind", parts.len()),
                expected: "at least one, all of as many particles and with the same targets".to_owned(),
            });
        };
        let mut all = first.clone();
        for part in &parts[1..] {
            all.samples += part.samples;
            all.loc.extend(&part.loc);
            all.vel.extend(&part.vel);
            all.charges.extend(&part.charges);
            all.target.extend(&part.target);
            if let (Some(all), Some(part)) = (&mut all.target_vel, &part.target_vel) {
                all.extend(part);
            }
        }
        Ok(all)
    }

    /// Number of samples.
    pub fn len(&self) -> usize {
        self.samples
    }

    /// Whether there is no sample.
    pub fn is_empty(&self) -> bool {
        self.samples == 0
    }

    /// Particles of each sample.
    pub fn particles(&self) -> usize {
        self.particles
    }

    /// Positions, `[samples, 3, particles]`.
    pub fn loc(&self) -> &[f64] {
        &self.loc
    }

    /// Velocities, `[samples, 3, particles]`.
    pub fn vel(&self) -> &[f64] {
        &self.vel
    }

    /// Charges, `[samples, particles]`.
    pub fn charges(&self) -> &[f64] {
        &self.charges
    }

    /// Positions to predict, `[samples, 3, particles]`.
    pub fn target(&self) -> &[f64] {
        &self.target
    }

    /// Velocities to predict, `[samples, 3, particles]`, if they are known.
    pub fn target_vel(&self) -> Option<&[f64]> {
        self.target_vel.as_deref()
    }

    /// The samples turned by an isometry of space, then moved by `shift`: positions, velocities and targets.
    ///
    /// # Errors
    /// As [`NBodyData::new`].
    pub fn moved(&self, isometry: &Isometry, shift: [f64; 3]) -> Result<Self> {
        let n = self.particles;
        let turn = |values: &[f64], shift| turned(values, n, isometry, shift);
        let (loc, vel, target) =
            (turn(&self.loc, shift)?, turn(&self.vel, [0.0; 3])?, turn(&self.target, shift)?);
        let target_vel = self.target_vel.as_ref().map(|vel| turn(vel, [0.0; 3])).transpose()?;
        Ok(Self { target_vel, ..Self::new(n, loc, vel, self.charges.clone(), target)? })
    }

    /// The samples at `indices`, in that order; repeats are allowed.
    ///
    /// # Errors
    /// [`Error::Argument`] if an index is out of range.
    pub fn select(&self, indices: &[usize]) -> Result<Self> {
        if let Some(bad) = indices.iter().find(|&&index| index >= self.samples) {
            return Err(Error::Argument {
                operation: "n-body samples",
                argument: "indices",
                actual: bad.to_string(),
                expected: format!("less than {}, the number of samples", self.samples),
            });
        }
        let gather = |values: &[f64], width: usize| -> Vec<f64> {
            indices.iter().flat_map(|&index| &values[index * width..(index + 1) * width]).copied().collect()
        };
        Ok(Self {
            samples: indices.len(),
            particles: self.particles,
            loc: gather(&self.loc, self.particles * 3),
            vel: gather(&self.vel, self.particles * 3),
            charges: gather(&self.charges, self.particles),
            target: gather(&self.target, self.particles * 3),
            target_vel: self.target_vel.as_ref().map(|vel| gather(vel, self.particles * 3)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gradewise_nn::data::Split;
    use rand::SeedableRng;

    fn data() -> NBodyData {
        let trajectories = Trajectories::simulate(4, 5, 3, 11, Split::Train).unwrap();
        NBodyData::between(&trajectories, 0, 2).unwrap()
    }

    #[test]
    fn selection_keeps_samples_whole() {
        let data = data();
        let some = data.select(&[3, 0, 3]).unwrap();
        assert_eq!((some.len(), some.particles()), (3, 4));
        assert_eq!(some.loc()[..12], data.loc()[36..48]);
        assert_eq!(some.target()[12..24], data.target()[..12]);
        assert_eq!(some.charges()[8..], data.charges()[12..16]);
        assert!(data.select(&[]).unwrap().is_empty());
        assert!(data.select(&[5]).unwrap_err().to_string().contains("less than 5"));
    }

    #[test]
    fn sets_are_put_together_and_turned_as_a_whole() {
        let (data, other) = (data(), data().select(&[4, 2]).unwrap());
        let all = NBodyData::concat(&[data.clone(), other.clone()]).unwrap();
        assert_eq!(all.select(&[5, 6]).unwrap(), other);
        assert_eq!(all.select(&[0, 1, 2, 3, 4]).unwrap(), data);
        assert!(data.target_vel().is_some());
        let plain = NBodyData::new(4, vec![0.0; 12], vec![0.0; 12], vec![1.0; 4], vec![0.0; 12]).unwrap();
        assert!(NBodyData::concat(&[data.clone(), plain]).is_err() && NBodyData::concat(&[]).is_err());
        // A reflection applied twice is the identity, and preserves distances.
        let mirror = {
            let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(1);
            Isometry::random(gradewise_core::Signature::CL3, 1, &mut rng).unwrap()
        };
        let moved = data.moved(&mirror, [0.0; 3]).unwrap();
        let close = |a: &[f64], b: &[f64]| gradewise_nn::symmetry::relative_distance(a, b) < 1e-12;
        assert!(
            !close(moved.loc(), data.loc())
                && !close(moved.target_vel().unwrap(), data.target_vel().unwrap())
        );
        let back = moved.moved(&mirror, [0.0; 3]).unwrap();
        assert!(
            close(back.loc(), data.loc()) && close(back.target_vel().unwrap(), data.target_vel().unwrap())
        );
    }

    #[test]
    fn nan_in_any_array_is_refused_by_name() {
        let data = data();
        for which in ["loc", "vel", "charges", "target"] {
            let spoil = |name: &str, values: &[f64]| {
                let mut values = values.to_vec();
                if name == which {
                    values[7] = f64::NAN;
                }
                values
            };
            let error = NBodyData::new(
                4,
                spoil("loc", data.loc()),
                spoil("vel", data.vel()),
                spoil("charges", data.charges()),
                spoil("target", data.target()),
            )
            .unwrap_err();
            assert!(matches!(&error, Error::NotFinite { argument, .. } if argument == which), "{error}");
        }
    }
}
