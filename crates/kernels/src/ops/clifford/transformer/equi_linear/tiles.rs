//! Equivariant linear maps of many rows of `f32` by matrix instructions: two launches forward and four backward
//! (csrc/clifford/transformer/equi/equi_tiles.cu).

use super::{
    NAME, Operands, Sizes,
    call::{Call, OfMatrices, Side, has_bias, parameters, tiles_of},
};
use crate::{
    Array, Compute, DType, Products, Result,
    csrc::equi_tiles::{ACROSS, BLOCKS, COLUMNS, LINES, STEP, STRETCHES, THREADS, fragments},
    ops::matmul::cuda::has_warp_kernels,
    runtime::cuda::{Args, Grid, Kernel},
};

/// Most elements of the first matrix, and of each of the others. Each tile of results reads the features again, each of gradients both
/// sides, so for larger matrices products by larger tiles are faster.
const MOST_FIRST: usize = 80 << 10;
const MOST_OTHER: usize = 16 << 10;
/// Kernels count rows in 32 bits.
const MOST_ROWS: usize = 1 << 30;
/// Rows of a pair's matrix from which on products may be in TF32.
const LEAST: usize = 16;

/// Whether maps between these sides, of too many rows for the direct kernels, are computed here.
fn serves(call: &Call<'_>, (features, results): (Side, Side)) -> Result<bool> {
    let sizes = call.sizes;
    let in_packs = |side: &Side| side.0.iter().all(|address| address.is_multiple_of(16));
    Ok(call.dtype == DType::F32
        && (1..=MOST_ROWS).contains(&sizes.rows)
        && sizes.rows.is_multiple_of(4)
        && [features, results].iter().all(in_packs)
        && sizes.first() <= MOST_FIRST
        && sizes.other() <= MOST_OTHER
        && call.device.options().products != Products::Plain
        && has_warp_kernels(call.device, call.dtype)?)
}

/// Whether products have three parts: where exact ones are asked for, and between few channels, where it costs nothing.
fn is_exact(sizes: Sizes) -> bool {
    Compute::current() != Compute::Tf32 || 2 * sizes.channels_in.min(sizes.channels_out) < LEAST
}

