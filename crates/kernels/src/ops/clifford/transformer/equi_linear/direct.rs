//! Equivariant linear maps of few rows on CUDA: one launch forward and three backward, straight from the parameters
//! (csrc/clifford/transformer/equi/equi_direct.cu). With many rows, products of matrices pay.

use super::{
    NAME, Operands, Sizes,
    call::{Call, OfMatrices, Side, parameters, tiles_of},
};
use crate::{
    Array, Result,
    csrc::equi_direct::{LINES, ROWS, SIDE, THREADS},
    runtime::cuda::{Args, Grid, Kernel},
};

/// Most rows, each of which a tile of columns reads the parameters for again.
const MOST_ROWS: usize = 1024;

/// Whether so few rows are mapped directly.
pub(super) fn serves(sizes: Sizes) -> bool {
    (1..=MOST_ROWS).contains(&sizes.rows)
}

/// The map, or with `transposed` the gradient of its features, between arrays that are apart from their scalars or not.
fn product(
    call: &Call<'_>,
    operands: &Operands<'_>,
    transposed: bool,
    (features, results): (Side, Side),
) -> Result<()> {
    let sizes = call.sizes;
    let (top, channels) = match transposed {
        false => (sizes.top_out(), sizes.channels_out),
        true => (sizes.top_in(), sizes.channels_in),
    };
    let blocks = [sizes.rows.div_ceil(ROWS), tiles_of(LINES, top, 2 * channels, sizes.others()), 1];
    let (kernel_sizes, from, table) = (call.kernel_sizes()?, parameters(operands), call.table()?);
    let args = Args::new()
        .value(&kernel_sizes)
        .value(&from)
        .value(&call.cells())
        .array(&table)
        .int(transposed.into())
        .value(&features)
        .value(&results)
        .size(sizes.rows);
    let grid = Grid::new(blocks, [THREADS as u32, 1, 1]);
    // SAFETY: 1: the operator's entry compared the operands with the sizes; all are contiguous, and the table is of these maps. 2: the results
    // are new, and have a row for each scalar and each channel of each blade. 3: a block for each tile of each pair, as the kernel numbers
    // them. 4: the caller borrows the operands, features and results.
    unsafe { call.device.launch(NAME, Kernel::new("equi_product", call.dtype), grid, args) }
}

/// The map into `out`.
pub(super) fn forward(call: &Call<'_>, operands: &Operands<'_>, out: &Array) -> Result<()> {
    product(call, operands, false, call.sides(operands, out))
}

/// The gradients of the features, into arrays of their shapes.
pub(super) fn of_features(
    call: &Call<'_>,
    operands: &Operands<'_>,
    grad: &Array,
    (of_x, of_scalars): (&Array, Option<&Array>),
) -> Result<()> {
    let Sizes { rows, scalars_in, scalars_out, .. } = call.sizes;
    let sides = (Side::new(grad, None, scalars_out, rows), Side::new(of_x, of_scalars, scalars_in, rows));
    product(call, operands, true, sides)
}

/// The gradients of the matrices, the first and the others, and of what is added to the first pair's results if something is.
pub(super) fn of_matrices(
    call: &Call<'_>,
    operands: &Operands<'_>,
    grad: &Array,
    adds: bool,
) -> Result<OfMatrices> {
    let sizes = call.sizes;
    let new = |elements: usize| Array::for_kernel(NAME, [elements], call.dtype, call.device);
    let first = Array::for_kernel(NAME, [sizes.top_out(), sizes.top_in()], call.dtype, call.device)?;
    let others = new(sizes.others() * sizes.other())?;
    let bias = adds.then(|| new(sizes.top_out())).transpose()?;
    let (features, of_results) = call.sides(operands, grad);
    let args = Args::new()
        .value(&call.kernel_sizes()?)
        .value(&features)
        .value(&of_results)
        .array(&first)
        .array(&others)
        .optional(bias.as_ref())
        .size(sizes.rows);
    let across = sizes.top_in().max(2 * sizes.channels_in).div_ceil(SIDE);
    let down = tiles_of(SIDE, sizes.top_out(), 2 * sizes.channels_out, sizes.others());
    let grid = Grid::new([across, down, 1], [THREADS as u32, 1, 1]);
    // SAFETY: as in `product`: features and gradient have the rows that the sizes say; both gradients of matrices and that of what is added
    // are new and of these sizes; a block for each tile of each pair.
    unsafe { call.device.launch(NAME, Kernel::new("equi_outer", call.dtype), grid, args)? };
    Ok(OfMatrices::whole(sizes, first, others, bias))
}
