//! split_heads and merge_heads on CUDA.

use super::{MERGE, Norm, SPLIT, Sizes, Split, form::Form};
use crate::{
    Array, CudaDevice, DType, Error, Result,
    csrc::{
        heads,
        short_heads::{self, LANES, MOST_WARPS},
    },
    runtime::cuda::{Args, Grid, Kernel, Key, Words},
};
use gradewise_core::{Shape, Signature};
use std::sync::Arc;

/// What a line of the planes has at most to be told in 30 bits.
const MOST_LINES: usize = 1 << 30;
/// Dynamic shared memory of a block that leaves room for others, and that every launch may have.
const ROOM: usize = 48 << 10;

/// The sizes as the kernels take them.
#[derive(Clone, Copy, bytemuck::NoUninit)]
#[repr(C)]
struct Heads {
    groups: i64,
    batch: i64,
    heads: i64,
    items: i64,
    planes: i64,
    channels: i64,
    scalars: i64,
    multivector_lines: [i64; 3],
    scalar_lines: [i64; 3],
    tile: i64,
    query: i64,
    grades: i64,
}

/// The quadratic form by planes on a device. A type of its own: its keys are no others.
struct DeviceForm(Words);

impl DeviceForm {
    /// Put on the device once.
    fn of(device: &CudaDevice, options: &Split<'_>) -> Result<Arc<Self>> {
        let Signature { p, q, r } = options.algebra.signature();
        let shape = [p, q, r].map(usize::from).into();
        let key = Key::Numbers { bytes: bytemuck::cast_slice(options.order), dtype: None, shape };
        device.constant(key, || Ok(Self(Words::new(device, SPLIT, &Form::words(options))?)))
    }
}

/// What a pass reads of the quadratic form: the group that is multiplied by it, and its grades, which tell where its lists begin.
#[derive(Clone, Copy, Default)]
struct Reads {
    query: Option<usize>,
    grades: usize,
}

impl Reads {
    fn of(options: &Split<'_>) -> Self {
        Self { query: options.query, grades: options.algebra.grade_count() }
    }
}

/// How a pass runs.
struct Plan {
    heads: Heads,
    grid: Grid,
    /// Whether the kernels for short heads run.
    is_short: bool,
}

/// The kernels of long heads and of short ones.
const SPLITS: [&str; 2] = ["split_heads_fwd", "split_heads_short_fwd"];
const GRADIENTS: [&str; 2] = ["split_heads_bwd", "split_heads_short_bwd"];
const MERGES: [&str; 2] = ["merge_heads", "merge_heads_short"];

impl Plan {
    /// For `tiles` tiles of elements of `dtype`: as many rows as make 128 bytes of a line of the planes, or fewer where heads are long.
    fn new(
        device: &CudaDevice,
        operation: &'static str,
        sizes: Sizes,
        (tiles, dtype): (usize, DType),
        Reads { query, grades }: Reads,
    ) -> Result<Self> {
        let (width, element) = (sizes.width(), dtype.accumulator().size());
        let shared = |tile: usize| heads::shared(tiles, tile, width, element);
        let widest = 128 / dtype.size();
        let tile = std::iter::successors(Some(widest), |tile| (*tile > 1).then_some(tile / 2));
        let fits =
            |&tile: &usize| shared(tile) <= if tile == 1 { device.info().max_shared_memory } else { ROOM };
        let Some(tile) = tile.into_iter().find(fits).filter(|_| sizes.lines() <= MOST_LINES) else {
            return Err(Error::Argument {
                operation,
                argument: "x",
                actual: format!("{} lines, of heads of {width} elements in {dtype}", sizes.lines()),
                expected: "at most 2³⁰ lines, and heads that fit in shared memory; use more heads of fewer channels",
            });
        };
        let number = |size: usize| size as i64;
        let lines = |channels: usize| sizes.strides(channels).map(number);
        let kernel_sizes = Heads {
            groups: number(sizes.groups),
            batch: number(sizes.batch),
            heads: number(sizes.heads),
            items: number(sizes.items),
            planes: number(sizes.planes),
            channels: number(sizes.channels),
            scalars: number(sizes.scalars),
            multivector_lines: lines(sizes.channels),
            scalar_lines: lines(sizes.scalars),
            tile: number(tile),
            query: query.map_or(-1, number),
            grades: number(grades),
        };
        // A row of a head for each thread, where shared memory holds as many for a warp.
        let of_warp = short_heads::shared(tiles, width, element);
        let warps = (ROOM / of_warp).min(MOST_WARPS).min(sizes.groups * sizes.heads);
        let across = (sizes.groups * sizes.heads).div_ceil(warps.max(1));
        if warps > 0 && across <= u16::MAX.into() && sizes.rows().div_ceil(LANES) < 1 << 31 {
            let grid = Grid::new([sizes.rows().div_ceil(LANES), across, 1], [LANES as u32, warps as u32, 1]);
            let grid = grid.shared(warps * of_warp);
            return Ok(Self { heads: kernel_sizes, grid, is_short: true });
        }
        let blocks = sizes.rows().div_ceil(tile).clamp(1, 1 << 30);
        let pairs = (sizes.groups * sizes.heads).clamp(1, u16::MAX.into());
        let grid = Grid::new([blocks, pairs, 1], [heads::THREADS as u32, 1, 1]).shared(shared(tile));
        Ok(Self { heads: kernel_sizes, grid, is_short: false })
    }
}

