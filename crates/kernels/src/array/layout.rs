//! Walking strided views with as few and as long inner loops as possible.

use gradewise_core::PerAxis;

/// Merges neighbouring axes that all operands step through evenly and drops axes of one element: the shortest sizes
/// and strides that visit the same positions in the same order.
pub(crate) fn collapse<const N: usize>(sizes: &[usize], strides: [&[usize]; N]) -> (PerAxis, [PerAxis; N]) {
    let mut merged = PerAxis::new();
    let mut steps: [PerAxis; N] = std::array::from_fn(|_| PerAxis::new());
    for (axis, &size) in sizes.iter().enumerate() {
        if size == 1 {
            continue;
        }
        let joins =
            |operand: usize| steps[operand].last().is_some_and(|&step| step == strides[operand][axis] * size);
        match merged.last_mut() {
            Some(last) if (0..N).all(joins) => {
                *last *= size;
                for (steps, strides) in steps.iter_mut().zip(strides) {
                    if let Some(step) = steps.last_mut() {
                        *step = strides[axis];
                    }
                }
            }
            _ => {
                merged.push(size);
                for (steps, strides) in steps.iter_mut().zip(strides) {
                    steps.push(strides[axis]);
                }
            }
        }
    }
    (merged, steps)
}

/// Positions of a strided space in row-major order, as one offset per operand.
pub(crate) struct Walk<'a, const N: usize> {
    pub sizes: &'a [usize],
    pub strides: [&'a [usize]; N],
}

impl<const N: usize> Walk<'_, N> {
    /// Number of positions.
    pub fn len(&self) -> usize {
        self.sizes.iter().product()
    }

    /// The offsets from position `start` on; after the last position, the first comes again.
    #[inline(always)]
    pub fn offsets(&self, start: usize) -> Offsets<'_, N> {
        let mut at = PerAxis::from_elem(0, self.sizes.len());
        let mut offsets = [0; N];
        let mut rest = start;
        for axis in (0..at.len()).rev() {
            let size = self.sizes[axis].max(1);
            at[axis] = rest % size;
            rest /= size;
            for (offset, strides) in offsets.iter_mut().zip(self.strides) {
                *offset += at[axis] * strides[axis];
            }
        }
        Offsets { walk: Walk { ..*self }, at, offsets }
    }
}

/// The offsets of a [`Walk`], one position after the other, without end.
pub(crate) struct Offsets<'a, const N: usize> {
    walk: Walk<'a, N>,
    at: PerAxis,
    offsets: [usize; N],
}

impl<const N: usize> Iterator for Offsets<'_, N> {
    type Item = [usize; N];

    // Inlined into the loop of a kernel, so that the loop is compiled for the kernel's instruction set.
    #[inline(always)]
    fn next(&mut self) -> Option<[usize; N]> {
        let current = self.offsets;
        for axis in (0..self.at.len()).rev() {
            self.at[axis] += 1;
            if self.at[axis] < self.walk.sizes[axis] {
                for (offset, strides) in self.offsets.iter_mut().zip(self.walk.strides) {
                    *offset += strides[axis];
                }
                break;
            }
            self.at[axis] = 0;
            for (offset, strides) in self.offsets.iter_mut().zip(self.walk.strides) {
                *offset -= strides[axis] * (self.walk.sizes[axis] - 1);
            }
        }
        Some(current)
    }
}
