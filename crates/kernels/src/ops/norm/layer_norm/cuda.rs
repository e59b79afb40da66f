//! Layer normalisation on CUDA.

use super::{Gradients, NAME, Normalized, Statistics};
use crate::{
    Array, CudaDevice, DType, Result,
    array::{
        fill,
        rows::{Streams, held_rows, row_grid, streamed_rows},
    },
    ops::reduce,
    runtime::cuda::{Args, Grid, Kernel},
};

/// Fewest rows of a part of the sums over rows.
const PART: usize = 64;

/// Longest rows of f32 that are better held in registers than streamed.
const LONG: usize = 8192;

fn rows(x: &Array) -> (usize, usize) {
    let features = x.dims().last().copied().unwrap_or(1);
    (x.dims()[..x.rank() - 1].iter().product(), features)
}

/// Of contiguous arguments.
pub(super) fn forward(
    device: &CudaDevice,
    x: &Array,
    weight: Option<&Array>,
    bias: Option<&Array>,
    centred: bool,
    epsilon: f64,
) -> Result<Normalized> {
    let (rows, features) = rows(x);
    let statistic = || {
        let shape = &x.dims()[..x.rank() - 1];
        Array::for_kernel(NAME, shape, x.dtype().accumulator(), device)
    };
    let (mean, inverse_std) = (centred.then(statistic).transpose()?, statistic()?);
    let output = Array::for_kernel(NAME, x.shape(), x.dtype(), device)?;
    if rows > 0 {
        let args = Args::new()
            .array(x)
            .optional(weight)
            .optional(bias)
            .array(&output)
            .optional(mean.as_ref())
            .array(&inverse_std)
            .size(rows)
            .size(features)
            .double(epsilon);
        let held = [
            "layer_norm_fwd_held_1",
            "layer_norm_fwd_held_2",
            "layer_norm_fwd_held_4",
            "layer_norm_fwd_held_8",
        ];
        let arrays: Vec<&Array> = [x, &output].into_iter().chain(weight).chain(bias).collect();
        let streamed = ["layer_norm_fwd_streamed_4", "layer_norm_fwd_streamed_8"];
        let affine = if weight.or(bias).is_some() { 2 * features * x.dtype().size() } else { 0 };
        let (kernel, grid) = (x.dtype() != DType::F32 || features > LONG)
            .then(|| {
                let streams = Streams { arrays: 1, kept: affine, shortest: Streams::BEYOND_HELD };
                streamed_rows(device, streamed, rows, features, &streams, &arrays)
            })
            .flatten()
            .or_else(|| held_rows(held, rows, features, &arrays))
            .unwrap_or_else(|| (Kernel::new("layer_norm_fwd", x.dtype()), row_grid(rows, features)));
        // SAFETY: 1: shapes and dtypes of the parameters were checked where the operator is entered; all arrays are contiguous rows of so
        // many features. 2: results and statistics are new. 3: the grid comes with the kernel from `streamed_rows` or `held_rows`, or is
        // that of rows of any length.
        unsafe { device.launch(NAME, kernel, grid, args)? };
    }
    Ok(Normalized { output, mean, inverse_std })
}

/// Of contiguous arguments.
pub(super) fn backward(
    device: &CudaDevice,
    x: &Array,
    weight: Option<&Array>,
    has_bias: bool,
    statistics: &Statistics<'_>,
    grad: &Array,
) -> Result<Gradients> {
    let (rows, features) = rows(x);
    let Statistics { mean, inverse_std } = *statistics;
    let out = Array::for_kernel(NAME, x.shape(), x.dtype(), device)?;
    if x.elements() > 0 {
        let args = Args::new()
            .array(x)
            .optional(weight)
            .optional(mean)
            .array(inverse_std)
            .array(grad)
            .array(&out)
            .size(rows)
            .size(features);
        let streamed = ["layer_norm_bwd_streamed_4", "layer_norm_bwd_streamed_8"];
        let kept = if weight.is_some() { features * x.dtype().size() } else { 0 };
        let arrays: Vec<&Array> = [x, grad, &out].into_iter().chain(weight).collect();
        let streams = Streams { arrays: 2, kept, shortest: Streams::BEYOND_PLAIN };
        let (kernel, grid) = streamed_rows(device, streamed, rows, features, &streams, &arrays)
            .unwrap_or_else(|| (Kernel::new("layer_norm_bwd", x.dtype()), row_grid(rows, features)));
        // SAFETY: 1: as in the forward pass; the statistics were checked to have an entry for each row. 2: `out` is new. 3: as there.
        unsafe { device.launch(NAME, kernel, grid, args)? };
    }
    let mut gradients = Gradients { x: out, weight: None, bias: None };
    if weight.is_some() || has_bias {
        let (for_weight, for_bias) = parameters(device, x, statistics, grad)?;
        gradients.weight = weight.is_some().then_some(for_weight);
        gradients.bias = has_bias.then_some(for_bias);
    }
    Ok(gradients)
}

/// The gradients of weight and bias.
fn parameters(
    device: &CudaDevice,
    x: &Array,
    statistics: &Statistics<'_>,
    grad: &Array,
) -> Result<(Array, Array)> {
    let Statistics { mean, inverse_std } = *statistics;
    let (rows, features) = rows(x);
    if x.elements() == 0 {
        let zeros = || fill::full(device, NAME, [features], 0.0, x.dtype());
        return Ok((zeros()?, zeros()?));
    }
    // Takes packs of 16 bytes where rows consist of them, but not in double precision: packs of two would gain little.
    let wide = 16 / x.dtype().size();
    let packs = x.dtype() != DType::F64
        && features.is_multiple_of(wide)
        && [x, grad].iter().all(|array| array.cuda_address().is_multiple_of(16));
    let (kernel, across) =
        if packs { ("layer_norm_bwd_parameters_wide", 32 * wide) } else { ("layer_norm_bwd_parameters", 32) };
    let tiles = features.div_ceil(across);
    let parts = reduce::cuda::parts(tiles, rows, PART);
    let partial = || Array::for_kernel(NAME, [features, parts], DType::F64, device);
    let sums = (partial()?, partial()?);
    let args = Args::new()
        .array(x)
        .optional(mean)
        .array(inverse_std)
        .array(grad)
        .array(&sums.0)
        .array(&sums.1)
        .size(rows)
        .size(features)
        .size(parts);
    let grid = Grid::new([(tiles * parts).min(1 << 16), 1, 1], [32, 8, 1]);
    // SAFETY: 1: as above; each tile of columns writes its part of the sums, `[features, parts]`. 2: the sums are new. 3: 32 columns, or as
    // many packs, by 8 rows.
    unsafe { device.launch(NAME, Kernel::new(kernel, x.dtype()), grid, args)? };
    let total = |partial: &Array| -> Result<Array> {
        let out = Array::for_kernel(NAME, [features], x.dtype(), device)?;
        reduce::cuda::sum_parts(device, NAME, partial, &out, 1.0)?;
        Ok(out)
    };
    Ok((total(&sums.0)?, total(&sums.1)?))
}
