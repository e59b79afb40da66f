//! Splits of trajectories by blocks of time.
//!
//! Frames of a trajectory that follow one another are nearly the same, so a random split tests on neighbours of what was fitted. Here each
//! trajectory is cut into blocks; whole blocks go to a split, and frames beside a block of another split are left out.

use gradewise_nn::data::Split;

/// Blocks of a trajectory.
const BLOCKS: usize = 20;
/// Blocks of validation and of test, spread over the trajectory; the others are for training.
const VALID: [usize; 3] = [3, 9, 16];
const TEST: [usize; 3] = [6, 12, 19];
/// Frames left out on each side of a border between splits, as a part of a block.
const GAP: usize = 10;

fn split_of(block: usize) -> Split {
    match block {
        block if VALID.contains(&block) => Split::Valid,
        block if TEST.contains(&block) => Split::Test,
        _ => Split::Train,
    }
}

/// The frames of a split, of a trajectory of `frames` frames in their order in time.
pub fn frames_of(split: Split, frames: usize) -> Vec<usize> {
    let start = |block: usize| block * frames / BLOCKS;
    let mut found = Vec::new();
    for block in (0..BLOCKS).filter(|&block| split_of(block) == split) {
        let (first, end) = (start(block), start(block + 1));
        // At least one frame of a block of two or more is left out at a border.
        let gap = (end - first).div_ceil(GAP).min((end - first) / 2);
        let borders =
            |other: Option<usize>| other.is_some_and(|other| other < BLOCKS && split_of(other) != split);
        let first = if borders(block.checked_sub(1)) { first + gap } else { first };
        let end = if borders(Some(block + 1)) { end - gap } else { end };
        found.extend(first..end);
    }
    found
}

/// `count` of the frames, evenly spaced; all if there are no more.
pub fn thinned(frames: &[usize], count: usize) -> Vec<usize> {
    let count = count.min(frames.len());
    (0..count).map(|k| frames[k * frames.len() / count.max(1)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_are_apart_in_time() {
        for frames in [60, 100, 1300, 4001] {
            let [train, valid, test] =
                [Split::Train, Split::Valid, Split::Test].map(|split| frames_of(split, frames));
            assert!(train.len() > 3 * valid.len() && !valid.is_empty() && !test.is_empty(), "{frames}");
            let least = 2 * (frames / BLOCKS / GAP).max(1);
            for (one, other) in [(&train, &valid), (&train, &test), (&valid, &test)] {
                let apart = one.iter().flat_map(|a| other.iter().map(move |b| a.abs_diff(*b))).min().unwrap();
                assert!(apart > least, "{frames}: {apart}");
            }
            assert!(10 * (train.len() + valid.len() + test.len()) > 6 * frames, "{frames}");
        }
        assert!(frames_of(Split::Test, 0).is_empty());
    }

    #[test]
    fn fewer_frames_are_spread_over_all() {
        let all: Vec<usize> = (10..20).collect();
        assert_eq!(thinned(&all, 5), [10, 12, 14, 16, 18]);
        assert_eq!((thinned(&all, 99), thinned(&[], 3)), (all, vec![]));
    }
}