pub(super) fn split(device: &CudaDevice, options: &Split<'_>, sizes: Sizes, x: &Array) -> Result<Array> {
    let (form, reads) = (DeviceForm::of(device, options)?, Reads::of(options));
    let out = Array::for_kernel(SPLIT, sizes.heads_shape(), x.dtype(), device)?;
    if out.elements() > 0 {
        let Plan { heads, grid, is_short } = Plan::new(device, SPLIT, sizes, (1, x.dtype()), reads)?;
        let Norm { epsilon, gain } = options.norm.unwrap_or(Norm { epsilon: 1.0, gain: 1.0 });
        let args = Args::new()
            .array(x)
            .array(&out)
            .pointer(form.0.address())
            .value(&heads)
            .int(i32::from(options.norm.is_some()))
            .double(epsilon)
            .double(gain);
        // SAFETY: 1: `check` where the operator is entered compared x with the sizes and the order of planes with the algebra; both arrays
        // are contiguous. 2: `out` is new. 3: threads and shared memory are those of the header, and blocks stride over tiles, groups and
        // heads. 4: the device keeps the form.
        unsafe { device.launch(SPLIT, Kernel::new(SPLITS[usize::from(is_short)], x.dtype()), grid, args)? };
    }
    Ok(out)
}

pub(super) fn split_backward(
    device: &CudaDevice,
    options: &Split<'_>,
    sizes: Sizes,
    x: &Array,
    grad: &Array,
) -> Result<Array> {
    let (form, reads) = (DeviceForm::of(device, options)?, Reads::of(options));
    let Some(Norm { epsilon, gain }) = options.norm else {
        return transposed(device, SPLIT, sizes, (form.0.address(), reads), grad);
    };
    let out = Array::for_kernel(SPLIT, sizes.planes_shape(), grad.dtype(), device)?;
    if out.elements() > 0 {
        let Plan { heads, grid, is_short } = Plan::new(device, SPLIT, sizes, (2, grad.dtype()), reads)?;
        let args = Args::new()
            .array(x)
            .array(grad)
            .array(&out)
            .pointer(form.0.address())
            .value(&heads)
            .double(epsilon)
            .double(gain);
        // SAFETY: 1, 3 and 4: as in the forward pass, with a gradient of the shape of its result, and room for two tiles. 2: `out` is new.
        unsafe {
            device.launch(SPLIT, Kernel::new(GRADIENTS[usize::from(is_short)], grad.dtype()), grid, args)?
        };
    }
    Ok(out)
}

pub(super) fn merge(device: &CudaDevice, sizes: Sizes, x: &Array) -> Result<Array> {
    transposed(device, MERGE, sizes, (0, Reads::default()), x)
}

/// Heads to planes; `form` is the address of the quadratic form and what is read of it, of which there is nothing without a query.
fn transposed(
    device: &CudaDevice,
    operation: &'static str,
    sizes: Sizes,
    (form, reads): (u64, Reads),
    heads: &Array,
) -> Result<Array> {
    let out = Array::for_kernel(operation, sizes.planes_shape(), heads.dtype(), device)?;
    if out.elements() > 0 {
        let plan = Plan::new(device, operation, sizes, (1, heads.dtype()), reads)?;
        let args = Args::new().array(heads).array(&out).pointer(form).value(&plan.heads);
        // SAFETY: 1: callers compared the heads with the sizes; both arrays are contiguous. 2: `out` is new. 3: threads and shared memory are
        // those of the header, and blocks stride. 4: the form is read for a query only, and callers that have one keep it.
        unsafe {
            device.launch(
                operation,
                Kernel::new(MERGES[usize::from(plan.is_short)], heads.dtype()),
                plan.grid,
                args,
            )?
        };
    }
    Ok(out)
}

pub(super) fn merge_backward(
    device: &CudaDevice,
    sizes: Sizes,
    shape: &Shape,
    grad: &Array,
) -> Result<Array> {
    let out = Array::for_kernel(MERGE, shape, grad.dtype(), device)?;
    if out.elements() > 0 {
        let Plan { heads, grid, is_short } =
            Plan::new(device, MERGE, sizes, (1, grad.dtype()), Reads::default())?;
        let args =
            Args::new().array(grad).array(&out).pointer(0).value(&heads).int(0).double(1.0).double(1.0);
        // SAFETY: 1: `check` compared the shape with the sizes, and the gradient with its planes; both arrays are contiguous. 2: `out` is
        // new. 3: as in `transposed`. 4: without norm and query no form is read.
        unsafe {
            device.launch(MERGE, Kernel::new(SPLITS[usize::from(is_short)], grad.dtype()), grid, args)?
        };
    }
    Ok(out)
}