/// The kernel of a name, for exact products or not.
fn kernel(name: [&'static str; 2], call: &Call<'_>) -> Kernel {
    Kernel::new(name[usize::from(is_exact(call.sizes))], call.dtype)
}

/// The map, or with `transposed` the gradient of its features, between arrays that are apart from their scalars or not.
fn product(
    call: &Call<'_>,
    operands: &Operands<'_>,
    transposed: bool,
    (features, results): (Side, Side),
) -> Result<()> {
    let (sizes, device) = (call.sizes, call.device);
    let Sizes { channels_in, channels_out, .. } = sizes;
    let [(top, channels), (terms, depth)] = match transposed {
        false => [(sizes.top_out(), channels_out), (sizes.top_in(), channels_in)],
        true => [(sizes.top_in(), channels_in), (sizes.top_out(), channels_out)],
    };
    let (kernel_sizes, from, table) = (call.kernel_sizes()?, parameters(operands), call.table()?);
    let elements = fragments(top, terms) + sizes.others() * fragments(2 * channels, 2 * depth);
    let parts = if is_exact(sizes) { 2 } else { 1 };
    let matrices = Array::for_kernel(NAME, [parts, elements], call.dtype, device)?;
    let adds = !transposed && has_bias(operands);
    let added = adds.then(|| Array::for_kernel(NAME, [top], call.dtype, device)).transpose()?;
    let args = Args::new()
        .value(&kernel_sizes)
        .value(&from)
        .value(&call.cells())
        .array(&table)
        .int(transposed.into())
        .array(&matrices)
        .optional(added.as_ref());
    // SAFETY: 1: the operator's entry compared the operands with the sizes; all are contiguous, and the table is of these maps. 2: both
    // arrays are new; the first has the elements of all fragments, once or twice, the other one for each line of the first pair. 3: linear,
    // the kernel strides. 4: the caller borrows the operands.
    unsafe {
        let fragments = kernel(["equi_fragments", "equi_fragments_exact"], call);
        device.launch(NAME, fragments, Grid::linear(elements.max(top)), args)?;
    }
    let args = Args::new()
        .value(&kernel_sizes)
        .value(&from)
        .int(transposed.into())
        .array(&matrices)
        .optional(added.as_ref())
        .value(&features)
        .value(&results)
        .value(&(sizes.rows as u32));
    let blocks = [sizes.rows.div_ceil(COLUMNS), tiles_of(LINES, top, 2 * channels, sizes.others()), 1];
    // SAFETY: 1: as above, and `serves` saw that lines are packs of 16 bytes. 2: the results are new, and have a row for each scalar and each
    // channel of each blade. 3: a block for each tile of each pair, as the kernel numbers them. 4: the caller borrows features and results.
    unsafe {
        let tiles = kernel(["equi_tiles", "equi_tiles_exact"], call);
        device.launch(NAME, tiles, Grid::new(blocks, [THREADS as u32, 1, 1]), args)
    }
}

/// The map into `out`, if it is computed here.
pub(super) fn forward(call: &Call<'_>, operands: &Operands<'_>, out: &Array) -> Result<bool> {
    let sides = call.sides(operands, out);
    let serves = serves(call, sides)?;
    if serves {
        product(call, operands, false, sides)?;
    }
    Ok(serves)
}

/// The gradients of the features, into arrays of their shapes, if they are computed here.
pub(super) fn of_features(
    call: &Call<'_>,
    operands: &Operands<'_>,
    grad: &Array,
    (of_x, of_scalars): (&Array, Option<&Array>),
) -> Result<bool> {
    let Sizes { rows, scalars_in, scalars_out, .. } = call.sizes;
    let sides = (Side::new(grad, None, scalars_out, rows), Side::new(of_x, of_scalars, scalars_in, rows));
    let serves = serves(call, sides)?;
    if serves {
        product(call, operands, true, sides)?;
    }
    Ok(serves)
}

/// Steps of a stretch, and how many stretches there are: of the sizes alone.
fn stretches(sizes: Sizes, tiles: usize) -> (usize, usize) {
    let steps = sizes.rows.div_ceil(STEP);
    let most = (BLOCKS / tiles.max(1)).clamp(1, STRETCHES);
    let share = steps.div_ceil(most).max(1);
    (share, steps.div_ceil(share))
}

/// The gradients of the matrices and of what is added, by stretches of rows, if they are computed here.
pub(super) fn of_matrices(
    call: &Call<'_>,
    operands: &Operands<'_>,
    grad: &Array,
    adds: bool,
) -> Result<Option<OfMatrices>> {
    let sizes = call.sizes;
    let (features, of_results) = call.sides(operands, grad);
    if !serves(call, (features, of_results))? {
        return Ok(None);
    }
    let tiles_of = |height: usize, width: usize| height.div_ceil(LINES) * width.div_ceil(ACROSS);
    let tiles = tiles_of(sizes.top_out(), sizes.top_in())
        + sizes.others() * tiles_of(2 * sizes.channels_out, 2 * sizes.channels_in);
    let (share, stretches) = stretches(sizes, tiles);
    let new = |elements: usize| Array::for_kernel(NAME, [stretches, elements], call.dtype, call.device);
    let matrices = new(call.elements())?;
    let bias = adds.then(|| new(sizes.top_out())).transpose()?;
    let args = Args::new()
        .value(&call.kernel_sizes()?)
        .value(&parameters(operands))
        .value(&features)
        .value(&of_results)
        .array(&matrices)
        .optional(bias.as_ref())
        .value(&(sizes.rows as u32))
        .value(&(share as u32));
    let grid = Grid::new([tiles, stretches, 1], [THREADS as u32, 1, 1]);
    // SAFETY: as in `product`: features and gradient have the rows that the sizes say, in packs; the parts of the gradients and of what is
    // added are new, each of the elements of all matrices; a block for each tile of each pair and stretch.
    unsafe {
        let outer = kernel(["equi_tiles_outer", "equi_tiles_outer_exact"], call);
        call.device.launch(NAME, outer, grid, args)?;
    }
    let stride = call.elements();
    let count = stretches;
    Ok(Some(OfMatrices { first: matrices, others: None, bias, count, stride, of_first: sizes.first() }))
}
