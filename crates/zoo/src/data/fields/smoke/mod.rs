//! Smoke in a box: incompressible Navier–Stokes in the plane, as in the data of PDEArena.
//!
//! Gupta and Brandstetter 2022 (arXiv:2209.15616), whose generator runs on PhiFlow. [`Smoke`] implements the same scheme with an exact
//! projection. It agrees with the published fields to 1e-5 in the first frame and 5e-4 in the last; the differences come from the single
//! precision and the iterative solver of the published generator.

mod noise;
mod poisson;
mod solver;

pub use poisson::Boundary;
pub use solver::{Flow, Smoke};

use super::{FieldLayout, FieldSet, seeds};
use crate::data::{cache, numpy::RandomState};
use gradewise_nn::{Error, Result, data::Split};
use rayon::prelude::*;

/// Smoke s and the velocity (v_x, v_y) in Cl(2,0): s on 1, v on e1 and e2. The components lie on a staggered grid and are treated as if
/// they were collocated, as published.
pub static LAYOUT: FieldLayout = FieldLayout {
    name: "navier-stokes",
    files: &[("u", 0..1), ("vx", 1..2), ("vy", 2..3)],
    quantities: &[("smoke", "smoke MSE", 0..1), ("velocity", "velocity MSE", 1..3)],
    space_axes: 2,
    metric: &[1, 1],
    first_blade: 0,
    blades: &[(0, 1.0), (1, 1.0), (2, 1.0)],
    scale: 1.0,
};

/// Recorded frames of a trajectory.
pub const FRAMES: usize = 14;
/// Steps before the first frame, and between frames.
const FIRST: usize = 9;
const EVERY: usize = 4;
/// Cells along each side, as published.
pub const CELLS: usize = 128;
/// Jobs whose seeds made the published set.
const JOBS: usize = 52;

/// Published trajectories of a split.
pub fn available(split: Split) -> usize {
    seeds::available(split, JOBS)
}

/// The first `trajectories` of a published split, on `cells` × `cells` cells; on grids other than [`CELLS`], the same seeds give other
/// initial smoke. The result is stored in the [cache].
///
/// # Errors
/// [`Error::Argument`] for more trajectories than were published, or fewer than 8 cells along a side.
pub fn load(split: Split, trajectories: usize, cells: usize) -> Result<FieldSet> {
    if cells < 8 {
        return Err(Error::Argument {
            operation: "smoke",
            argument: "cells",
            actual: cells.to_string(),
            expected: "at least 8 along each side".to_owned(),
        });
    }
    let seeds = seeds::seeds(split, trajectories, JOBS)?;
    let key = format!("smoke, {split}, {trajectories} trajectories, {cells} cells");
    let values = cache::single_array(LAYOUT.name, &key, || {
        let all = seeds.par_iter().map(|&seed| simulate(seed, cells));
        Ok(all.collect::<Result<Vec<Vec<f32>>>>()?.concat())
    })?;
    FieldSet::new(&LAYOUT, (trajectories, FRAMES), &[cells, cells], values)
}

/// A trajectory `[frames, x, y, components]`.
fn simulate(seed: u32, cells: usize) -> Result<Vec<f32>> {
    let noise = noise::smooth_noise(&mut RandomState::new(seed), cells);
    let start = noise.into_iter().map(f64::abs).collect();
    let still = || vec![0.0; cells * cells];
    let mut smoke = Smoke::new(Flow::PUBLISHED, cells, start, [still(), still()])?;
    let mut frames = Vec::with_capacity(FRAMES * cells * cells * LAYOUT.components());
    for frame in 0..FRAMES {
        for _ in 0..if frame == 0 { FIRST } else { EVERY } {
            smoke.advance();
        }
        let [u, v] = smoke.velocity();
        frames.extend(
            smoke.smoke().iter().zip(u).zip(v).flat_map(|((&s, &u), &v)| [s as f32, u as f32, v as f32]),
        );
    }
    Ok(frames)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first frame of the first trajectory in the published file.
    #[test]
    fn the_first_trajectory_is_the_published_one() {
        let seed = seeds::seeds(Split::Train, 1, JOBS).unwrap()[0];
        let frames = simulate(seed, CELLS).unwrap();
        let middle = (64 * CELLS + 64) * 3;
        for (actual, expected) in frames[middle..middle + 3].iter().zip([0.357464, 1.566479, -0.199045]) {
            assert!((actual - expected).abs() < 1e-4, "{actual} {expected}");
        }
        assert_eq!(frames.len(), FRAMES * CELLS * CELLS * 3);
    }

    #[test]
    fn more_trajectories_than_published_are_refused() {
        assert!(load(Split::Test, 1301, 16).is_err() && load(Split::Test, 1, 4).is_err());
        assert_eq!((available(Split::Train), available(Split::Valid)), (5200, 1300));
    }
}
