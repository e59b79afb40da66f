//! Launchers: which kernel, which grid, which stretches of the sum (csrc/fields/problem.cuh).

use super::{
    geometry::{AXES, Gather},
    hopper,
};
use crate::{
    Array, Compute, CudaDevice, DType, Error, Products, Result,
    array::rows::sum_partials_into,
    csrc::{
        field_tile::{SIDE, WARP_ROWS},
        warp_tile,
    },
    ops::matmul::cuda::has_warp_kernels,
    runtime::cuda::{Args, Grid, Kernel},
};
use gradewise_core::Shape;

/// The kernels' parameter.
#[repr(C)]
#[derive(Clone, Copy, bytemuck::NoUninit)]
struct Problem {
    source: u64,
    other: u64,
    out: u64,
    rows: i64,
    source_plane: i64,
    depth: i64,
    columns: i32,
    channels: i32,
    out_channels: i32,
    groups: i32,
    source_blades: i32,
    taps: [i32; AXES],
    extents: [i32; AXES],
    source_extents: [i32; AXES],
    stride: [i32; AXES],
    dilation: [i32; AXES],
    before: [i32; AXES],
    adjoint: i32,
    splits: i32,
    /// Padding to the alignment of the struct.
    rest: i32,
}

/// Which engine computes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Engine {
    /// Ordinary multiply-adds, of any sizes.
    Simt,
    /// Matrix instructions: 16-bit operands, or f32 in TF32.
    Warp,
    /// Matrix instructions on f32 in three parts.
    Exact,
}

/// A kernel: rows and columns of its tile, bytes of dynamic shared memory.
struct Tile {
    name: &'static str,
    rows: usize,
    columns: usize,
    shared: usize,
}

const THREADS: u32 = warp_tile::THREADS as u32;

/// A tile for matrix instructions, which take operands transposed or not. Its shared memory is the same for elements of 32 and of 16 bits.
const fn tile(name: &'static str, rows: usize, [a, b]: [usize; 2]) -> Tile {
    Tile { name, rows, columns: SIDE, shared: warp_tile::shared(rows, SIDE, a, b, 4) }
}

impl Engine {
    /// The fastest engine that serves. Matrix instructions need channels of both fields in whole packs of 16 bytes, and pay where an
    /// instruction is mostly filled.
    fn of(device: &CudaDevice, gather: &Gather, dtype: DType, arrays: &[&Array]) -> Result<Self> {
        const LEAST: usize = 16;
        let pack = 16 / dtype.size();
        let [(_, channels), (blades, out)] =
            [gather.source, gather.target].map(|[blades, channels]| (blades, channels));
        let packed = channels.is_multiple_of(pack)
            && out.is_multiple_of(pack)
            && arrays.iter().all(|array| array.cuda_address().is_multiple_of(16));
        let filled = (blades * out).min(depth(gather)).min(gather.rows()) >= LEAST;
        let tensor = packed
            && filled
            && device.options().products != Products::Plain
            && has_warp_kernels(device, dtype)?;
        Ok(match dtype {
            _ if !tensor => Self::Simt,
            DType::F32 if Compute::current() != Compute::Tf32 => Self::Exact,
            _ => Self::Warp,
        })
    }

    fn gather(self) -> Tile {
        match self {
            Self::Simt => Tile { name: "field_gather_simt", rows: SIDE, columns: SIDE, shared: 0 },
            Self::Warp => tile("field_gather_warp", WARP_ROWS, [0, 1]),
            Self::Exact => tile("field_gather_exact", SIDE, [0, 1]),
        }
    }

    fn gradient(self) -> Tile {
        match self {
            Self::Simt => Tile { name: "field_gradient_simt", rows: SIDE, columns: SIDE, shared: 0 },
            Self::Warp => tile("field_gradient_warp", WARP_ROWS, [1, 0]),
            Self::Exact => tile("field_gradient_exact", SIDE, [1, 0]),
        }
    }
}

/// Terms of the sum for one element of the target.
fn depth(gather: &Gather) -> usize {
    gather.source[0] * gather.sizes.taps * gather.source[1]
}

fn problem(
    operation: &'static str,
    gather: &Gather,
    source: &Array,
    other: &Array,
    out: &Array,
) -> Result<Problem> {
    let columns = gather.target[0] * gather.target[1];
    let per_blade = gather.sizes.taps.saturating_mul(gather.source[1]);
    let most = i32::MAX as usize;
    if gather.rows() > most || gather.source_rows() > most || columns > most || per_blade > most {
        let actual = format!("{} positions, {columns} channels, {per_blade} terms", gather.rows());
        return Err(Error::Argument {
            operation,
            argument: "sizes",
            actual,
            expected: "less than 2^31 of each",
        });
    }
    let three = |sizes: [usize; AXES]| sizes.map(|size| size as i32);
    Ok(Problem {
        source: source.cuda_address(),
        other: other.cuda_address(),
        out: out.cuda_address(),
        rows: gather.rows() as i64,
        source_plane: (gather.source_rows() * gather.sizes.groups * gather.source[1]) as i64,
        depth: depth(gather) as i64,
        columns: columns as i32,
        channels: gather.source[1] as i32,
        out_channels: gather.target[1] as i32,
        groups: gather.sizes.groups as i32,
        source_blades: gather.source[0] as i32,
        taps: three(gather.taps),
        extents: three(gather.target_extents),
        source_extents: three(gather.source_extents),
        stride: three(gather.stride),
        dilation: three(gather.dilation),
        before: three(gather.before),
        adjoint: i32::from(gather.adjoint),
        splits: 1,
        rest: 0,
    })
}

