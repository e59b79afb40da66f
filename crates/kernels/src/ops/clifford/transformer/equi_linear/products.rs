//! Equivariant linear maps on CUDA by products of matrices: a launch builds the matrices, two products write where their results belong.

use super::{
    NAME, Operands, Sizes,
    call::{Call, OfMatrices, has_bias, parameters},
};
use crate::{
    Array, Result,
    cpu::gemm,
    ops::{
        self,
        matmul::product::{Operand, Product},
    },
    runtime::cuda::{Args, Grid, Kernel},
};

impl Call<'_> {
    /// The first matrix and the others, one after the other; or the transposes of all.
    fn matrices(&self, operands: &Operands<'_>, transposed: bool) -> Result<Array> {
        let out = Array::for_kernel(NAME, [self.elements()], self.dtype, self.device)?;
        if out.elements() > 0 {
            let (sizes, from, table) = (self.kernel_sizes()?, parameters(operands), self.table()?);
            let args =
                Args::new().value(&sizes).value(&from).array(&table).int(transposed.into()).array(&out);
            let grid = Grid::linear(out.elements());
            // SAFETY: 1: the operator's entry compared the operands with the sizes; all are contiguous, and the table is of these maps. 2:
            // `out` is new and has the elements of both matrices. 3: linear, the kernel strides. 4: the caller borrows the operands.
            unsafe { self.device.launch(NAME, Kernel::new("equi_matrices", self.dtype), grid, args)? };
        }
        Ok(out)
    }

    /// The product of the first matrix, or of some of its columns, with features at an address.
    fn top(&self, matrices: &Array, columns: std::ops::Range<usize>, features: u64) -> Product<'static> {
        let Sizes { rows, .. } = self.sizes;
        let (width, size) = (self.sizes.top_in(), self.dtype.size());
        Product {
            a: rows_of(matrices.cuda_address() + (columns.start * size) as u64, self.sizes.top_out(), width),
            b: rows_of(features, columns.len(), rows),
            ..self.product(gemm::Sizes { m: self.sizes.top_out(), n: rows, k: columns.len() }, 1)
        }
    }

    fn product(&self, sizes: gemm::Sizes, count: usize) -> Product<'static> {
        let nothing = rows_of(0, 0, 0);
        Product {
            operation: NAME,
            dtype: self.dtype,
            sizes,
            count,
            a: nothing,
            b: nothing,
            starts: None,
            segments: 1,
            bias: None,
            scale: 1.0,
            window: None,
        }
    }

    /// The address of row `row` of an array of `columns` columns.
    fn row(&self, array: &Array, row: usize, columns: usize) -> u64 {
        array.cuda_address() + (row * columns * self.dtype.size()) as u64
    }
}

/// Matrices of `rows` rows of `columns` elements, one after the other.
const fn rows_of(address: u64, rows: usize, columns: usize) -> Operand<'static> {
    Operand { address, row: columns, stride: rows * columns, transpose: false, index: None, transposed: None }
}

