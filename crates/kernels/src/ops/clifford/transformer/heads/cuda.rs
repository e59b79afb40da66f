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

/// `HeadStrides` there.
#[derive(Clone, Copy, bytemuck::NoUninit)]
#[repr(C)]
struct HeadStrides {
    group: i64,
    batch: i64,
    head: i64,
    item: i64,
}

/// Heads as the kernels for short ones read them, whatever their strides but that a row is in one piece.
struct HeadRows {
    /// The first three groups, or one array of all.
    groups: [Array; 3],
    strides: HeadStrides,
}

impl HeadRows {
    /// Heads `[…, batch, heads, items, width]` of one array, with groups before them or without.
    fn of(heads: &Array) -> Result<Self> {
        let is_read = |array: &Array| {
            let in_pieces = matches!(array.strides(), [.., last] if *last != 1);
            // A stride of 0 would tell the kernels that each group has an array.
            let repeats = array.rank() > 4 && array.strides()[0] == 0;
            !in_pieces && !repeats
        };
        let heads = if is_read(heads) { heads.clone() } else { heads.contiguous()? };
        let mut strides = heads.strides().iter().rev().skip(1).map(|&stride| stride as i64);
        let mut next = || strides.next().unwrap_or(1);
        let (item, head, batch, group) = (next(), next(), next(), next());
        let strides = HeadStrides { group, batch, head, item };
        Ok(Self { groups: [heads.clone(), heads.clone(), heads], strides })
    }

    /// Two or three groups `[batch, heads, items, width]`.
    fn of_groups(groups: &[Array]) -> Result<Self> {
        let is_read = groups.iter().all(|group| {
            group.strides() == groups[0].strides() && matches!(group.strides(), [.., last] if *last == 1)
        });
        let groups: Vec<Array> = groups
            .iter()
            .map(|group| if is_read { Ok(group.clone()) } else { group.contiguous() })
            .collect::<Result<_>>()?;
        let third = groups.get(2).unwrap_or(&groups[1]).clone();
        let [batch, head, item] = [0, 1, 2].map(|axis| groups[0].strides()[axis] as i64);
        let strides = HeadStrides { group: 0, batch, head, item };
        Ok(Self { groups: [groups[0].clone(), groups[1].clone(), third], strides })
    }

    fn args<'a>(&'a self, args: Args<'a>) -> Args<'a> {
        self.groups.iter().fold(args, Args::array)
    }
}

/// `SixteenLines` of csrc/clifford/transformer/heads_16.cu.
#[derive(Clone, Copy, bytemuck::NoUninit)]
#[repr(C)]
struct SixteenLines {
    offset: [u32; 16],
    element: [u32; 16],
    factor: [f32; 16],
}

impl SixteenLines {
    /// For all planes of an algebra of 16 blades, less than 4 GiB of them.
    fn new(options: &Split<'_>, sizes: Sizes, dtype: DType) -> Option<Self> {
        let (norms, grades) = (options.algebra.squared_norms(), options.algebra.grades());
        if options.order.len() != 16 || options.algebra.blade_count() != 16 {
            return None;
        }
        let lines = sizes.groups.checked_mul(sizes.channels)?.checked_mul(sizes.heads)?;
        let bytes = lines.checked_mul(sizes.rows())?.checked_mul(dtype.size())?;
        u32::try_from(bytes.checked_mul(16)?).ok()?;
        let mut planes: Vec<usize> = (0..16).collect();
        planes.sort_by_key(|&plane| grades[usize::from(options.order[plane])]);
        let mut found = Self { offset: [0; 16], element: [0; 16], factor: [0.0; 16] };
        for (place, plane) in planes.into_iter().enumerate() {
            found.offset[place] = (plane * bytes) as u32;
            found.element[place] = (plane * sizes.channels) as u32;
            found.factor[place] = norms[usize::from(options.order[plane])].into();
        }
        Some(found)
    }
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
        if let Some(grid) = short(sizes, short_heads::shared(tiles, width, element)) {
            return Ok(Self { heads: kernel_sizes, grid, is_short: true });
        }
        let blocks = sizes.rows().div_ceil(tile).clamp(1, 1 << 30);
        let pairs = (sizes.groups * sizes.heads).clamp(1, u16::MAX.into());
        let grid = Grid::new([blocks, pairs, 1], [heads::THREADS as u32, 1, 1]).shared(shared(tile));
        Ok(Self { heads: kernel_sizes, grid, is_short: false })
    }
}

/// A row of a head for each thread, where shared memory holds as many for a warp, which takes so many bytes.
fn short(sizes: Sizes, of_warp: usize) -> Option<Grid> {
    let pairs = sizes.groups * sizes.heads;
    let warps = (ROOM / of_warp).min(MOST_WARPS).min(pairs);
    let (along, across) = (sizes.rows().div_ceil(LANES), pairs.div_ceil(warps.max(1)));
    let is_short = warps > 0 && across <= u16::MAX.into() && along < 1 << 31;
    is_short.then(|| Grid::new([along, across, 1], [LANES as u32, warps as u32, 1]).shared(warps * of_warp))
}

