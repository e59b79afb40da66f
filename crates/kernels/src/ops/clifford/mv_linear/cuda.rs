//! The grade-wise linear map on CUDA: one launch for all blades, and one for all weights.

use super::{Bias, Gradients, NAME, Sizes};
use crate::{
    Array, CudaDevice, Result,
    cuda::Words,
    ops::{
        self,
        clifford::device::DeviceAlgebra,
        matmul::cuda::{Operand, Product},
    },
};
use gradewise_core::Algebra;
use std::cell::OnceCell;

/// Matrices `[count, rows, columns]` of a contiguous array.
fn matrices(array: &Array, (rows, columns): (usize, usize), transpose: bool) -> Operand<'static> {
    Operand {
        address: array.cuda_address(),
        row: columns,
        stride: rows * columns,
        transpose,
        index: None,
        transposed: None,
    }
}

/// The matrix of each blade's grade, or the one that all share.
fn weights<'a>(w: &Array, sizes: &Sizes, grades: &'a Words, transpose: bool) -> Operand<'a> {
    let operand = matrices(w, (sizes.inputs, sizes.outputs), transpose);
    if sizes.shared { Operand { stride: 0, ..operand } } else { Operand { index: Some(grades), ..operand } }
}

pub(in crate::ops::clifford) fn forward(
    device: &CudaDevice,
    algebra: &Algebra,
    sizes: &Sizes,
    (x, w): (&Array, &Array),
    bias: Option<(&Array, Bias)>,
) -> Result<Array> {
    let tables = DeviceAlgebra::of(device, algebra)?;
    let blades = algebra.blade_count();
    let product = Product {
        operation: NAME,
        dtype: x.dtype(),
        sizes: (sizes.batch, sizes.outputs, sizes.inputs),
        count: blades,
        a: matrices(x, (sizes.batch, sizes.inputs), false),
        b: weights(w, sizes, &tables.grades, false),
        starts: None,
        segments: 1,
        bias: bias.map(|(array, bias)| (array.cuda_address(), bias.blades(algebra))),
        scale: 1.0,
        window: None,
    };
    product.run(device, [blades, sizes.batch, sizes.outputs])
}

/// Sizes of a map between equally many features with a matrix for each grade.
pub(in crate::ops::clifford) const fn square(batch: usize, features: usize) -> Sizes {
    Sizes { batch, inputs: features, outputs: features, shared: false }
}

/// The gradient of x is added to what `add_to` `[blades, batch, in]` holds, if it is given.
pub(in crate::ops::clifford) fn backward(
    device: &CudaDevice,
    algebra: &Algebra,
    sizes: &Sizes,
    (x, w, grad): (&Array, &Array, &Array),
    bias: Bias,
    [need_x, need_w, need_bias]: [bool; 3],
    add_to: Option<&Array>,
) -> Result<Gradients> {
    let tables = DeviceAlgebra::of(device, algebra)?;
    let (blades, grades) = (algebra.blade_count(), algebra.grade_count());
    let mut gradients = Gradients::default();
    // The gradient is read along both axes, if both are wanted.
    let turned = OnceCell::new();
    let transposed = (need_x && need_w && !sizes.shared).then_some(&turned);
    let upstream = Operand { transposed, ..matrices(grad, (sizes.batch, sizes.outputs), false) };
    if need_x {
        let product = Product {
            operation: NAME,
            dtype: grad.dtype(),
            sizes: (sizes.batch, sizes.inputs, sizes.outputs),
            count: blades,
            a: upstream,
            b: weights(w, sizes, &tables.grades, true),
            starts: None,
            segments: 1,
            bias: None,
            scale: 1.0,
            window: None,
        };
        gradients.x = Some(match add_to {
            Some(target) => {
                if target.elements() > 0 {
                    product.run_into(device, target, true)?;
                }
                target.clone()
            }
            None => product.run(device, x.shape())?,
        });
    }
    if need_w {
        // The blades of a grade follow each other, so their sum is a sum over segments; for a shared matrix all blades are
        // rows of one product.
        let (count, rows, segments) =
            if sizes.shared { (1, blades * sizes.batch, 1) } else { (grades, sizes.batch, tables.widest) };
        let product = Product {
            operation: NAME,
            dtype: x.dtype(),
            sizes: (sizes.inputs, sizes.outputs, rows),
            count,
            a: matrices(x, (sizes.batch, sizes.inputs), true),
            b: upstream,
            starts: (!sizes.shared).then_some(&tables.first),
            segments,
            bias: None,
            scale: 1.0,
            window: None,
        };
        gradients.w = Some(product.run(device, w.shape())?);
    }
    if need_bias {
        let range = bias.blades(algebra);
        gradients.bias = Some(ops::sum(&grad.slice(0, range)?, &[0, 1], false)?);
    }
    Ok(gradients)
}