const fn transposed(operand: Operand<'static>) -> Operand<'static> {
    Operand { transpose: true, ..operand }
}

/// The map into `out`, which has elements.
pub(super) fn forward(call: &Call<'_>, operands: &Operands<'_>, out: &Array) -> Result<()> {
    let (device, sizes, dtype) = (call.device, call.sizes, call.dtype);
    let matrices = call.matrices(operands, false)?;
    let mut adds = has_bias(operands);
    if adds {
        let (kernel_sizes, from) = (call.kernel_sizes()?, parameters(operands));
        let args = Args::new().value(&kernel_sizes).value(&from).array(out).size(sizes.rows);
        let grid = Grid::blocks(sizes.top_out().clamp(1, 1 << 16), 256);
        // SAFETY: 1: as for the matrices; `out` has more rows than those that are written. 2: it is new. 3: a block for a row, the kernel
        // strides. 4: the caller borrows the operands.
        unsafe { device.launch(NAME, Kernel::new("equi_bias", dtype), grid, args)? };
    }
    let x = operands.x.cuda_address();
    let own = if operands.scalars.is_some() { 0 } else { sizes.scalars_in };
    let parts = match operands.scalars {
        Some(scalars) => {
            vec![(0..sizes.scalars_in, scalars.cuda_address()), (sizes.scalars_in..sizes.top_in(), x)]
        }
        None => vec![(0..sizes.top_in(), x)],
    };
    for (columns, features) in parts.into_iter().filter(|(columns, _)| !columns.is_empty()) {
        let product = Product {
            window: Some((0, sizes.top_out() * sizes.rows)),
            ..call.top(&matrices, columns, features)
        };
        // SAFETY: the columns of the first matrix and as many rows of the features, as the sizes say, which the operator's entry compared
        // with the operands; `out` is new, and has room for the rows of the first matrix. Its elements are added to once they are written.
        unsafe { product.run_into(device, out, adds)? };
        adds = true;
    }
    let below = own + 2 * sizes.channels_in;
    let others = Product {
        a: rows_of(call.row(&matrices, sizes.first(), 1), 2 * sizes.channels_out, 2 * sizes.channels_in),
        b: rows_of(call.row(operands.x, below, sizes.rows), 2 * sizes.channels_in, sizes.rows),
        window: Some((sizes.top_out() * sizes.rows, 2 * sizes.channels_out * sizes.rows)),
        ..call.product(
            gemm::Sizes { m: 2 * sizes.channels_out, n: sizes.rows, k: 2 * sizes.channels_in },
            sizes.others(),
        )
    };
    if sizes.others() * sizes.channels_out * sizes.channels_in > 0 {
        // SAFETY: as above, for the other pairs, which lie below the first in `x` and in `out`.
        unsafe { others.run_into(device, out, false)? };
    }
    Ok(())
}

/// The gradients of the features, into arrays of their shapes.
pub(super) fn of_features(
    call: &Call<'_>,
    operands: &Operands<'_>,
    grad: &Array,
    (of_x, of_scalars): (&Array, Option<&Array>),
) -> Result<()> {
    let (device, sizes) = (call.device, call.sizes);
    let Sizes { rows, scalars_in, channels_in, channels_out, .. } = sizes;
    if rows == 0 {
        return Ok(());
    }
    // Products read their first operand along its rows.
    let matrices = call.matrices(operands, true)?;
    let (top, rest) = gradients(call, grad);
    let parts = match of_scalars {
        Some(of_scalars) => vec![(0..scalars_in, of_scalars), (scalars_in..sizes.top_in(), of_x)],
        None => vec![(0..sizes.top_in(), of_x)],
    };
    for (columns, of_features) in parts.into_iter().filter(|(columns, _)| !columns.is_empty()) {
        let count = columns.len();
        let down = Product {
            a: rows_of(call.row(&matrices, columns.start, sizes.top_out()), count, sizes.top_out()),
            b: top,
            window: Some((0, count * rows)),
            ..call.product(gemm::Sizes { m: count, n: rows, k: sizes.top_out() }, 1)
        };
        // SAFETY: these columns of the first matrix and the rows of the gradient above the other pairs, as the sizes say; the gradient of
        // the features is new and has `count` rows or more.
        unsafe { down.run_into(device, of_features, false)? };
    }
    if sizes.others() > 0 {
        let below = if of_scalars.is_some() { 0 } else { scalars_in } + 2 * channels_in;
        let down = Product {
            a: rows_of(call.row(&matrices, sizes.first(), 1), 2 * channels_in, 2 * channels_out),
            b: rest,
            window: Some((below * rows, 2 * channels_in * rows)),
            ..call.product(gemm::Sizes { m: 2 * channels_in, n: rows, k: 2 * channels_out }, sizes.others())
        };
        // SAFETY: the matrices of the other pairs, and their rows of the gradient; `of_x` is new and has the rows of these pairs.
        unsafe { down.run_into(device, of_x, false)? };
    }
    Ok(())
}

/// The rows of a gradient of the results: of the first pair, and of the others.
fn gradients(call: &Call<'_>, grad: &Array) -> (Operand<'static>, Operand<'static>) {
    let (sizes, rows) = (call.sizes, call.sizes.rows);
    let rest = call.row(grad, sizes.top_out(), rows);
    (rows_of(grad.cuda_address(), sizes.top_out(), rows), rows_of(rest, 2 * sizes.channels_out, rows))
}

/// The gradients of the matrices, the first and the others, and of what is added to the first pair's results if something is.
pub(super) fn of_matrices(
    call: &Call<'_>,
    operands: &Operands<'_>,
    grad: &Array,
    adds: bool,
) -> Result<OfMatrices> {
    let (device, sizes, dtype) = (call.device, call.sizes, call.dtype);
    let Sizes { rows, scalars_in, channels_in, channels_out, .. } = sizes;
    let (top, rest) = gradients(call, grad);
    let x = operands.x.cuda_address();
    let (own, parts) = match operands.scalars {
        Some(scalars) => (0, vec![(scalars_in, scalars.cuda_address()), (2 * channels_in, x)]),
        None => (scalars_in, vec![(sizes.top_in(), x)]),
    };
    let mut of_first = Vec::new();
    for (count, features) in parts.into_iter().filter(|&(count, _)| count > 0) {
        let outer = Product {
            a: top,
            b: transposed(rows_of(features, count, rows)),
            ..call.product(gemm::Sizes { m: sizes.top_out(), n: count, k: rows }, 1)
        };
        // SAFETY: rows of the gradient and of the features, as the sizes say.
        of_first.push(unsafe { outer.run(device, [sizes.top_out(), count])? });
    }
    let other = [sizes.others() * sizes.other()];
    let of_others = if other == [0] {
        Array::for_kernel(NAME, other, dtype, device)?
    } else {
        let features = call.row(operands.x, own + 2 * channels_in, rows);
        let outer = Product {
            a: rest,
            b: transposed(rows_of(features, 2 * channels_in, rows)),
            ..call.product(gemm::Sizes { m: 2 * channels_out, n: 2 * channels_in, k: rows }, sizes.others())
        };
        // SAFETY: as above.
        unsafe { outer.run(device, other)? }
    };
    let of_first = match &of_first[..] {
        [one] => one.clone(),
        parts => ops::concat(&parts.iter().collect::<Vec<_>>(), 1)?,
    };
    let of_bias = adds.then(|| ops::sum(&grad.slice(0, 0..sizes.top_out())?, &[1], false)).transpose()?;
    Ok(OfMatrices::whole(sizes, of_first, of_others, of_bias))
}
