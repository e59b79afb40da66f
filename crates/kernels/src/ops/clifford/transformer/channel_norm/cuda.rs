//! Normalisation and gates of feature planes on CUDA.

use super::{Activation, Gradients, NAME, Operands, Options, Sizes};
use crate::{
    Array, CudaDevice, DType, Result,
    array::rows::sum_partials,
    csrc::{
        channel_norm_tile::{TILE, WARPS},
        feature_planes::MOST_PLANES,
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

/// `SixteenPlanes` of csrc/clifford/transformer/channel_norm_16.cu.
#[repr(C)]
#[derive(Clone, Copy, bytemuck::NoUninit)]
struct SixteenPlanes {
    plane: [u32; 16],
    factor: [f32; 16],
    grade: [u32; 16],
    ends: [u32; 16],
    grades: u32,
    step: u32,
    scalars: i64,
    channels: i64,
    rows: i64,
    epsilon: f64,
    gain: f64,
}

impl SixteenPlanes {
    /// What the kernels for 16 planes take, where they serve: for norms without gates, not in double precision, and for planes of less than
    /// 4 GiB.
    fn new(order: &Order, sizes: Sizes, options: Options, dtype: DType) -> Option<Self> {
        let norm = options.norm?;
        let step = u32::try_from(sizes.channels * sizes.rows * dtype.size()).ok()?;
        let has_gates = options.gate.is_some() || options.scalar_gate.is_some();
        if order.blades().len() != 16 || has_gates || dtype == DType::F64 {
            return None;
        }
        let planes = planes_of(order);
        let [scalars, channels, rows] = [sizes.scalars, sizes.channels, sizes.rows].map(|size| size as i64);
        let mut found = Self {
            plane: [0; 16],
            factor: [0.0; 16],
            grade: [0; 16],
            ends: [0; 16],
            grades: planes.grades as u32,
            step,
            scalars,
            channels,
            rows,
            epsilon: norm.epsilon,
            gain: norm.gain,
        };
        let mut of_grade = 0;
        for place in 0..16 {
            found.plane[place] = planes.plane[place] as u32;
            found.factor[place] = planes.factor[place].into();
            found.grade[place] = planes.grade[place] as u32;
            of_grade |= 1 << place;
            if planes.is_last[place] != 0 {
                found.ends[place] = std::mem::take(&mut of_grade);
            }
        }
        Some(found)
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
        let kernel = Kernel::new("channel_norm_16_fwd", x.dtype());
        // SAFETY: 1: as below, for 16 planes. 2: `out` is new. 3: the threads of the kernel's tile; it strides over tiles. 4: there are no
        // addresses but those of arrays.
        unsafe { device.launch(NAME, kernel, grid(sizes.rows), args)? };
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
    let blocks = sizes.rows.div_ceil(TILE).clamp(1, MOST_BLOCKS);
    let partial = if has_gains && x.elements() == 0 {
        // Nothing is launched that would write them.
        Some(Array::zeros([blocks, results], dtype.accumulator(), &x.device())?)
    } else if has_gains {
        Some(Array::for_kernel(NAME, [blocks, results], dtype.accumulator(), device)?)
    } else {
        None
    };
    let sixteen = SixteenPlanes::new(order, sizes, options, dtype);
    if let (Some(planes), true) = (sixteen, x.elements() > 0) {
        let args = Args::new().value(&planes).array(x).optional(gains).optional(scalar_gains);
        let args = args.array(grad).array(&of_x).optional(partial.as_ref());
        let kernel = Kernel::new("channel_norm_16_bwd", dtype);
        // SAFETY: as below, for 16 planes.
        unsafe { device.launch(NAME, kernel, grid, args)? };
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
