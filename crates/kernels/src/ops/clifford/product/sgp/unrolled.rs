//! The weighted product by kernels unrolled for one algebra (csrc/clifford/product/unrolled.cuh).

use super::{NAME, Needs, Operands, Product, ProductGradients};
use crate::{
    Array, CudaDevice, DType, Result,
    array::rows::{sum_partials, wide_row_grid},
    ops::clifford::algebra::{contract::Planes, device_algebra::DeviceAlgebra},
    runtime::cuda::{Args, Grid, Kernel},
};
use gradewise_core::Algebra;

/// Operations by the number of adjacent features a thread works on, widest first.
const FORWARD: [(usize, &str); 3] = [(4, "sgp_fwd_v4"), (2, "sgp_fwd_v2"), (1, "sgp_fwd_v1")];
const BACKWARD: [(usize, &str); 3] = [(4, "sgp_bwd_v4"), (2, "sgp_bwd_v2"), (1, "sgp_bwd_v1")];

/// The widest kernel there is for these arrays `[blades, rows, features]`, and its width.
pub(in crate::ops::clifford) fn kernel(
    device: &CudaDevice,
    algebra: &Algebra,
    widths: &[(usize, &'static str)],
    arrays: &[&Array],
) -> Option<(usize, Kernel)> {
    let dtype = arrays[0].dtype();
    let features = arrays[0].dims()[2];
    widths
        .iter()
        .filter(|(width, _)| {
            let bytes = (width * dtype.size()) as u64;
            features.is_multiple_of(*width)
                && arrays.iter().all(|array| array.cuda_address().is_multiple_of(bytes))
        })
        .map(|&(width, operation)| (width, Kernel::of(operation, algebra.signature(), dtype)))
        .find(|(_, kernel)| device.has_kernel(kernel))
}

/// What surrounds a product: the gate on both operands, the norm of the result.
#[derive(Clone, Copy)]
pub(in crate::ops::clifford) struct Around<'a> {
    pub gate: bool,
    pub normalize: bool,
    /// Added to the product before it is scaled.
    pub base: Option<&'a Array>,
    pub scale: f64,
}

/// The output and 1/rms of a normalised product.
#[derive(Clone, Copy)]
pub(in crate::ops::clifford) struct Normalized<'a> {
    pub output: &'a Array,
    pub inverse_rms: &'a Array,
}

/// The product; `None` if no kernel was compiled for the algebra and dtype.
pub(in crate::ops::clifford) fn forward(
    device: &CudaDevice,
    algebra: &Algebra,
    operands: &Operands<'_>,
    around: Around<'_>,
) -> Result<Option<Product>> {
    let Operands { x, y, w } = *operands;
    let Planes { rows, features, .. } = Planes::of(NAME, x)?;
    let Some((width, kernel)) = kernel(device, algebra, &FORWARD, &[x, y, around.base.unwrap_or(x)]) else {
        return Ok(None);
    };
    let out = Array::for_kernel(NAME, x.shape(), x.dtype(), device)?;
    let inverse = around
        .normalize
        .then(|| Array::for_kernel(NAME, [algebra.grade_count(), rows], x.dtype().accumulator(), device))
        .transpose()?;
    if out.elements() > 0 {
        const BLOCKS: usize = 1056;
        let along = features.div_ceil(width).next_power_of_two().clamp(1, 256);
        let together = 256 / along;
        let grid =
            Grid::new([rows.div_ceil(together).clamp(1, BLOCKS), 1, 1], [along as u32, together as u32, 1]);
        let args = Args::new()
            .array(x)
            .array(y)
            .array(w)
            .optional(around.base)
            .array(&out)
            .optional(inverse.as_ref())
            .size(rows)
            .size(features)
            .int(around.gate.into())
            .double(around.scale);
        // SAFETY: 1: the operator's entry compared x, y, w and what is added with the algebra; all are contiguous, and rows are a multiple
        // of the kernel's width. 2: results are new. 3: threads along the features of a row, 256 in all; rows follow by strides.
        unsafe { device.launch(NAME, kernel, grid, args)? };
    }
    Ok(Some(Product { output: out, inverse_rms: inverse }))
}

