//! The fully connected product on CUDA: pairwise sums, then products with the weights summed over paths.
//!
//! The pairwise sums of all paths are larger than the operands by a factor of a few, so the batch is cut into stretches of
//! rows that keep them within [`BUDGET`].

use super::{NAME, Product as Output, ProductGradients, ProductOptions, Sizes};
use crate::{
    Array, CudaDevice, Result,
    cuda::Words,
    ops::{
        self,
        clifford::device::{
            DeviceAlgebra, DevicePairing, gate_backward, gated, rms_norm, rms_norm_backward, zeros,
        },
        matmul::cuda::{Operand, Product},
    },
};
use gradewise_core::Algebra;
use std::ops::Range;

/// Bytes of pairwise sums at a time.
const BUDGET: usize = 128 << 20;

fn stretches(sizes: &Sizes, groups: usize, element: usize) -> Vec<Range<usize>> {
    let row = (groups * sizes.inputs.max(sizes.outputs) * element).max(1);
    let rows = (BUDGET / row).max(64);
    (0..sizes.batch).step_by(rows).map(|first| first..(first + rows).min(sizes.batch)).collect()
}

/// The rows of a stretch, contiguous.
fn rows(array: &Array, stretch: &Range<usize>) -> Result<Array> {
    array.slice(1, stretch.clone())?.contiguous()
}

fn operand<'a>(array: &Array, transpose: bool, index: Option<&'a Words>) -> Operand<'a> {
    let [_, rows, columns] = array.dims()[..] else { unreachable!("callers pass [count, rows, columns]") };
    Operand { address: array.cuda_address(), row: columns, stride: rows * columns, transpose, index }
}

pub(super) fn forward(
    device: &CudaDevice,
    algebra: &Algebra,
    sizes: &Sizes,
    (x, y, w): (&Array, &Array, &Array),
    options: ProductOptions,
) -> Result<Output> {
    let pairing = DevicePairing::of(device, algebra)?;
    let (x, y) = (gated(device, NAME, options, x)?, gated(device, NAME, options, y)?);
    let mut parts = Vec::new();
    for stretch in stretches(sizes, pairing.groups, x.dtype().size()) {
        let sums = pairing.sums.product(
            device,
            NAME,
            (&rows(&x, &stretch)?, &rows(&y, &stretch)?),
            None,
            (None, 1.0),
        )?;
        let product = Product {
            operation: NAME,
            dtype: x.dtype(),
            sizes: (stretch.len(), sizes.outputs, sizes.inputs),
            count: algebra.blade_count(),
            a: operand(&sums, false, Some(&pairing.result_groups)),
            b: operand(w, false, Some(&pairing.result_paths)),
            starts: Some(&pairing.result_starts),
            segments: pairing.most_of_result,
            bias: None,
            scale: 1.0,
        };
        parts.push(product.run(device, [algebra.blade_count(), stretch.len(), sizes.outputs])?);
    }
    let shape = [algebra.blade_count(), sizes.batch, sizes.outputs];
    let output = join(device, &parts, &shape, x.dtype())?;
    let inverse_rms = match options.normalize {
        true => Some(rms_norm(device, NAME, &*DeviceAlgebra::of(device, algebra)?, &output)?),
        false => None,
    };
    Ok(Output { output, inverse_rms })
}

/// The stretches as one array of `shape`.
fn join(device: &CudaDevice, parts: &[Array], shape: &[usize], dtype: crate::DType) -> Result<Array> {
    match parts {
        [] => zeros(device, shape, dtype),
        [part] => Ok(part.clone()),
        parts => ops::concat(&parts.iter().collect::<Vec<_>>(), 1),
    }
}

#[expect(clippy::too_many_arguments, reason = "the operator's own, and where it runs")]
pub(super) fn backward(
    device: &CudaDevice,
    algebra: &Algebra,
    sizes: &Sizes,
    (x, y, w): (&Array, &Array, &Array),
    options: ProductOptions,
    output: &Output,
    grad: &Array,
    [need_x, need_y, need_weights]: [bool; 3],
) -> Result<ProductGradients> {
    let pairing = DevicePairing::of(device, algebra)?;
    let upstream = match &output.inverse_rms {
        Some(inverse) => {
            let tables = DeviceAlgebra::of(device, algebra)?;
            rms_norm_backward(device, NAME, &tables, (&output.output.contiguous()?, inverse), grad)?
        }
        None => grad.clone(),
    };
    let (gated_x, gated_y) = (gated(device, NAME, options, x)?, gated(device, NAME, options, y)?);
    let dtype = x.dtype();
    let (mut left, mut right) = (Vec::new(), Vec::new());
    let mut weights: Option<Array> = None;
    for stretch in stretches(sizes, pairing.groups, dtype.size()) {
        let (x, y) = (rows(&gated_x, &stretch)?, rows(&gated_y, &stretch)?);
        let upstream = rows(&upstream, &stretch)?;
        if need_weights {
            let sums = pairing.sums.product(device, NAME, (&x, &y), None, (None, 1.0))?;
            let product = Product {
                operation: NAME,
                dtype,
                sizes: (sizes.inputs, sizes.outputs, stretch.len()),
                count: algebra.paths().len(),
                a: operand(&sums, true, None),
                b: operand(&upstream, false, Some(&pairing.group_results)),
                starts: Some(&pairing.path_starts),
                segments: pairing.most_of_path,
                bias: None,
                scale: 1.0,
            };
            match &weights {
                Some(weights) => product.run_into(device, weights, true)?,
                None => weights = Some(product.run(device, w.shape())?),
            }
        }
        if need_x || need_y {
            let product = Product {
                operation: NAME,
                dtype,
                sizes: (stretch.len(), sizes.inputs, sizes.outputs),
                count: pairing.groups,
                a: operand(&upstream, false, Some(&pairing.group_results)),
                b: operand(w, true, Some(&pairing.group_paths)),
                starts: None,
                segments: 1,
                bias: None,
                scale: 1.0,
            };
            let sums = product.run(device, [pairing.groups, stretch.len(), sizes.inputs])?;
            if need_x {
                left.push(pairing.grad_left.product(device, NAME, (&sums, &y), None, (None, 1.0))?);
            }
            if need_y {
                right.push(pairing.grad_right.product(device, NAME, (&sums, &x), None, (None, 1.0))?);
            }
        }
    }
    let finish = |needed: bool, parts: &[Array], raw: &Array| -> Result<Option<Array>> {
        if !needed {
            return Ok(None);
        }
        let gradient = join(device, parts, raw.dims(), dtype)?;
        Ok(Some(if options.gate { gate_backward(device, NAME, raw, &gradient)? } else { gradient }))
    };
    Ok(ProductGradients {
        x: finish(need_x, &left, x)?,
        y: finish(need_y, &right, y)?,
        weights: match (need_weights, weights) {
            (false, _) => None,
            (true, Some(weights)) => Some(weights),
            (true, None) => Some(zeros(device, w.shape(), dtype)?),
        },
    })
}
