//! The norm of vectors and scalars together on CUDA.

use super::{Gradients, NAME, Operands, Sizes};
use crate::{
    Array, CudaDevice, Result,
    array::rows::sum_partials,
    csrc::{
        feature_planes::MOST_PLANES,
        joint_norm_tile::{TILE, WARPS},
    },
    ops::clifford::transformer::Order,
    runtime::cuda::{Args, Grid, Kernel},
};

/// The most blocks along the rows of a backward pass, each with a partial sum for each gain.
const MOST_BLOCKS: usize = 1 << 10;

/// `JointSets` there.
#[repr(C)]
#[derive(Clone, Copy, bytemuck::NoUninit)]
struct JointSets {
    rows: i64,
    groups: i64,
    heads: i64,
    channels: i64,
    scalars: i64,
    epsilon: f64,
    planes: i32,
    unused: i32,
    factor: [f32; MOST_PLANES],
}

fn sets(order: &Order, (sizes, epsilon): (Sizes, f64)) -> JointSets {
    let mut factor = [0.0; MOST_PLANES];
    for (own, &of_plane) in factor.iter_mut().zip(order.factors()) {
        *own = of_plane.into();
    }
    let [rows, groups, heads, channels, scalars] =
        [sizes.rows, sizes.groups, sizes.heads, sizes.channels, sizes.scalars].map(|size| size as i64);
    JointSets {
        rows,
        groups,
        heads,
        channels,
        scalars,
        epsilon,
        planes: order.factors().len() as i32,
        unused: 0,
        factor,
    }
}

/// Blocks along the rows: one for each tile, as long as there are not too many.
fn blocks(sizes: Sizes) -> usize {
    sizes.rows.div_ceil(TILE).clamp(1, MOST_BLOCKS)
}

/// The most elements of a set that a warp takes alone: a pass over so many takes a thread about as long as the barriers of a block.
const MOST_ALONE: usize = 64;

/// The kernels of both passes and their grid, which follow from how the warps of a block share the sets.
#[derive(Clone, Copy)]
struct Launch {
    forward: &'static str,
    backward: &'static str,
    grid: Grid,
}

impl Launch {
    fn new(order: &Order, sizes: Sizes) -> Self {
        let planes = order.factors().len();
        let is_short = sizes.sets() > 1 && planes * sizes.channels + sizes.scalars <= MOST_ALONE;
        let columns = sizes.sets().div_ceil(if is_short { WARPS } else { 1 });
        let grid =
            Grid::new([blocks(sizes), columns.min(u16::MAX.into()), 1], [TILE as u32, WARPS as u32, 1]);
        let (forward, backward) = match (planes == 4, is_short) {
            (false, false) => ("joint_norm_fwd", "joint_norm_bwd"),
            (false, true) => ("joint_norm_short_fwd", "joint_norm_short_bwd"),
            (true, false) => ("joint_norm_4_fwd", "joint_norm_4_bwd"),
            (true, true) => ("joint_norm_4_short_fwd", "joint_norm_4_short_bwd"),
        };
        Self { forward, backward, grid }
    }
}

pub(super) fn forward(
    device: &CudaDevice,
    order: &Order,
    how: (Sizes, f64),
    operands: &Operands<'_>,
) -> Result<Array> {
    let Operands { x, gains, scalar_gains } = *operands;
    let out = Array::for_kernel(NAME, x.shape(), x.dtype(), device)?;
    if out.elements() > 0 {
        let args =
            Args::new().value(&sets(order, how)).array(x).optional(gains).optional(scalar_gains).array(&out);
        let launch = Launch::new(order, how.0);
        // SAFETY: 1: the operator's entry compared x and the gains with the sizes; all are contiguous. 2: `out` is new. 3: the threads of
        // the kernel's tile; it strides over tiles and sets. 4: there are no addresses but those of arrays.
        unsafe { device.launch(NAME, Kernel::new(launch.forward, x.dtype()), launch.grid, args)? };
    }
    Ok(out)
}

pub(super) fn backward(
    device: &CudaDevice,
    order: &Order,
    how: (Sizes, f64),
    operands: &Operands<'_>,
    grad: &Array,
) -> Result<Gradients> {
    let Operands { x, gains, scalar_gains } = *operands;
    let (sizes, dtype) = (how.0, x.dtype());
    let of_x = Array::for_kernel(NAME, x.shape(), dtype, device)?;
    let [lines, scalar_lines] = sizes.lines();
    let shape = [blocks(sizes), lines + scalar_lines];
    let partial = if gains.is_none() && scalar_gains.is_none() {
        None
    } else if x.elements() == 0 {
        // Nothing is launched that would write them.
        Some(Array::zeros(shape, dtype.accumulator(), &x.device())?)
    } else {
        Some(Array::for_kernel(NAME, shape, dtype.accumulator(), device)?)
    };
    if x.elements() > 0 {
        let args = Args::new().value(&sets(order, how)).array(x).optional(gains).optional(scalar_gains);
        let args = args.array(grad).array(&of_x).optional(partial.as_ref());
        let launch = Launch::new(order, sizes);
        // SAFETY: 1: as in the forward pass, with a gradient of the shape of x; a partial sum for each block along the rows and each gain.
        // 2: the results are new. 3: the threads of the kernel's tile; it strides. 4: there are no addresses but those of arrays.
        unsafe { device.launch(NAME, Kernel::new(launch.backward, dtype), launch.grid, args)? };
    }
    let Some(partial) = partial else {
        return Ok(Gradients { x: of_x, gains: None, scalar_gains: None });
    };
    let sums = sum_partials(device, NAME, &partial, [lines + scalar_lines], dtype, 1.0)?;
    let part = |is_there: bool, range| is_there.then(|| sums.slice(0, range)).transpose();
    Ok(Gradients {
        x: of_x,
        gains: part(gains.is_some(), 0..lines)?,
        scalar_gains: part(scalar_gains.is_some(), lines..lines + scalar_lines)?,
    })
}
