//! Order on CUDA: tiles are sorted in shared memory and merged pairwise.

use super::Order;
use crate::{
    Array, CudaDevice, Positions, Result,
    array::rows::row_grid,
    csrc::order::{SORTERS, TILE},
    runtime::cuda::{Args, Grid, Kernel},
};

/// The first elements of each row of a contiguous array, as many as the last axis of `shape` says, and their positions.
pub(super) fn first(
    device: &CudaDevice,
    operation: &'static str,
    x: &Array,
    shape: &[usize],
    order: Order,
) -> Result<(Array, Positions)> {
    let size = x.dims().last().copied().unwrap_or(1);
    let rows = x.elements().checked_div(size).unwrap_or(0);
    let count = shape.last().copied().unwrap_or(0);
    let descending = i32::from(order == Order::Descending);
    let room = |shape: &[usize]| -> Result<(Array, Positions)> {
        let values = Array::for_kernel(operation, shape, x.dtype(), device)?;
        Ok((values, Positions::for_kernel(operation, shape, (size, true), device)?))
    };
    if rows * count == 0 {
        return room(shape);
    }
    // What a launch writes: all of each row, or in the last one only what is wanted.
    let target = |last: bool| if last { room(shape) } else { room(x.dims()) };
    let mut width = TILE;
    let mut sorted = target(width >= size)?;
    let keep = |last: bool| if last { count } else { size };
    let args = Args::new()
        .array(x)
        .array(&sorted.0)
        .array(sorted.1.words())
        .size(rows)
        .size(size)
        .size(keep(width >= size))
        .int(descending);
    let tiles = rows * size.div_ceil(TILE);
    // SAFETY: 1: x is contiguous, and `target` has room for whole rows, or for the `keep` first elements of each in the last launch. 2: new
    // arrays. 3: tiles are sorted by `SORTERS` threads.
    unsafe {
        device.launch(
            operation,
            Kernel::new("sort_tiles", x.dtype()),
            Grid::blocks(tiles.min(1 << 16), SORTERS as u32),
            args,
        )?
    };
    while width < size {
        let last = 2 * width >= size;
        let merged = target(last)?;
        let args = Args::new()
            .array(&sorted.0)
            .array(sorted.1.words())
            .array(&merged.0)
            .array(merged.1.words())
            .size(rows)
            .size(size)
            .size(width)
            .size(keep(last))
            .int(descending);
        // SAFETY: 1: `sorted` holds whole rows, since it was not the last launch; the rest as there. 2: new arrays. 3: a linear grid, the
        // kernel strides.
        unsafe {
            device.launch(operation, Kernel::new("sort_merge", x.dtype()), Grid::linear(rows * size), args)?
        };
        (sorted, width) = (merged, 2 * width);
    }
    Ok(sorted)
}

/// Where the greatest or least element of each row of a contiguous array is.
pub(super) fn extremum(
    device: &CudaDevice,
    operation: &'static str,
    x: &Array,
    shape: &[usize],
    greatest: bool,
) -> Result<Positions> {
    let size = x.dims().last().copied().unwrap_or(1);
    let rows = x.elements() / size;
    let out = Positions::for_kernel(operation, shape, (size, false), device)?;
    if rows > 0 {
        let args = Args::new().array(x).array(out.words()).size(rows).size(size).int(i32::from(greatest));
        // SAFETY: 1: x is contiguous, with rows of `size` elements, of which there is at least one; a position for each row. 2: `out` is
        // new. 3: a grid of rows, of 256 threads.
        unsafe { device.launch(operation, Kernel::new("extremum", x.dtype()), row_grid(rows, size), args)? };
    }
    Ok(out)
}
