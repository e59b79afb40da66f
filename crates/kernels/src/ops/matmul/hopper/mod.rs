//! Tile products by the copy engine and the matrix instructions of compute capability 9.0, see csrc/mma/hopper.cuh.

pub(crate) mod plan;
#[cfg(test)]
mod tests;

use super::product::{Operand, Product};
use crate::{
    Array, Compute, CudaDevice, DType, Error, Result,
    cpu::gemm::Sizes,
    runtime::{
        cuda::{Args, Grid, Kernel, Words},
        tuning::{self, Tile},
    },
};
use gradewise_ffi::{TensorMap, tensor_map};
use plan::{LIST, MOST_LISTED, planned, totals};
use std::cell::OnceCell;

/// `TileProblem` of csrc/mma/hopper.cuh.
#[repr(C, align(64))]
#[derive(Clone, Copy, bytemuck::NoUninit, bytemuck::Zeroable)]
pub(crate) struct Problem {
    pub r: [u64; 16],
    pub s: [u64; 16],
    pub out: [u64; 16],
    pub c: u64,
    pub bias: u64,
    pub starts: u64,
    pub r_index: u64,
    pub s_index: u64,
    pub rows: u64,
    pub columns: u64,
    pub c_stride: u64,
    pub c_row: u64,
    pub count: i32,
    pub steps: i32,
    pub share: i32,
    pub bias_first: i32,
    pub bias_last: i32,
    pub accumulate: i32,
    pub boxes: i32,
    pub r_step: i32,
    pub s_step: i32,
    pub alpha: f32,
    pub split: i32,
    pub ordered: i32,
    pub list: [i32; LIST],
    pub padding: i32,
    pub r_transposed: u64,
    pub k: u64,
    pub to_alignment: [u64; 6],
}

/// `Stretches` of csrc/mma/matmul_hopper.cu.
#[repr(C)]
#[derive(Clone, Copy, bytemuck::NoUninit)]
struct Stretches {
    parts: [i32; LIST],
    accumulate: i32,
    /// Elements from one result to the next.
    stride: u64,
}

/// Bytes of a line of a tile, along k or across it.
pub(crate) const LINE: usize = 128;

