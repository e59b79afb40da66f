//! The fully connected product on CUDA: pairwise sums, then products with the weights summed over paths.
//!
//! The pairwise sums of all paths are larger than the operands by a factor of a few, so the batch is cut into stretches of
//! rows that keep them within [`FORWARD`] and [`BACKWARD`].

use super::{
    NAME, Needs, Operands, Product as Output, ProductGradients, ProductOptions, Sizes, check, pairs::Pairs,
};
use crate::{
    Array, CudaDevice, Result,
    cpu::gemm,
    ops::{
        clifford::{
            algebra::{
                contract::Planes,
                device_algebra::{DeviceAlgebra, DevicePairing, zeros},
            },
            product::gate_norm::{rms_norm, rms_norm_backward},
        },
        matmul::product::{Operand, Product},
    },
    runtime::cuda::Words,
};
use gradewise_core::Algebra;
use std::ops::Range;

/// Bytes of pairwise sums at a time. Longer stretches fill the device more evenly. In the backward pass, which holds more in memory, this
/// buffer is the peak of a training step (docs/kernels/product.md).
const FORWARD: usize = 192 << 20;
const BACKWARD: usize = 96 << 20;
/// Rows of a stretch are a multiple of this, so that tiles are full.
const ROWS: usize = 256;

fn stretches(sizes: &Sizes, groups: usize, element: usize, budget: usize) -> Vec<Range<usize>> {
    let row = (groups * sizes.inputs.max(sizes.outputs) * element).max(1);
    let rows = (budget / row / ROWS).max(1) * ROWS;
    (0..sizes.batch).step_by(rows).map(|first| first..(first + rows).min(sizes.batch)).collect()
}

/// All rows from `first` on of an array `[count, rows, columns]`.
fn operand<'a>(
    array: &Array,
    first: usize,
    transpose: bool,
    index: Option<&'a Words>,
) -> Result<Operand<'a>> {
    let Planes { rows, features: columns, .. } = Planes::of(NAME, array)?;
    let address = array.cuda_address() + (first * columns * array.dtype().size()) as u64;
    Ok(Operand { address, row: columns, stride: rows * columns, transpose, index, transposed: None })
}

pub(super) fn forward(
    device: &CudaDevice,
    algebra: &Algebra,
    operands: &Operands<'_>,
    options: ProductOptions,
) -> Result<Output> {
    let (sizes, Operands { x, y, w }) = (check(algebra, operands)?, *operands);
    let pairing = DevicePairing::of(device, algebra)?;
    let (blades, dtype) = (algebra.blade_count(), x.dtype());
    let pairs = Pairs::new(device, algebra, pairing.clone(), [x, y], options)?;
    let shape = [blades, sizes.batch, sizes.outputs];
    let output = match sizes.inputs {
        0 => zeros(device, shape, dtype)?,
        _ => Array::for_kernel(NAME, shape, dtype, device)?,
    };
    for stretch in stretches(&sizes, pairing.groups, dtype.size(), FORWARD) {
        if output.elements() == 0 || sizes.inputs == 0 {
            break;
        }
        let sums = pairs.sums(&stretch)?;
        let product = Product {
            operation: NAME,
            dtype,
            sizes: gemm::Sizes { m: stretch.len(), n: sizes.outputs, k: sizes.inputs },
            count: blades,
            a: operand(&sums, 0, false, Some(&pairing.result_groups))?,
            b: operand(w, 0, false, Some(&pairing.result_paths))?,
            starts: Some(&pairing.result_starts),
            segments: pairing.most_of_result,
            bias: None,
            scale: 1.0,
            window: Some((stretch.start * sizes.outputs, sizes.batch * sizes.outputs)),
        };
        // SAFETY: a stretch of the rows of `output`, which is new; `sums` were made for it; `check` compared w; tables and operands are
        // borrowed.
        unsafe { product.run_into(device, &output, false)? };
    }
    let inverse_rms = match options.normalize {
        true => Some(rms_norm(device, NAME, &*DeviceAlgebra::of(device, algebra)?, &output)?),
        false => None,
    };
    Ok(Output { output, inverse_rms })
}

pub(super) fn backward(
    device: &CudaDevice,
    algebra: &Algebra,
    operands: &Operands<'_>,
    options: ProductOptions,
    output: &Output,
    grad: &Array,
    needs: Needs,
) -> Result<ProductGradients> {
    let (sizes, Operands { x, y, w }) = (check(algebra, operands)?, *operands);
    let pairing = DevicePairing::of(device, algebra)?;
    let upstream = match &output.inverse_rms {
        Some(inverse) => {
            let tables = DeviceAlgebra::of(device, algebra)?;
            rms_norm_backward(
                device,
                NAME,
                &tables,
                &output.output.contiguous()?,
                &inverse.contiguous()?,
                grad,
            )?
        }
        None => grad.clone(),
    };
    let dtype = x.dtype();
    let pairs = Pairs::new(device, algebra, pairing.clone(), [x, y], options)?;
    let mut factors = pairs.gradients(needs)?;
    let mut weights: Option<Array> = None;
    for stretch in stretches(&sizes, pairing.groups, dtype.size(), BACKWARD) {
        if needs.w {
            let sums = pairs.sums(&stretch)?;
            let product = Product {
                operation: NAME,
                dtype,
                sizes: gemm::Sizes { m: sizes.inputs, n: sizes.outputs, k: stretch.len() },
                count: algebra.paths().len(),
                a: operand(&sums, 0, true, None)?,
                b: operand(&upstream, stretch.start, false, Some(&pairing.group_results))?,
                starts: Some(&pairing.path_starts),
                segments: pairing.most_of_path,
                bias: None,
                scale: 1.0,
                window: None,
            };
            match &weights {
                // SAFETY: sums and gradient are those of the stretch; `check` gave the sizes; `weights` is this function's own.
                Some(weights) => unsafe { product.run_into(device, weights, true)? },
                // SAFETY: as above.
                None => weights = Some(unsafe { product.run(device, w.shape())? }),
            }
        }
        if needs.x || needs.y {
            let product = Product {
                operation: NAME,
                dtype,
                sizes: gemm::Sizes { m: stretch.len(), n: sizes.inputs, k: sizes.outputs },
                count: pairing.groups,
                a: operand(&upstream, stretch.start, false, Some(&pairing.group_results))?,
                b: operand(w, 0, true, Some(&pairing.group_paths))?,
                starts: None,
                segments: 1,
                bias: None,
                scale: 1.0,
                window: None,
            };
            // SAFETY: the gradient from the stretch on, and w, which `check` compared; tables and operands are borrowed.
            let sums = unsafe { product.run(device, [pairing.groups, stretch.len(), sizes.inputs])? };
            pairs.backward(&stretch, &sums, &mut factors)?;
        }
    }
    let [x, y] = pairs.finish(factors)?;
    Ok(ProductGradients {
        x,
        y,
        w: match (needs.w, weights) {
            (false, _) => None,
            (true, Some(weights)) => Some(weights),
            (true, None) => Some(zeros(device, w.shape(), dtype)?),
        },
        bias: None,
    })
}
