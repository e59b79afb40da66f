//! Walking strided views with as few and as long inner loops as possible.

/// Merges neighbouring axes that all operands step through evenly and drops axes of one element: the shortest sizes
/// and strides that visit the same positions in the same order.
pub(crate) fn collapse<const N: usize>(
    sizes: &[usize],
    strides: [&[usize]; N],
) -> (Vec<usize>, [Vec<usize>; N]) {
    let mut merged: Vec<usize> = Vec::with_capacity(sizes.len());
    let mut steps: [Vec<usize>; N] = std::array::from_fn(|_| Vec::with_capacity(sizes.len()));
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

    /// Calls `visit` with the offsets of `count` positions from position `start` on, which must exist.
    #[inline(always)]
    pub fn visit(&self, start: usize, count: usize, mut visit: impl FnMut([usize; N])) {
        let rank = self.sizes.len();
        let mut at = vec![0; rank];
        let mut offsets = [0; N];
        let mut rest = start;
        for axis in (0..rank).rev() {
            at[axis] = rest % self.sizes[axis].max(1);
            rest /= self.sizes[axis].max(1);
            for (offset, strides) in offsets.iter_mut().zip(self.strides) {
                *offset += at[axis] * strides[axis];
            }
        }
        for step in 0..count {
            visit(offsets);
            if step + 1 == count {
                return;
            }
            for axis in (0..rank).rev() {
                at[axis] += 1;
                if at[axis] < self.sizes[axis] {
                    for (offset, strides) in offsets.iter_mut().zip(self.strides) {
                        *offset += strides[axis];
                    }
                    break;
                }
                at[axis] = 0;
                for (offset, strides) in offsets.iter_mut().zip(self.strides) {
                    *offset -= strides[axis] * (self.sizes[axis] - 1);
                }
            }
        }
    }
}