/// How operands are given to the kernel: as R and S, whose k runs along rows or across them.
#[derive(Clone, Copy)]
struct Layout {
    /// One for each of [`Tile::ALL`], and that for exact products of f32.
    kernels: [&'static str; 3],
    exact: &'static str,
    /// Whether A is S and B is R, so that C comes out transposed.
    swapped: bool,
    r_across: bool,
    s_across: bool,
}

macro_rules! names {
    ($layout:literal) => {
        [
            concat!("matmul_hopper_", $layout, "_256_2"),
            concat!("matmul_hopper_", $layout, "_256_1"),
            concat!("matmul_hopper_", $layout, "_128_1"),
            concat!("matmul_hopper_exact_", $layout, "_128_1"),
        ]
    };
}

impl Layout {
    /// For A and B stored transposed or not. The instructions transpose 16-bit operands, and TF32 only what goes through
    /// registers, which is R: of C = A·B, Cᵀ = Bᵀ·Aᵀ is computed.
    const fn of(dtype: DType, a: bool, b: bool) -> Option<Self> {
        const fn layout(
            [first, second, third, exact]: [&'static str; 4],
            swapped: bool,
            r_across: bool,
            s_across: bool,
        ) -> Option<Layout> {
            Some(Layout { kernels: [first, second, third], exact, swapped, r_across, s_across })
        }
        match (dtype, a, b) {
            (_, false, true) => layout(names!("kk"), false, false, false),
            (DType::F32, false, false) => layout(names!("mkt"), true, true, false),
            (DType::F32, true, true) => layout(names!("mk"), false, true, false),
            (DType::BF16 | DType::F16, false, false) => layout(names!("km"), false, false, true),
            (DType::BF16 | DType::F16, true, false) => layout(names!("mm"), false, true, true),
            _ => None,
        }
    }
}

/// Whether the copy engine can read an operand.
fn aligned(operand: &Operand<'_>, size: usize) -> bool {
    operand.address.is_multiple_of(16)
        && (operand.row * size).is_multiple_of(16)
        && (operand.stride * size).is_multiple_of(16)
}

/// Whether this device and these operands can be served.
pub(super) fn serves(device: &CudaDevice, product: &Product<'_>) -> bool {
    let Sizes { m, n, k } = product.sizes;
    let size = product.dtype.size();
    // Smaller ones would leave most of a tile empty. Where the other side is long, memory is the limit: from half of that on, these kernels
    // took 9.9 µs where those of one warp each took 22 (7 products of 32×8192×96 in TF32, on an H200).
    let is_long = m.max(n) >= 4096 && product.dtype == DType::F32 && Compute::current() == Compute::Tf32;
    let least = if is_long { 32 } else { 64 };
    let worth_it = m.min(n) >= least && k * size >= LINE;
    let fits = [m, n, k].into_iter().all(|extent| i32::try_from(extent).is_ok());
    worth_it
        && fits
        && device.has_warpgroups()
        && [product.a, product.b].iter().all(|operand| aligned(operand, size))
}

/// Computes `product` into `out` if this device and these operands can be served. Returns whether they were.
///
/// `exact` is for f32 that is not to be rounded to TF32.
///
/// # Safety
/// As for `Product::run_into`.
pub(super) unsafe fn run(
    device: &CudaDevice,
    product: &Product<'_>,
    out: &Array,
    accumulate: bool,
    exact: bool,
) -> Result<bool> {
    let Sizes { m, n, k } = product.sizes;
    let size = product.dtype.size();
    let (c_offset, c_stride) = product.window.unwrap_or((0, m * n));
    if !serves(device, product) {
        return Ok(false);
    }
    if product.dtype == DType::F32 && product.a.transpose && !product.b.transpose {
        // SAFETY: as for this function.
        return unsafe { with_transposed(device, product, out, accumulate, exact) };
    }
    let Some(layout) = Layout::of(product.dtype, product.a.transpose, product.b.transpose) else {
        return Ok(false);
    };
    let (rows, columns) = if layout.swapped { (n, m) } else { (m, n) };
    let (r, s) = if layout.swapped { (&product.b, &product.a) } else { (&product.a, &product.b) };
    let steps = k.div_ceil(LINE / size);
    let totals = totals(product, steps);
    let cut = product.bias.is_none() && [m * n, c_stride, c_offset].iter().all(|part| part.is_multiple_of(4));
    let shape = tuning::Shape {
        dtype: product.dtype,
        layout: tuning::Layout::of(product.a.transpose, product.b.transpose),
        m,
        n,
        k,
        count: product.count,
        segments: totals.iter().sum::<usize>() / steps,
    };
    let chosen = if exact { Some(Tile::EXACT) } else { Tile::chosen(&device.info().name, &shape) };
    let plan = planned(&totals, (rows, columns), cut, device.info().multiprocessors as usize, chosen);
    let tile = Tile::ALL[plan.tile];
    let (kernel, shared) = match exact {
        true => (layout.exact, Tile::EXACT.exact_shared_bytes()),
        false => (layout.kernels[plan.tile], tile.shared_bytes()),
    };
    let stretches = plan.parts.as_ref().map(|parts| parts[product.count] as usize);
    let target = match stretches {
        Some(stretches) => Array::for_kernel(product.operation, [stretches, m * n], DType::F32, device)?,
        None => out.clone(),
    };
    let target_size = target.dtype().size();
    let (address, stride) = match stretches {
        Some(_) => (target.cuda_address(), m * n),
        None => (out.cuda_address() + (c_offset * size) as u64, c_stride),
    };
    let boxes = (n * target_size).is_multiple_of(16)
        && (stride * target_size).is_multiple_of(16)
        && address.is_multiple_of(16);
    let map = |operand: &Operand<'_>, extent: usize, across: bool, lines: usize| {
        let (lines_there, line, tile) = match across {
            true => (k, extent, [LINE / size, LINE / size]),
            false => (extent, k, [LINE / size, lines]),
        };
        let matrices = if operand.stride == 0 { 1 } else { matrices(product, operand.index) };
        let stride = if operand.stride == 0 { operand.row * lines_there } else { operand.stride };
        // The copy rounds f32 to the nearest TF32.
        let element = if size == 4 && !exact { tensor_map::TFLOAT32 } else { element(product.dtype) };
        let sizes = [line, lines_there, matrices];
        describe(
            device,
            product.operation,
            (element, size),
            operand.address,
            &sizes,
            &[operand.row, stride],
            &[tile[0], tile[1], 1],
        )
    };
    let mut problem = Problem {
        r: map(r, rows, layout.r_across, tile.rows)?,
        s: map(s, columns, layout.s_across, tile.columns / tile.cluster)?,
        out: [0; 16],
        c: address,
        bias: 0,
        starts: product.starts.map_or(0, Words::address),
        r_index: r.index.map_or(0, Words::address),
        s_index: s.index.map_or(0, Words::address),
        rows: rows as u64,
        columns: columns as u64,
        c_stride: stride as u64,
        c_row: n as u64,
        count: product.count as i32,
        steps: steps as i32,
        share: plan.share as i32,
        bias_first: 0,
        bias_last: 0,
        accumulate: i32::from(accumulate && stretches.is_none()),
        boxes: i32::from(boxes),
        r_step: i32::from(r.stride != 0),
        s_step: i32::from(s.stride != 0),
        alpha: product.scale as f32,
        split: i32::from(stretches.is_some()),
        ordered: 0,
        list: [0; LIST],
        padding: 0,
        r_transposed: 0,
        k: k as u64,
        to_alignment: [0; 6],
    };
    if let Some((bias, range)) = &product.bias {
        (problem.bias, problem.bias_first, problem.bias_last) = (*bias, range.start as i32, range.end as i32);
    }
    if boxes {
        let lines = if layout.swapped { 32 } else { 64 };
        let tile = [LINE / target_size, lines, 1];
        let sizes = [n, m, stretches.unwrap_or(product.count)];
        let element = (element(target.dtype()), target_size);
        problem.out = describe(device, product.operation, element, address, &sizes, &[n, stride], &tile)?;
    }
    if plan.parts.is_none() && product.starts.is_some() && product.count <= MOST_LISTED {
        problem.ordered = 1;
    }
    problem.list = plan.list(&totals, problem.ordered == 1);
    let copy = if exact { None } else { transposed_on_the_way(device, product, layout)? };
    if let Some(copy) = &copy {
        problem.r_transposed = copy.cuda_address();
    }
    let layers = stretches.unwrap_or(product.count);
    let units = rows.div_ceil(tile.rows * tile.cluster) * columns.div_ceil(tile.columns) * layers;
    let slots = (device.info().multiprocessors as usize / tile.cluster).max(1);
    let grid =
        Grid::blocks(units.min(slots) * tile.cluster, Tile::THREADS).shared(shared).cluster(tile.cluster);
    // SAFETY: 1: as the caller of `Product::run_into` vouches for operands, segments and `out`; `target` has room for all stretches. 2:
    // `target` is new, or `out`, which the caller has to write. 3: threads, shared memory and cluster are those of the tile that the kernel
    // was compiled for. 4: as for 1.
    unsafe {
        device.launch(
            product.operation,
            Kernel::new(kernel, product.dtype),
            grid,
            Args::new().large(&problem),
        )?
    };
    if let (Some(copy), Some(place)) = (copy, product.a.transposed) {
        // The cell was found empty above, so `set` succeeds.
        let _ = place.set(copy);
    }
    if stretches.is_some() {
        let summed =
            Stretches { parts: problem.list, accumulate: i32::from(accumulate), stride: c_stride as u64 };
        let into = out.cuda_address() + (c_offset * size) as u64;
        let kernel = Kernel::new("matmul_stretches", product.dtype);
        // SAFETY: the plan's list counts the stretches that `target` was made for; `out` is the caller's of `Product::run_into` to write.
        unsafe {
            sum_stretches(
                device,
                (product.operation, kernel),
                &summed,
                &target,
                into,
                [m * n, product.count],
            )?;
        }
    }
    Ok(true)
}

/// Adds up the stretches of `count` results of `size` elements each, a multiple of 4.
///
/// # Safety
/// `stretches` has as many entries of that size as `summed` counts, in f32; at `into` there is room for the results, in the kernel's dtype,
/// which nothing else of the launch reads.
unsafe fn sum_stretches(
    device: &CudaDevice,
    (operation, kernel): (&'static str, Kernel),
    summed: &Stretches,
    stretches: &Array,
    into: u64,
    [size, count]: [usize; 2],
) -> Result<()> {
    let args = Args::new().large(summed).array(stretches).pointer(into).size(size);
    // SAFETY: 1 and 2: as the caller vouches. 3: 256 threads along x for four results each, and a result along y. 4: as the caller vouches.
    unsafe { device.launch(operation, kernel, Grid::linear_by(size.div_ceil(4), count), args) }
}

/// The sum of `stretches` `[count, …]` in f32, in order, into `out`, whose number of elements is a multiple of 4.
pub(crate) fn sum_all(
    device: &CudaDevice,
    operation: &'static str,
    stretches: &Array,
    out: &Array,
) -> Result<()> {
    let mut summed = Stretches { parts: [0; LIST], accumulate: 0, stride: out.elements() as u64 };
    let (count, size) = (stretches.dims()[0], out.elements());
    let fits = stretches.dtype() == DType::F32
        && stretches.elements() == count * size
        && size.is_multiple_of(4)
        && stretches.is_contiguous()
        && out.is_contiguous();
    if !fits {
        let (actual, expected) =
            (stretches.shape().to_string(), "[count, …] of results, a multiple of 4 each");
        return Err(Error::Argument { operation, argument: "stretches", actual, expected });
    }
    summed.parts[1] = count as i32;
    let kernel = Kernel::new("matmul_stretches", out.dtype());
    // SAFETY: compared above; the caller has `out` written.
    unsafe { sum_stretches(device, (operation, kernel), &summed, stretches, out.cuda_address(), [size, 1]) }
}

pub(crate) const fn element(dtype: DType) -> u32 {
    match dtype {
        DType::BF16 => tensor_map::BFLOAT16,
        DType::F16 => tensor_map::FLOAT16,
        _ => tensor_map::FLOAT32,
    }
}

/// How many matrices there are behind an operand.
fn matrices(product: &Product<'_>, index: Option<&Words>) -> usize {
    let segments =
        product.starts.and_then(|starts| starts.values().last().copied()).unwrap_or(product.count as u32);
    index.and_then(|index| index.values().iter().max().map(|most| most + 1)).unwrap_or(segments) as usize
}

/// An array for the copy engine: sizes, the strides of all axes but the first, and a tile, each in elements and the innermost axis first.
pub(crate) fn describe(
    device: &CudaDevice,
    operation: &'static str,
    (dtype, size): (u32, usize),
    address: u64,
    sizes: &[usize],
    strides: &[usize],
    tile: &[usize],
) -> Result<[u64; 16]> {
    // Where in the description the address is, the driver does not say.
    device.settle_at(address)?;
    // The most axes that the copy engine takes.
    const AXES: usize = 5;
    let mut words = [[0; AXES]; 2];
    let mut extents = [0; AXES];
    words[0].iter_mut().zip(sizes).for_each(|(word, size)| *word = *size as u64);
    words[1].iter_mut().zip(strides).for_each(|(word, stride)| *word = (stride * size) as u64);
    extents.iter_mut().zip(tile).for_each(|(extent, size)| *extent = *size as u32);
    let map = TensorMap {
        dtype,
        address,
        sizes: &words[0][..sizes.len()],
        strides: &words[1][..strides.len()],
        tile: &extents[..tile.len()],
        swizzle: tensor_map::SWIZZLE_128B,
        promotion: tensor_map::PROMOTION_128B,
    };
    let encoded = map.encode(device.context().driver());
    encoded.map(|map| map.0).map_err(|error| device.error(operation, error))
}

/// An array for the transposes of A, if they are wanted and the kernel of this layout can also write them: A is R with k along rows, and
/// each matrix serves one result.
fn transposed_on_the_way(
    device: &CudaDevice,
    product: &Product<'_>,
    layout: Layout,
) -> Result<Option<Array>> {
    let Sizes { m, k, .. } = product.sizes;
    let a = &product.a;
    let wanted = a.transposed.is_some_and(|place| place.get().is_none());
    let plain = a.index.is_none() && product.starts.is_none() && a.stride != 0;
    if !wanted || !plain || product.dtype != DType::F32 || layout.swapped || layout.r_across {
        return Ok(None);
    }
    Array::for_kernel(product.operation, [product.count, k, m], DType::F32, device).map(Some)
}

/// Aᵀ·B in TF32, for which B is transposed first, unless it has been already.
///
/// # Safety
/// As for `Product::run_into`.
unsafe fn with_transposed(
    device: &CudaDevice,
    product: &Product<'_>,
    out: &Array,
    accumulate: bool,
    exact: bool,
) -> Result<bool> {
    let Sizes { n, k, .. } = product.sizes;
    if !(k * DType::F32.size()).is_multiple_of(16) {
        return Ok(false);
    }
    let operand = &product.b;
    let transposed = match operand.transposed.and_then(OnceCell::get) {
        Some(transposed) => transposed.clone(),
        // SAFETY: as for this function.
        None => unsafe { transpose(device, product)? },
    };
    let stride = if operand.stride == 0 { 0 } else { n * k };
    let address = transposed.cuda_address();
    let b = Operand { address, row: k, stride, transpose: true, index: operand.index, transposed: None };
    let product = Product { b, bias: product.bias.clone(), ..*product };
    // SAFETY: the transposed matrices are as many, and live until after the call; all else is as it was given.
    unsafe { run(device, &product, out, accumulate, exact) }
}

/// The matrices of B, transposed.
///
/// # Safety
/// As for `Product::run_into`.
unsafe fn transpose(device: &CudaDevice, product: &Product<'_>) -> Result<Array> {
    let Sizes { n, k, .. } = product.sizes;
    let operand = &product.b;
    let count = if operand.stride == 0 { 1 } else { matrices(product, operand.index) };
    let transposed = Array::for_kernel(product.operation, [count, n, k], DType::F32, device)?;
    let args = Args::new()
        .pointer(operand.address)
        .array(&transposed)
        .size(count)
        .size(k)
        .size(n)
        .size(operand.row)
        .size(operand.stride);
    let tiles = n.div_ceil(32) * k.div_ceil(32) * count;
    let grid = Grid::blocks(tiles.min(1 << 16), Grid::THREADS);
    // SAFETY: 1: as the caller of `Product::run_into` vouches for operand B, whose row and stride these are; `transposed` has room for its
    // matrices. 2: `transposed` is new. 3: 256 threads turn tiles of 32 by 32. 4: as for 1.
    unsafe { device.launch(product.operation, Kernel::new("matmul_transpose", DType::F32), grid, args)? };
    Ok(transposed)
}
