//! The seeds of the published sets.

use crate::data::numpy::RandomState;
use gradewise_nn::{Error, Result, data::Split};

/// Seeds of the jobs that made the published files, in their order; smoke uses the first 52.
const JOBS: [u32; 64] = [
    197910, 452145, 540788, 61649, 337293, 296323, 471551, 238734, 795028, 806339, 144207, 415274, 950547,
    391920, 891493, 645944, 431652, 391355, 600690, 495919, 874847, 97373, 403121, 588319, 991570, 597761,
    453345, 349940, 666497, 597535, 61891, 975433, 856942, 788627, 234361, 433043, 153164, 126188, 946091,
    795833, 901348, 142003, 515976, 509478, 857366, 766053, 792079, 585498, 772145, 954313, 429673, 445536,
    799432, 146142, 19024, 438811, 190539, 506225, 943948, 304836, 854174, 354248, 373230, 697045,
];

/// The number of trajectories of a split that each job makes, and the offset it adds to its seed.
fn job(split: Split) -> (usize, u32) {
    match split {
        Split::Train => (100, 100),
        Split::Valid => (25, 200),
        Split::Test => (25, 300),
    }
}

/// The number of published trajectories of a split that `jobs` jobs make.
pub(super) fn available(split: Split, jobs: usize) -> usize {
    job(split).0 * jobs.min(JOBS.len())
}

/// The seeds of the first `trajectories` of a split.
pub(super) fn seeds(split: Split, trajectories: usize, jobs: usize) -> Result<Vec<u32>> {
    if trajectories > available(split, jobs) {
        return Err(Error::Argument {
            operation: "published trajectories",
            argument: "trajectories",
            actual: trajectories.to_string(),
            expected: format!("at most {}, the published {split} trajectories", available(split, jobs)),
        });
    }
    let (count, added) = job(split);
    let of_job = |&seed: &u32| {
        let mut random = RandomState::new(seed + added);
        let drawn: Vec<u32> = (0..count).map(|_| random.below_or_at(i32::MAX as u32 - 1)).collect();
        drawn.into_iter().zip(0..).map(|(drawn, index)| drawn + index)
    };
    Ok(JOBS.iter().flat_map(of_job).take(trajectories).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_the_published_ones() {
        let seeds = |split, count| seeds(split, count, 52).unwrap();
        assert_eq!(seeds(Split::Train, 3), [314_101_025, 1_545_175_284 + 1, 69_517_563 + 2]);
        assert_eq!(seeds(Split::Train, 201)[..100], seeds(Split::Train, 100));
        assert_eq!(seeds(Split::Test, 1300).len(), 1300);
        assert!(super::seeds(Split::Test, 1301, 52).is_err());
        assert!(super::seeds(Split::Valid, 1600, 64).is_ok());
    }
}