/// The requested gradients; `None` as for [`forward`]. `normalized` is given if the product was normalised, in which case nothing was added
/// to it.
pub(in crate::ops::clifford) fn backward(
    device: &CudaDevice,
    algebra: &Algebra,
    operands: &Operands<'_>,
    around: Around<'_>,
    normalized: Option<Normalized<'_>>,
    grad: &Array,
    needs: Needs,
) -> Result<Option<ProductGradients>> {
    let Operands { x, y, w } = *operands;
    let Planes { rows, features, .. } = Planes::of(NAME, x)?;
    // Two features of eight f32 blades leave too few threads for the loads to overlap (measured on an H200, Cl(3,0,0)
    // 4096×512, forward included: 0.27 ms against 0.31 ms).
    let widest = if x.dtype() == DType::F32 && algebra.blade_count() >= 8 { 1 } else { 4 };
    let narrow = BACKWARD.iter().position(|(width, _)| *width <= widest).unwrap_or(0);
    let Some((width, kernel)) = kernel(device, algebra, &BACKWARD[narrow..], &[x, y, grad]) else {
        return Ok(None);
    };
    let dtype = x.dtype();
    let like = |needed: bool| needed.then(|| Array::for_kernel(NAME, x.shape(), dtype, device)).transpose();
    let (grad_x, grad_y) = (like(needs.x)?, like(needs.y)?);
    // Tiles of features along y; chunks of rows along x. The number of chunks suits a large device and does not depend on this one.
    const THREADS: usize = 128;
    const BLOCKS: usize = 512;
    let along = features.div_ceil(width).next_power_of_two().clamp(1, THREADS);
    let together = THREADS / along;
    let tiles = features.div_ceil(along * width).max(1);
    let wanted = (BLOCKS / tiles).clamp(1, rows.div_ceil(together).max(1));
    let chunk = rows.div_ceil(wanted).next_multiple_of(together).max(1);
    let chunks = rows.div_ceil(chunk).max(1);
    let results = features * algebra.paths().len();
    let partials = needs
        .w
        .then(|| Array::for_kernel(NAME, [chunks, results], dtype.accumulator(), device))
        .transpose()?;
    if features > 0 {
        let along_output = match normalized {
            Some(Normalized { output, inverse_rms }) if rows > 0 => {
                let tables = DeviceAlgebra::of(device, algebra)?;
                let share = Array::for_kernel(NAME, inverse_rms.shape(), dtype.accumulator(), device)?;
                let args = Args::new()
                    .array(output)
                    .array(grad)
                    .array(&share)
                    .pointer(tables.first.address())
                    .size(tables.grade_count)
                    .size(rows)
                    .size(features);
                let grid = wide_row_grid(rows, features, dtype);
                // SAFETY: 1: output and gradient have the shape of x and are contiguous, with a norm for each grade and row. 2: `share` is
                // new. 3: a grid of rows, in packs of 16 bytes where rows allow it. 4: the device keeps the algebra's tables.
                unsafe { device.launch(NAME, Kernel::new("rms_norm_along", dtype), grid, args)? };
                Some(share)
            }
            _ => None,
        };
        let args = Args::new()
            .array(x)
            .array(y)
            .array(w)
            .array(grad)
            .optional(normalized.map(|normalized| normalized.inverse_rms))
            .optional(along_output.as_ref())
            .optional(grad_x.as_ref())
            .optional(grad_y.as_ref())
            .optional(partials.as_ref())
            .size(rows)
            .size(features)
            .size(chunk)
            .int(around.gate.into())
            .double(around.scale);
        let grid = Grid::new([chunks, tiles, 1], [along as u32, together as u32, 1]);
        // SAFETY: 1: as in the forward pass, with a gradient of the shape of x and a norm for each grade and row, if there are norms; each
        // chunk writes its sums. 2: results and sums are new. 3: threads along the features of a tile and rows of a chunk, 128 in all.
        unsafe { device.launch(NAME, kernel, grid, args)? };
    }
    let w =
        partials.map(|partials| sum_partials(device, NAME, &partials, w.shape(), dtype, 1.0)).transpose()?;
    Ok(Some(ProductGradients { x: grad_x, y: grad_y, w, bias: None }))
}