/// The target of `source` and the kernel `w` `[J, O, I, *taps, C/g]`.
pub(super) fn gathered(
    operation: &'static str,
    device: &CudaDevice,
    gather: &Gather,
    [source, w]: [&Array; 2],
    shape: Shape,
) -> Result<Array> {
    let dtype = source.dtype();
    let out = Array::for_kernel(operation, shape, dtype, device)?;
    if out.elements() == 0 {
        return Ok(out);
    }
    if depth(gather) == 0 || gather.source_rows() == 0 {
        return out.zeros_like();
    }
    if device.options().products == Products::All
        && hopper::gathered(operation, device, gather, [source, w], &out)?
    {
        return Ok(out);
    }
    let w = &gather.by_group(w)?;
    let problem = problem(operation, gather, source, w, &out)?;
    if gather.is_depthwise() {
        let kernel = Kernel::new("field_depthwise", dtype);
        // SAFETY: 1: `problem` has the sizes of the fields and the kernel, which the operator's entry compared with the geometry, and
        // refuses what 32 bits do not count. 2: `out` is new. 3: linear, a thread for a result; the kernel strides. 4: all arrays are
        // borrowed or live in this function.
        unsafe {
            device.launch(operation, kernel, Grid::linear(out.elements()), Args::new().value(&problem))?
        };
        return Ok(out);
    }
    let tile = Engine::of(device, gather, dtype, &[source, w, &out])?.gather();
    let columns = gather.target[0] * gather.target[1];
    let blocks = gather.rows().div_ceil(tile.rows) * columns.div_ceil(tile.columns) * gather.sizes.groups;
    let grid = Grid::blocks(blocks, THREADS).shared(tile.shared);
    // SAFETY: 1: as above. 2: `out` is new. 3: 128 threads and the shared memory of the tile. 4: as above.
    unsafe { device.launch(operation, Kernel::new(tile.name, dtype), grid, Args::new().value(&problem))? };
    Ok(out)
}

/// The kernel's gradient for the fields `source` and `target`.
pub(super) fn gradient(
    operation: &'static str,
    device: &CudaDevice,
    gather: &Gather,
    [source, target]: [&Array; 2],
    shape: Shape,
) -> Result<Array> {
    let dtype = source.dtype();
    let out = Array::for_kernel(operation, shape, dtype, device)?;
    if out.elements() == 0 {
        return Ok(out);
    }
    if gather.rows() == 0 || gather.source_rows() == 0 {
        return out.zeros_like();
    }
    let columns = gather.target[0] * gather.target[1];
    if gather.is_depthwise() {
        return depthwise_gradient(operation, device, gather, [source, target], out);
    }
    if device.options().products == Products::All
        && let Some(made) = hopper::gradient(operation, device, gather, [source, target], out.shape())?
    {
        return Ok(made);
    }
    let tile = Engine::of(device, gather, dtype, &[source, target])?.gradient();
    let tiles = columns.div_ceil(tile.rows) * depth(gather).div_ceil(tile.columns) * gather.sizes.groups;
    let splits = splits(tiles, gather.rows());
    let sums = match splits {
        1 => out.clone(),
        _ => Array::for_kernel(operation, [splits, out.elements()], dtype.accumulator(), device)?,
    };
    let mut problem = problem(operation, gather, source, target, &sums)?;
    problem.splits = splits as i32;
    let grid = Grid::blocks(tiles * splits, THREADS).shared(tile.shared);
    // SAFETY: 1: as in `gathered`; `sums` has room for all stretches. 2: `sums` is new. 3: 128 threads and the shared memory of the tile.
    // 4: all arrays are borrowed or live in this function.
    unsafe { device.launch(operation, Kernel::new(tile.name, dtype), grid, Args::new().value(&problem))? };
    if splits > 1 {
        sum_partials_into(device, operation, &sums, &out, 1.0)?;
    }
    Ok(out)
}

fn depthwise_gradient(
    operation: &'static str,
    device: &CudaDevice,
    gather: &Gather,
    [source, target]: [&Array; 2],
    out: Array,
) -> Result<Array> {
    const ROWS: usize = 1024;
    const PAIRS: usize = 1 << 15;
    let pairs = gather.target[0] * depth(gather);
    let lanes = gather.sizes.groups.div_ceil(32);
    let splits = splits(lanes * pairs, gather.rows().div_ceil(ROWS / 256));
    let sums = Array::for_kernel(operation, [splits, out.elements()], out.dtype().accumulator(), device)?;
    let mut problem = problem(operation, gather, source, target, &sums)?;
    problem.splits = splits as i32;
    let grid = Grid::new([lanes, pairs.min(PAIRS), splits], [32, 8, 1]);
    let kernel = Kernel::new("field_depthwise_gradient", out.dtype());
    // SAFETY: 1: as in `gathered`; `sums` has room for all stretches. 2: `sums` is new. 3: 32 groups by 8 rows; pairs beyond those of the
    // grid follow by strides. 4: all arrays are borrowed or live in this function.
    unsafe { device.launch(operation, kernel, grid, Args::new().value(&problem))? };
    sum_partials_into(device, operation, &sums, &out, 1.0)?;
    Ok(out)
}

/// Into how many stretches a sum over rows is cut: enough to occupy a large device, each of some hundreds of rows. Depends on sizes only.
fn splits(blocks: usize, rows: usize) -> usize {
    const BLOCKS: usize = 512;
    const TERMS: usize = 256;
    (BLOCKS / blocks.max(1)).min(rows / TERMS).clamp(1, 64)
}