pub(super) fn split(device: &CudaDevice, options: &Split<'_>, sizes: Sizes, x: &Array) -> Result<Array> {
    let (form, reads) = (DeviceForm::of(device, options)?, Reads::of(options));
    let out = Array::for_kernel(SPLIT, sizes.heads_shape(), x.dtype(), device)?;
    if out.elements() > 0 {
        let Plan { heads, grid, is_short } = Plan::new(device, SPLIT, sizes, (1, x.dtype()), reads)?;
        let Norm { epsilon, gain } = options.norm.unwrap_or(Norm { epsilon: 1.0, gain: 1.0 });
        let sixteen = SixteenLines::new(options, sizes, x.dtype());
        if let (Some(lines), true, true) = (sixteen, is_short, options.norm.is_some()) {
            let args =
                Args::new().array(x).array(&out).value(&lines).value(&heads).double(epsilon).double(gain);
            let kernel = Kernel::new("split_heads_16_fwd", x.dtype());
            // SAFETY: 1, 2 and 3: as below, for lines of the order of planes. 4: there are no addresses but those of arrays.
            unsafe { device.launch(SPLIT, kernel, grid, args)? };
            return Ok(out);
        }
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

/// The gradient of the heads: all groups in one array, or an array for each of two or three.
pub(super) enum Gradient<'a> {
    Whole(&'a Array),
    Groups(&'a [Array]),
}

impl Gradient<'_> {
    fn rows(&self) -> Result<HeadRows> {
        match *self {
            Self::Whole(grad) => HeadRows::of(grad),
            Self::Groups(groups) => HeadRows::of_groups(groups),
        }
    }

    /// In one array, row after row.
    fn whole(&self) -> Result<Array> {
        match *self {
            Self::Whole(grad) => grad.contiguous(),
            Self::Groups(groups) => super::joined(groups),
        }
    }
}

pub(super) fn split_backward(
    device: &CudaDevice,
    options: &Split<'_>,
    sizes: Sizes,
    x: &Array,
    grad: &Gradient<'_>,
) -> Result<Array> {
    let (form, reads) = (DeviceForm::of(device, options)?, Reads::of(options));
    let dtype = x.dtype();
    let Some(Norm { epsilon, gain }) = options.norm else {
        return transposed(device, SPLIT, sizes, (form.0.address(), reads), (grad, dtype));
    };
    let out = Array::for_kernel(SPLIT, sizes.planes_shape(), dtype, device)?;
    if out.elements() == 0 {
        return Ok(out);
    }
    let plan = Plan::new(device, SPLIT, sizes, (2, dtype), reads)?;
    let of_warp = short_heads::shared_16(sizes.width(), dtype.accumulator().size());
    let sixteen = SixteenLines::new(options, sizes, dtype).zip(short(sizes, of_warp));
    if let Some((lines, grid)) = sixteen {
        let rows = grad.rows()?;
        let args = rows.args(Args::new().array(x)).array(&out).value(&lines);
        let args = args.value(&plan.heads).value(&rows.strides).double(epsilon).double(gain);
        // SAFETY: 1: as in the forward pass, with gradients of the shape of its result or of a group of it, of whose rows the strides tell; the
        // lines are those of the order of planes. 2: `out` is new. 3: a warp for each 32 rows of a group and head, with the shared memory of
        // the header. 4: there are no addresses but those of arrays.
        unsafe { device.launch(SPLIT, Kernel::new("split_heads_16_bwd", dtype), grid, args)? };
    } else if plan.is_short {
        let rows = grad.rows()?;
        let args = rows.args(Args::new().array(x)).array(&out).pointer(form.0.address());
        let args = args.value(&plan.heads).value(&rows.strides).double(epsilon).double(gain);
        // SAFETY: 1, 2 and 3: as above. 4: the device keeps the form.
        unsafe { device.launch(SPLIT, Kernel::new("split_heads_short_bwd", dtype), plan.grid, args)? };
    } else {
        let grad = grad.whole()?;
        let args = Args::new().array(x).array(&grad).array(&out).pointer(form.0.address());
        let args = args.value(&plan.heads).double(epsilon).double(gain);
        // SAFETY: 1, 3 and 4: as in the forward pass, with a gradient of the shape of its result, and room for two tiles. 2: `out` is new.
        unsafe { device.launch(SPLIT, Kernel::new("split_heads_bwd", dtype), plan.grid, args)? };
    }
    Ok(out)
}

pub(super) fn merge(device: &CudaDevice, sizes: Sizes, x: &Array) -> Result<Array> {
    transposed(device, MERGE, sizes, (0, Reads::default()), (&Gradient::Whole(x), x.dtype()))
}

/// Heads to planes; `form` is the address of the quadratic form and what is read of it, of which there is nothing without a query.
fn transposed(
    device: &CudaDevice,
    operation: &'static str,
    sizes: Sizes,
    (form, reads): (u64, Reads),
    (heads, dtype): (&Gradient<'_>, DType),
) -> Result<Array> {
    let out = Array::for_kernel(operation, sizes.planes_shape(), dtype, device)?;
    if out.elements() == 0 {
        return Ok(out);
    }
    let plan = Plan::new(device, operation, sizes, (1, dtype), reads)?;
    if plan.is_short {
        let rows = heads.rows()?;
        let args = rows.args(Args::new()).array(&out).pointer(form).value(&plan.heads).value(&rows.strides);
        // SAFETY: 1: callers compared the heads with the sizes; of their rows the strides tell. 2: `out` is new. 3: threads and shared memory
        // are those of the header. 4: the form is read for a query only, and callers that have one keep it.
        unsafe { device.launch(operation, Kernel::new("merge_heads_short", dtype), plan.grid, args)? };
    } else {
        let heads = heads.whole()?;
        let args = Args::new().array(&heads).array(&out).pointer(form).value(&plan.heads);
        // SAFETY: as above, of contiguous heads; blocks stride.
        unsafe { device.launch(operation, Kernel::new("merge_heads", dtype), plan.grid, args)? };
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
