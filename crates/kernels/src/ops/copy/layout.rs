//! Walking strided views with as few and as long inner loops as possible.

/// Merges neighbouring axes that all operands step through evenly and drops axes of one element: the shortest sizes
/// and strides that visit the same positions in the same order.
pub(crate) fn collapse<const N: usize>(
    sizes: &[usize],
    strides: [&[usize]; N],
) -> (Vec<usize>, [Vec<usize>; N]) {
    let mut merged = Vec::with_capacity(sizes.len());
    let mut steps: [Vec<usize>; N] = std::array::from_fn(|_| Vec::with_capacity(sizes.len()));
    for (axis, &size) in sizes.iter().enumerate() {
        if size == 1 {
            continue;
        }
        let joins = |operand: usize| match steps[operand].last() {
            Some(&previous) => previous == strides[operand][axis] * size,
            None => false,
        };
        if !merged.is_empty() && (0..N).all(joins) {
            if let Some(last) = merged.last_mut() {
                *last *= size;
            }
            for operand in 0..N {
                if let Some(last) = steps[operand].last_mut() {
                    *last = strides[operand][axis];
                }
            }
        } else {
            merged.push(size);
            for operand in 0..N {
                steps[operand].push(strides[operand][axis]);
            }
        }
    }
    (merged, steps)
}

/// Calls `visit` with each operand's offset, for every position in row-major order.
pub(crate) fn for_each_offset<const N: usize>(
    sizes: &[usize],
    strides: [&[usize]; N],
    mut visit: impl FnMut([usize; N]),
) {
    if sizes.contains(&0) {
        return;
    }
    let mut position = vec![0; sizes.len()];
    let mut offsets = [0; N];
    loop {
        visit(offsets);
        let mut axis = sizes.len();
        loop {
            if axis == 0 {
                return;
            }
            axis -= 1;
            position[axis] += 1;
            if position[axis] < sizes[axis] {
                for (offset, strides) in offsets.iter_mut().zip(strides) {
                    *offset += strides[axis];
                }
                break;
            }
            position[axis] = 0;
            for (offset, strides) in offsets.iter_mut().zip(strides) {
                *offset -= strides[axis] * (sizes[axis] - 1);
            }
        }
    }
}
