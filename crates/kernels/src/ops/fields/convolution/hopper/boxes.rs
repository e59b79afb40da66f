//! How positions are cut into boxes, and how the copy engine reads fields by them.

use super::super::geometry::AXES;
use crate::{
    Array, CudaDevice, Result,
    ops::matmul::hopper::{LINE, describe},
};

/// How positions are cut into boxes: binary logarithms of the extents along three axes of space and of the samples, and how many boxes
/// there are along each axis and in all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Boxes {
    pub shape: [u32; AXES + 1],
    pub across: [usize; AXES],
    pub count: usize,
}

impl Boxes {
    /// Boxes of `positions`, a power of two, and at least `width` along the last axis, as few as possible: boxes that reach over the edge
    /// of the field are partly empty. The samples of a box are of one blade, so that their number divides the batch.
    pub fn new(extents: [usize; AXES], batch: usize, positions: usize, width: usize) -> Option<Self> {
        let total = positions.ilog2();
        let mut best: Option<Self> = None;
        // Long boxes first: among equals the copy engine reads the longest stretches of memory.
        for x in (width.ilog2()..=total).rev() {
            for y in (0..=total - x).rev() {
                for z in (0..=total - x - y).rev() {
                    let shape = [z, y, x, total - x - y - z];
                    let [depth, height, width, samples] = shape.map(|bits| 1usize << bits);
                    if !batch.is_multiple_of(samples) {
                        continue;
                    }
                    let across =
                        [extents[0].div_ceil(depth), extents[1].div_ceil(height), extents[2].div_ceil(width)];
                    let count = across.iter().product::<usize>() * (batch / samples);
                    if best.is_none_or(|best| count < best.count) {
                        best = Some(Self { shape, across, count });
                    }
                }
            }
        }
        best
    }

    pub fn positions(&self) -> usize {
        1 << self.shape.iter().sum::<u32>()
    }

    /// Whether the positions of `rows` fill at least half of the boxes.
    pub fn filled(&self, rows: usize) -> bool {
        2 * rows >= self.count * self.positions()
    }

    /// A tile of as many channels over a box, innermost axis first.
    pub fn tile(&self, channels: usize) -> [usize; 5] {
        let [z, y, x, samples] = self.shape.map(|bits| 1 << bits);
        [channels, x, y, z, samples]
    }
}

/// A field as the copy engine reads it: blades whose channels fill whole lines, or one blade of the channels of all.
pub(super) struct Operand {
    pub array: Array,
    pub blades: usize,
    pub channels: usize,
    extents: [usize; AXES],
    batch: usize,
}

impl Operand {
    /// The field `[blades, batch, *space, channels]`, with the blades beside the channels if that makes lines whole.
    pub fn new(
        array: &Array,
        [blades, channels]: [usize; 2],
        extents: [usize; AXES],
        batch: usize,
    ) -> Result<Self> {
        let whole = (channels * array.dtype().size()).is_multiple_of(LINE);
        if whole || blades == 1 {
            return Ok(Self { array: array.clone(), blades, channels, extents, batch });
        }
        let rows = batch * extents.iter().product::<usize>();
        let array = array.reshape([blades, rows, channels])?.permute(&[1, 0, 2])?.contiguous()?;
        Ok(Self { array, blades: 1, channels: blades * channels, extents, batch })
    }

    pub fn describe(
        &self,
        operation: &'static str,
        device: &CudaDevice,
        element: u32,
        boxes: &Boxes,
    ) -> Result<[u64; 16]> {
        let size = self.array.dtype().size();
        let [z, y, x] = self.extents;
        let strides = [self.channels, x * self.channels, y * x * self.channels, z * y * x * self.channels];
        let sizes = [self.channels, x, y, z, self.batch * self.blades];
        let tile = boxes.tile(LINE / size);
        describe(device, operation, (element, size), self.array.cuda_address(), &sizes, &strides, &tile)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boxes_cover_all_positions_with_few_of_them() {
        for (extents, batch, positions, width, shape, count) in [
            ([1, 128, 128], 16, 256, 1, [0, 1, 7, 0], 1024),
            ([1, 128, 128], 16, 64, 1, [0, 0, 6, 0], 4096),
            ([32, 32, 32], 4, 256, 1, [0, 3, 5, 0], 512),
            ([1, 1, 300], 2, 64, 1, [0, 0, 6, 0], 10),
            ([1, 1, 300], 2, 32, 1, [0, 0, 4, 1], 19),
            ([1, 1, 300], 2, 32, 32, [0, 0, 5, 0], 20),
            ([1, 4, 4], 32, 256, 1, [0, 2, 2, 4], 2),
            ([1, 4, 4], 3, 32, 1, [0, 2, 3, 0], 3),
        ] {
            let boxes = Boxes::new(extents, batch, positions, width).unwrap();
            assert_eq!((boxes.shape, boxes.count), (shape, count), "{extents:?} {batch}");
            assert_eq!(boxes.positions(), positions);
            let covers = extents.iter().zip(boxes.across).zip(boxes.shape);
            assert!(covers.into_iter().all(|((extent, across), bits)| across << bits >= *extent));
        }
        assert!(Boxes::new([1, 128, 128], 16, 256, 1).unwrap().filled(16 * 128 * 128));
        assert!(!Boxes::new([1, 4, 4], 3, 256, 1).unwrap().filled(48));
    }
}
