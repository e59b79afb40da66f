//! Equivariant linear maps on CUDA: directly where rows are few, by tiles where they are many; else by products of matrices.

use super::{
    Gradients, Maps, NAME, Operands, Sizes,
    call::{Call, Parameters, has_bias},
    direct, products, tiles,
};
use crate::{
    Array, CudaDevice, Result,
    csrc::equi_tiles::{SUM_GROUPS, SUM_THREADS},
    runtime::cuda::{Args, Grid, Kernel},
};

/// All operands are contiguous and fit the sizes.
pub(super) fn forward(
    device: &CudaDevice,
    maps: &Maps,
    sizes: Sizes,
    operands: &Operands<'_>,
) -> Result<Array> {
    let dtype = operands.x.dtype();
    let call = Call { device, maps, sizes, dtype };
    let out = Array::for_kernel(NAME, [sizes.rows_out(), sizes.rows], dtype, device)?;
    if out.elements() == 0 {
        return Ok(out);
    }
    if direct::serves(sizes) {
        direct::forward(&call, operands, &out)?;
    } else if !tiles::forward(&call, operands, &out)? {
        products::forward(&call, operands, &out)?;
    }
    Ok(out)
}

/// As [`forward`].
pub(super) fn backward(
    device: &CudaDevice,
    maps: &Maps,
    sizes: Sizes,
    operands: &Operands<'_>,
    grad: &Array,
) -> Result<Gradients> {
    let dtype = operands.x.dtype();
    let call = Call { device, maps, sizes, dtype };
    let of_x = Array::for_kernel(NAME, operands.x.shape(), dtype, device)?;
    let new = |like: Option<&Array>| {
        like.map(|like| Array::for_kernel(NAME, like.shape(), dtype, device)).transpose()
    };
    let of_scalars = new(operands.scalars)?;
    let of_features = (&of_x, of_scalars.as_ref());
    if direct::serves(sizes) {
        direct::of_features(&call, operands, grad, of_features)?;
    } else if !tiles::of_features(&call, operands, grad, of_features)? {
        products::of_features(&call, operands, grad, of_features)?;
    }
    let adds = has_bias(operands);
    let of_matrices = if direct::serves(sizes) {
        direct::of_matrices(&call, operands, grad, adds)?
    } else if let Some(sums) = tiles::of_matrices(&call, operands, grad, adds)? {
        sums
    } else {
        products::of_matrices(&call, operands, grad, adds)?
    };
    let mut gradients =
        Gradients { x: Some(of_x), weight: new(Some(operands.weight))?, ..Gradients::default() };
    gradients.others[0] = of_scalars;
    for (place, (_, operand)) in operands.others().into_iter().enumerate().skip(1) {
        gradients.others[place] = new(operand)?;
    }
    let mut to = Parameters([0; 7]);
    to.0[0] = gradients.weight.as_ref().map_or(0, Array::cuda_address);
    for (address, gradient) in to.0[1..].iter_mut().zip(&gradients.others[1..]) {
        *address = gradient.as_ref().map_or(0, Array::cuda_address);
    }
    let Sizes { scalars_in, scalars_out, channels_in, channels_out, .. } = sizes;
    let of_scalars =
        maps.mixed() * (channels_out * scalars_in + scalars_out * channels_in) + scalars_out * scalars_in;
    let work = maps.maps * channels_out * channels_in + of_scalars + sizes.top_out();
    let (kernel_sizes, table) = (call.kernel_sizes()?, call.table()?);
    let (name, groups) =
        if of_matrices.count > 1 { ("equi_gradients_of_parts", SUM_GROUPS) } else { ("equi_gradients", 1) };
    let args = Args::new().value(&kernel_sizes).value(&of_matrices.parts()).array(&table).value(&to);
    let grid = Grid::blocks(work.div_ceil(SUM_THREADS / groups).clamp(1, 1 << 16), SUM_THREADS as u32);
    // SAFETY: 1: gradients of both matrices and of what is added, of these sizes and as many parts; the table is of these maps. 2: the
    // gradients of the parameters are new, of the shapes of the parameters. 3: the threads of the kernel, which strides. 4: `gradients` and
    // `of_matrices` hold them.
    unsafe { device.launch(NAME, Kernel::new(name, dtype), grid, args)? };
    Ok(gradients)
}
