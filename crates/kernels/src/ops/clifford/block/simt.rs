//! Launch shapes and shared memory of the kernels that give each lane a feature (csrc/clifford/block/simt.cuh): whole blocks, and steerable
//! layers alone.

use super::operands::Sizes;
pub(super) use crate::csrc::block_simt::{MOST_FEATURES, THREADS};
use crate::{CudaDevice, csrc::block_simt};
use gradewise_core::Algebra;

/// How the rows of a block are shared out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Shape {
    /// Lanes of a group, one for each feature.
    pub lanes: usize,
    /// Groups that have rows.
    pub groups: usize,
    /// Rows that a group works on at a time, forward and backward. More rows reuse the matrices better, and take more registers.
    pub rows: [usize; 2],
}

impl Shape {
    /// The shapes for an algebra of so many blades, the one that makes the most blocks first. Fewer rows make more blocks. No group has more
    /// rows at a time than `most_rows`.
    fn all(blades: usize, features: usize, most_rows: [usize; 2]) -> Vec<Self> {
        let lanes = if blades > 8 && features <= 16 { 16 } else { 32 };
        let most = THREADS / lanes;
        let of = |groups: usize, rows| Self { lanes, groups, rows };
        let mut shapes = match blades {
            ..=8 => vec![of(4, [1, 1]), of(8, [1, 1]), of(8, [2, 2])],
            9..=16 => vec![of(most / 4, [1, 1]), of(most / 2, [1, 1]), of(most, [1, 1]), of(most, [2, 1])],
            // Shared memory decides how many groups there are. Those of one warp go together.
            _ => (1..=8).map(|warps| of(warps * 32 / lanes, [1, 1])).collect(),
        };
        shapes.retain(|shape| shape.rows.iter().zip(most_rows).all(|(&rows, most)| rows <= most));
        shapes
    }

    /// Bytes of dynamic shared memory, forward and backward, with so many square matrices for each grade.
    pub fn shared(&self, algebra: &Algebra, sizes: Sizes, maps: usize) -> [usize; 2] {
        let (blades, grades, paths) = (algebra.blade_count(), algebra.grade_count(), algebra.paths().len());
        let Sizes { inputs, features, .. } = sizes;
        let Self { lanes, groups, rows: [forward, backward] } = *self;
        let matrices = |padding| block_simt::matrices(grades, inputs, features, maps, padding);
        let weights = block_simt::weights(blades, paths, lanes);
        let forward = block_simt::forward_rows(groups * forward, blades, inputs, features);
        let backward = block_simt::backward_rows(groups * backward, blades, inputs, features);
        let sums = block_simt::sums(grades, paths) * lanes;
        [
            block_simt::forward(matrices(0), weights, forward),
            block_simt::backward(matrices(1), weights, groups, backward, sums),
        ]
    }

    /// The first shape with at most one block for each multiprocessor, or the largest; `None` where none fits into shared memory.
    pub fn choose(
        device: &CudaDevice,
        algebra: &Algebra,
        sizes: Sizes,
        maps: usize,
        most_rows: [usize; 2],
    ) -> Option<Self> {
        let limit = device.info().max_shared_memory;
        let fits = |shape: &Self| shape.shared(algebra, sizes, maps).into_iter().all(|bytes| bytes <= limit);
        let mut fitting = Self::all(algebra.blade_count(), sizes.features, most_rows);
        fitting.retain(fits);
        let is_enough =
            |shape: &&Self| sizes.batch.div_ceil(shape.groups * shape.rows[1]) <= multiprocessors(device);
        fitting.iter().find(is_enough).or(fitting.last()).copied()
    }

    /// Blocks of threads, forward and backward: at most one for each multiprocessor.
    pub fn blocks(&self, device: &CudaDevice, batch: usize) -> [usize; 2] {
        self.rows.map(|rows| batch.div_ceil(self.groups * rows).min(multiprocessors(device)))
    }
}

fn multiprocessors(device: &CudaDevice) -> usize {
    device.info().multiprocessors.max(1) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use gradewise_core::Signature;

    #[test]
    fn shapes_make_fewer_blocks_one_after_the_other_and_fill_whole_warps() {
        for (blades, features) in [(4, 28), (8, 32), (16, 12), (16, 17), (32, 8), (32, 32)] {
            let shapes = Shape::all(blades, features, [2, 2]);
            assert!(
                shapes.iter().all(|shape| shape.groups * shape.lanes % 32 == 0 && features <= shape.lanes)
            );
            assert!(shapes.iter().all(|shape| shape.groups * shape.lanes <= THREADS));
            let rows = shapes.iter().map(|shape| shape.groups * shape.rows[0]);
            assert!(rows.clone().zip(rows.skip(1)).all(|(before, after)| before < after), "{shapes:?}");
            assert!(Shape::all(blades, features, [1, 1]).iter().all(|shape| shape.rows == [1, 1]));
        }
    }

    #[test]
    fn blocks_of_32_blades_fit_into_shared_memory() {
        let algebra = Algebra::new(Signature::new(5, 0, 0)).unwrap();
        let sizes = Sizes { batch: 8064, inputs: 37, features: 32 };
        let most = |limit: usize| {
            let fits =
                |shape: &&Shape| shape.shared(&algebra, sizes, 2).into_iter().all(|bytes| bytes <= limit);
            Shape::all(32, 32, [1, 1]).iter().rfind(fits).map(|shape| shape.groups)
        };
        assert_eq!(most(227 << 10), Some(4));
        assert_eq!(most(48 << 10), None);
    }
}
