//! Planets around a star: the gravity n-body data of Brehmer et al., "Geometric algebra transformer" (2023, arXiv:2305.18415).
//!
//! The task: predict the positions after a time of 0.1 from masses, positions and velocities. [`GravitySet::load`] reproduces the sets from
//! their seed; [`advance`] computes the motion. The time step of the data does not resolve close encounters, so a few samples with close
//! encounters dominate the mean squared error: report medians and trimmed means, too.

mod draws;
mod motion;

pub use motion::{Bodies, STEPS, TIME_STEP, advance, energy};

use super::{nbody::NBodyData, numpy::RandomState};
use crate::data::gravity::draws::Candidates;
use gradewise_nn::{Error, Result, symmetry::Isometry};
use rayon::prelude::*;
use std::fmt;

/// The time from input to target.
pub const DURATION: f64 = TIME_STEP * STEPS as f64;

/// The seed of the published sets.
const SEED: u32 = 42;
/// A sample is discarded if one of its bodies moves farther than this.
const OUTLIER: f64 = 2.0;

/// The published sets, in the order in which they are drawn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GravitySet {
    /// 100,000 training samples. The publication's comparison trains on the first 1,000.
    Train,
    /// 5,000 validation samples.
    Valid,
    /// 5,000 test samples of the same distribution.
    Evaluation,
    /// 5,000 test samples, all translated by 200 along an axis.
    Moved,
    /// 5,000 test samples with five planets instead of three.
    Objects,
}

impl fmt::Display for GravitySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Train => "train",
            Self::Valid => "valid",
            Self::Evaluation => "evaluation",
            Self::Moved => "moved",
            Self::Objects => "objects",
        })
    }
}

impl GravitySet {
    const ALL: [Self; 5] = [Self::Train, Self::Valid, Self::Evaluation, Self::Moved, Self::Objects];

    /// The number of published samples.
    pub const fn available(self) -> usize {
        match self {
            Self::Train => 100_000,
            _ => 5_000,
        }
    }

    /// Planets around the star.
    pub const fn planets(self) -> usize {
        match self {
            Self::Objects => 5,
            _ => 3,
        }
    }

    /// The shift of all bodies along the first axis.
    const fn shift(self) -> f64 {
        match self {
            Self::Moved => 200.0,
            _ => 0.0,
        }
    }

    /// The number of systems drawn: 10 % more than samples, because outliers are discarded.
    const fn candidates(self) -> usize {
        self.available() / 10 * 11
    }

    /// The first `samples` samples of the set, without the outliers, in which a body moves farther than 2: their motion is not predictable
    /// at this time step.
    ///
    /// # Errors
    /// [`Error::Argument`] for more samples than were published.
    pub fn load(self, samples: usize) -> Result<GravityData> {
        if samples > self.available() {
            return Err(Error::Argument {
                operation: "gravity systems",
                argument: "samples",
                actual: samples.to_string(),
                expected: format!("at most {}, the published {self} systems", self.available()),
            });
        }
        let mut random = RandomState::new(SEED);
        for earlier in Self::ALL.into_iter().take_while(|&earlier| earlier != self) {
            Candidates::draw(&mut random, earlier.candidates(), earlier.planets(), earlier.shift());
        }
        let candidates = Candidates::draw(&mut random, self.candidates(), self.planets(), self.shift());
        let mut kept = Vec::new();
        // Keeps the first candidates that are not outliers. They are simulated in parallel, a chunk at a time, because each is expensive.
        for chunk in candidates.0.chunks(1024) {
            if kept.len() >= samples {
                break;
            }
            let moved: Vec<_> =
                chunk.par_iter().map(|start| (start, advance(start, STEPS, TIME_STEP))).collect();
            kept.extend(moved.into_iter().filter(|(start, end)| start.farthest(end) <= OUTLIER));
        }
        kept.truncate(samples);
        if kept.len() < samples {
            return Err(Error::Argument {
                operation: "gravity systems",
                argument: "samples",
                actual: samples.to_string(),
                expected: format!("at most {}, without outliers", kept.len()),
            });
        }
        GravityData::new(1 + self.planets(), &kept)
    }
}

/// Samples of the task: states with masses in the place of charges, and the positions after [`DURATION`].
#[derive(Clone, PartialEq, Debug)]
pub struct GravityData(NBodyData);

impl GravityData {
    fn new(bodies: usize, motions: &[(&Bodies, Bodies)]) -> Result<Self> {
        let (mut masses, mut loc, mut vel) = (Vec::new(), Vec::new(), Vec::new());
        let (mut target, mut target_vel) = (Vec::new(), Vec::new());
        for (start, end) in motions {
            masses.extend(&start.masses);
            add_by_axis(&mut loc, &start.loc);
            add_by_axis(&mut vel, &start.vel);
            add_by_axis(&mut target, &end.loc);
            add_by_axis(&mut target_vel, &end.vel);
        }
        Ok(Self(NBodyData::new(bodies, loc, vel, masses, target)?.with_target_velocities(target_vel)?))
    }

    /// As samples of the n-body task, with masses in the place of charges.
    pub fn states(&self) -> &NBodyData {
        &self.0
    }

    /// The samples at `indices`.
    ///
    /// # Errors
    /// [`Error::Argument`] if an index is out of range.
    pub fn select(&self, indices: &[usize]) -> Result<Self> {
        Ok(Self(self.0.select(indices)?))
    }

    /// Applies the isometry and the shift to all bodies, targets included.
    ///
    /// # Errors
    /// [`Error::Argument`] for an isometry of another dimension.
    pub fn moved(&self, isometry: &Isometry, shift: [f64; 3]) -> Result<Self> {
        Ok(Self(self.0.moved(isometry, shift)?))
    }

    /// Baseline predictions: bodies at rest, bodies in uniform motion, and bodies attracted only by the heaviest: `[samples, 3, bodies]`
    /// each.
    pub fn guesses(&self) -> [(&'static str, Vec<f64>); 3] {
        let (loc, vel) = (self.0.loc(), self.0.vel());
        let on = loc.iter().zip(vel).map(|(x, v)| x + DURATION * v).collect();
        let bodies = self.0.particles();
        let orbit = |sample: usize| {
            let mut system = Bodies::of(&self.0, sample);
            system.keep_heaviest();
            let end = advance(&system, STEPS, TIME_STEP);
            (0..3 * bodies).map(|k| end.loc[k % bodies][k / bodies]).collect::<Vec<_>>()
        };
        let orbits: Vec<Vec<f64>> = (0..self.0.len()).into_par_iter().map(orbit).collect();
        [("bodies that stay", loc.to_vec()), ("no forces", on), ("the star's force alone", orbits.concat())]
    }
}

/// Appends the coordinates of points, axis by axis.
fn add_by_axis(rows: &mut Vec<f64>, points: &[[f64; 3]]) {
    for axis in 0..3 {
        rows.extend(points.iter().map(|point| point[axis]));
    }
}
