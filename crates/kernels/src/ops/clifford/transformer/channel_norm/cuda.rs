//! Normalisation and gates of feature planes on CUDA.

use super::{Activation, Gradients, NAME, Operands, Options, Sizes};
use crate::{
    Array, CudaDevice, DType, Result,
    array::rows::sum_partials,
    csrc::{
        channel_norm_tile::{TILE, WARPS},
        feature_planes::MOST_PLANES,
        sixteen_planes,
    },
    ops::clifford::transformer::Order,
    runtime::cuda::{Args, Grid, Kernel},
};

/// The most blocks of a backward pass, each with a partial sum for each gain.
const MOST_BLOCKS: usize = 1 << 10;

/// `GradedPlanes` there.
#[repr(C)]
#[derive(Clone, Copy, bytemuck::NoUninit)]
struct GradedPlanes {
    blades: i32,
    grades: i32,
    plane: [i8; MOST_PLANES],
    factor: [i8; MOST_PLANES],
    grade: [i8; MOST_PLANES],
    is_last: [i8; MOST_PLANES],
}

/// `NormOptions` there.
#[repr(C)]
#[derive(Clone, Copy, bytemuck::NoUninit)]
struct KernelOptions {
    epsilon: f64,
    gain: f64,
    normalizes: i32,
    gate: i32,
    scalar_gate: i32,
    unused: i32,
}

fn planes_of(order: &Order) -> GradedPlanes {
    let nothing = [0; MOST_PLANES];
    let mut planes = GradedPlanes {
        blades: order.blades().len() as i32,
        grades: order.grade_count() as i32,
        plane: nothing,
        factor: nothing,
        grade: nothing,
        is_last: nothing,
    };
    let by_grade = order.by_grade();
    let all = by_grade
        .iter()
        .enumerate()
        .flat_map(|(grade, own)| own.iter().map(move |&plane| (grade, plane, own)));
    for (place, (grade, plane, own)) in all.enumerate() {
        planes.plane[place] = plane as i8;
        planes.factor[place] = order.factors()[plane];
        planes.grade[place] = grade as i8;
        planes.is_last[place] = (own.last() == Some(&plane)).into();
    }
    planes
}

fn kernel_options(options: Options) -> KernelOptions {
    let number = |kind: Option<Activation>| kind.map_or(0, |kind| kind as i32);
    KernelOptions {
        epsilon: options.norm.map_or(0.0, |norm| norm.epsilon),
        gain: options.norm.map_or(1.0, |norm| norm.gain),
        normalizes: options.norm.is_some().into(),
        gate: number(options.gate),
        scalar_gate: number(options.scalar_gate),
        unused: 0,
    }
}

/// The most channels of gates without a norm, whose blocks along y no grid refuses.
const MOST_GATES: usize = 1 << 16;

/// `SixteenPlanes` of csrc/clifford/transformer/channel_norm_16.cuh.
#[repr(C)]
#[derive(Clone, Copy, bytemuck::NoUninit)]
struct SixteenPlanes {
    offset: [u32; 16],
    factor: [f32; 16],
    scalars: u32,
    channels: u32,
    rows: u32,
    normalizes: u32,
    epsilon: f64,
    gain: f64,
    gate: i32,
    scalar_gate: i32,
}

/// Planes of each grade of an algebra of 16 blades, as the kernels have them.
const OF_GRADES: [usize; 5] = [1, 4, 6, 4, 1];

impl SixteenPlanes {
    /// What the kernels for 16 planes take, where they serve: for all blades of an algebra, a gate or a norm of no more channels than a block
    /// has threads of a row, and features of less than 4 GiB.
    fn new(order: &Order, sizes: Sizes, options: Options, dtype: DType) -> Option<Self> {
        let does_nothing = options == Options::default();
        let by_grade = order.by_grade();
        let is_whole = by_grade.iter().map(Vec::len).eq(OF_GRADES) && by_grade[0] == [0];
        let most = if options.norm.is_some() { sixteen_planes::most(dtype.size()) } else { MOST_GATES };
        let fits = (1..=most).contains(&sizes.channels);
        let height = sizes.scalars.checked_add(sizes.channels.checked_mul(16)?)?;
        let bytes = height.checked_mul(sizes.rows)?.checked_mul(dtype.size())?;
        if does_nothing || !is_whole || !fits || u32::try_from(bytes).is_err() {
            return None;
        }
        let KernelOptions { epsilon, gain, normalizes, gate, scalar_gate, .. } = kernel_options(options);
        let [scalars, channels, rows] = [sizes.scalars, sizes.channels, sizes.rows].map(|size| size as u32);
        let (mut offset, mut factor) = ([0; 16], [0.0; 16]);
        for (place, plane) in by_grade.into_iter().flatten().enumerate() {
            offset[place] = (plane * sizes.channels * sizes.rows * dtype.size()) as u32;
            factor[place] = order.factors()[plane].into();
        }
        let normalizes = normalizes as u32;
        Some(Self { offset, factor, scalars, channels, rows, normalizes, epsilon, gain, gate, scalar_gate })
    }

    /// The kernels without gates and with them, forward and backward.
    const fn kernels(&self) -> [&'static str; 2] {
        if self.gate == 0 && self.scalar_gate == 0 {
            ["channel_norm_16_fwd", "channel_norm_16_bwd"]
        } else {
            ["channel_norm_16_gated_fwd", "channel_norm_16_gated_bwd"]
        }
    }

