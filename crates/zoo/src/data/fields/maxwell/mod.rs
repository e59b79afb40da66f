//! Electromagnetic fields in space, as in the data of PDEArena (Brandstetter et al. 2022, arXiv:2209.04934; the generator runs on fdtd
//! 0.2.5): eighteen sheets in a corner of a box set the fields, and the middle of the box is recorded.

mod sources;
mod yee;

pub use yee::{Edges, Source, Yee};

use super::{FieldLayout, FieldSet, seeds};
use crate::data::{cache, numpy::RandomState};
use gradewise_nn::{Error, Result, data::Split};
use rayon::prelude::*;

/// E is a vector of Cl(3,0), H an axial vector and so the bivector H_z e12 − H_y e13 + H_x e23; models see ten times the fields, as in
/// Zhdanov et al. 2024 (arXiv:2402.14730). The published files call E "D".
pub static LAYOUT: FieldLayout = FieldLayout {
    name: "maxwell",
    files: &[("d_field", 0..3), ("h_field", 3..6)],
    quantities: &[("electric", "E MSE", 0..3), ("magnetic", "H MSE", 3..6)],
    space_axes: 3,
    metric: &[1, 1, 1],
    first_blade: 1,
    blades: &[(0, 1.0), (1, 1.0), (2, 1.0), (5, 1.0), (4, -1.0), (3, 1.0)],
    scale: 10.0,
};

/// Recorded frames of a trajectory.
pub const FRAMES: usize = 8;
/// Cells along each side of the box, of which half are recorded.
pub const CELLS: usize = 64;
/// Steps before recording begins, and steps per frame.
const SKIPPED: usize = 250;
const EVERY: usize = 25;
/// Relative permittivity of the medium.
const PERMITTIVITY: f64 = 10.0;
/// Jobs whose seeds made the published set.
const JOBS: usize = 64;

/// Published trajectories of a split.
pub fn available(split: Split) -> usize {
    seeds::available(split, JOBS)
}

/// The first `trajectories` of a published split, in a box of `cells` cells along each side, of which the middle half is recorded: with
/// [`CELLS`] cells, these are the published fields; smaller boxes give similar fields. The result is stored in the [cache].
///
/// # Errors
/// [`Error::Argument`] for more trajectories than were published, or a side that is below 24 or no multiple of 4.
pub fn load(split: Split, trajectories: usize, cells: usize) -> Result<FieldSet> {
    if cells < 24 || !cells.is_multiple_of(4) {
        return Err(Error::Argument {
            operation: "electromagnetic fields",
            argument: "cells",
            actual: cells.to_string(),
            expected: "a multiple of 4, at least 24".to_owned(),
        });
    }
    let seeds = seeds::seeds(split, trajectories, JOBS)?;
    let key = format!("maxwell, {split}, {trajectories} trajectories, {cells} cells");
    let values = cache::single_array(LAYOUT.name, &key, || {
        Ok(seeds.par_iter().map(|&seed| simulate(seed, cells)).collect::<Vec<_>>().concat())
    })?;
    FieldSet::new(&LAYOUT, (trajectories, FRAMES), &[cells / 2; 3], values)
}

/// A trajectory `[frames, x, y, z, components]`.
fn simulate(seed: u32, cells: usize) -> Vec<f32> {
    let corner = cells / 4;
    let sources = sources::draw(&mut RandomState::new(seed), corner);
    let mut yee = Yee::new([cells; 3], Edges::Published, sources::COURANT, PERMITTIVITY, sources);
    (0..SKIPPED).for_each(|_| yee.advance());
    let mut frames = Vec::new();
    for _ in 0..FRAMES {
        (0..EVERY).for_each(|_| yee.advance());
        for x in corner..cells - corner {
            for y in corner..cells - corner {
                for z in corner..cells - corner {
                    let at = (x * cells + y) * cells + z;
                    let fields = yee.electric().iter().chain(yee.magnetic());
                    frames.extend(fields.map(|field| field[at] as f32));
                }
            }
        }
    }
    frames
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values from the published generator at its own size: its first trajectory.
    #[test]
    fn the_first_trajectory_is_the_published_one() {
        let seed = seeds::seeds(Split::Train, 1, JOBS).unwrap()[0];
        let frames = simulate(seed, CELLS);
        assert_eq!(frames.len(), FRAMES * 32 * 32 * 32 * 6);
        let expected = [-0.00755401, 0.01024338, 0.01927641, 0.02590697, -0.01939321, 0.01471153];
        let middle = ((16 * 32 + 16) * 32 + 16) * 6;
        for (actual, expected) in frames[middle..].iter().zip(expected) {
            assert!((actual - expected).abs() < 1e-8, "{actual} {expected}");
        }
        let root_mean_square = |first: usize| {
            let points = frames.chunks_exact(6).flat_map(|point| &point[first..first + 3]);
            (points.map(|&value| f64::from(value).powi(2)).sum::<f64>() / (frames.len() / 2) as f64).sqrt()
        };
        assert!((root_mean_square(0) - 0.00986).abs() < 1e-5 && (root_mean_square(3) - 0.03126).abs() < 1e-5);
    }

    #[test]
    fn boxes_that_hold_no_sources_are_refused() {
        assert!(load(Split::Test, 1, 20).is_err() && load(Split::Test, 1, 26).is_err());
        assert!(load(Split::Test, 1601, 24).is_err());
        assert_eq!(available(Split::Train), 6400);
    }
}