    /// A thread of a row for each channel, more for many scalars, always whole warps; of gates without a norm in blocks of their own.
    fn grid(&self, dtype: DType) -> Grid {
        let for_scalars = self.scalars.div_ceil(2 * sixteen_planes::SCALARS as u32);
        if self.normalizes == 0 {
            let threads = self.channels.max(for_scalars.min(MOST_GATES as u32)) as usize;
            let blocks = [self.blocks(), threads.div_ceil(sixteen_planes::GATES), 1];
            return Grid::new(blocks, [sixteen_planes::ROWS as u32, sixteen_planes::GATES as u32, 1]);
        }
        let [least, most] =
            [sixteen_planes::LEAST, sixteen_planes::most(dtype.size())].map(|size| size as u32);
        let threads = self.channels.max(for_scalars).next_multiple_of(least).min(most);
        Grid::new([self.blocks(), 1, 1], [sixteen_planes::ROWS as u32, threads, 1])
    }

    const fn blocks(&self) -> usize {
        (self.rows as usize).div_ceil(sixteen_planes::ROWS)
    }
}

/// A block for each tile, as long as there are not too many.
fn grid(rows: usize) -> Grid {
    Grid::new([rows.div_ceil(TILE).clamp(1, MOST_BLOCKS), 1, 1], [TILE as u32, WARPS as u32, 1])
}

pub(super) fn forward(
    device: &CudaDevice,
    order: &Order,
    sizes: Sizes,
    operands: &Operands<'_>,
    options: Options,
) -> Result<Array> {
    let Operands { x, gains, scalar_gains } = *operands;
    let out = Array::for_kernel(NAME, x.shape(), x.dtype(), device)?;
    if out.elements() == 0 {
        return Ok(out);
    }
    if let Some(planes) = SixteenPlanes::new(order, sizes, options, x.dtype()) {
        let args = Args::new().value(&planes).array(x).optional(gains).optional(scalar_gains).array(&out);
        let kernel = Kernel::new(planes.kernels()[0], x.dtype());
        // SAFETY: 1: as below, for 16 planes. 2: `out` is new. 3: whole warps, with a thread for each row of a block and channel, and a block for
        // each tile. 4: there are no addresses but those of arrays.
        unsafe { device.launch(NAME, kernel, planes.grid(x.dtype()), args)? };
    } else {
        let (planes, options) = (planes_of(order), kernel_options(options));
        let args = Args::new().value(&planes).value(&options).array(x).optional(gains).optional(scalar_gains);
        let args = args.array(&out).size(sizes.scalars).size(sizes.channels).size(sizes.rows);
        let kernel = Kernel::new("channel_norm_fwd", x.dtype());
        // SAFETY: 1: the operator's entry compared x and the gains with the sizes; all are contiguous. 2: `out` is new. 3: the threads of the
        // kernel's tile; it strides over tiles. 4: there are no addresses but those of arrays.
        unsafe { device.launch(NAME, kernel, grid(sizes.rows), args)? };
    }
    Ok(out)
}

pub(super) fn backward(
    device: &CudaDevice,
    order: &Order,
    sizes: Sizes,
    operands: &Operands<'_>,
    options: Options,
    grad: &Array,
) -> Result<Gradients> {
    let Operands { x, gains, scalar_gains } = *operands;
    let dtype = x.dtype();
    let of_x = Array::for_kernel(NAME, x.shape(), dtype, device)?;
    let results = sizes.channels * order.grade_count() + sizes.scalars;
    let grid = grid(sizes.rows);
    let has_gains = gains.is_some() || scalar_gains.is_some();
    let sixteen = SixteenPlanes::new(order, sizes, options, dtype);
    let blocks =
        sixteen.map_or_else(|| sizes.rows.div_ceil(TILE).min(MOST_BLOCKS), |planes| planes.blocks()).max(1);
    let partial = if has_gains && x.elements() == 0 {
        // Nothing is launched that would write them.
        Some(Array::zeros([blocks, results], dtype.accumulator(), &x.device())?)
    } else if has_gains {
        Some(Array::for_kernel(NAME, [blocks, results], dtype.accumulator(), device)?)
    } else {
        None
    };
    if let (Some(planes), true) = (sixteen, x.elements() > 0) {
        let args = Args::new().value(&planes).array(x).optional(gains).optional(scalar_gains);
        let args = args.array(grad).array(&of_x).optional(partial.as_ref());
        let kernel = Kernel::new(planes.kernels()[1], dtype);
        // SAFETY: 1, 2 and 4: as below, for 16 planes. 3: as in the forward pass.
        unsafe { device.launch(NAME, kernel, planes.grid(dtype), args)? };
    } else if x.elements() > 0 {
        let (planes, options) = (planes_of(order), kernel_options(options));
        let args = Args::new().value(&planes).value(&options).array(x).optional(gains).optional(scalar_gains);
        let args = args.array(grad).array(&of_x).optional(partial.as_ref());
        let args = args.size(sizes.scalars).size(sizes.channels).size(sizes.rows);
        let kernel = Kernel::new("channel_norm_bwd", dtype);
        // SAFETY: 1: as in the forward pass, with a gradient of the shape of x; a partial sum for each block and gain. 2: the results are
        // new. 3: the threads of the kernel's tile; it strides over tiles. 4: there are no addresses but those of arrays.
        unsafe { device.launch(NAME, kernel, grid, args)? };
    }
    let Some(partial) = partial else {
        return Ok(Gradients { x: of_x, gains: None, scalar_gains: None });
    };
    let sums = sum_partials(device, NAME, &partial, [results], dtype, 1.0)?;
    let split = results - sizes.scalars;
    let part = |like: Option<&Array>, range| {
        like.map(|like: &Array| sums.slice(0, range)?.reshape(like.shape())).transpose()
    };
    Ok(Gradients {
        x: of_x,
        gains: part(gains, 0..split)?,
        scalar_gains: part(scalar_gains, split..results)?,
    })
}
