//! Tile products on CUDA: choice of kernel, of the grid, and of the stretches that the sum is cut into.

use super::{
    Matrices, NAME, hopper,
    product::{Operand, Product},
    vendor,
};
use crate::{
    Array, Compute, CudaDevice, DType, Products, Result,
    array::rows::sum_partials_into,
    cpu::gemm::Sizes,
    csrc::{simt_tile, warp_tile},
    runtime::cuda::{Args, Grid, Kernel, Key, Words},
};
use gradewise_core::Shape;
use gradewise_ffi::sys::function_attribute;
use std::sync::Arc;

/// The kernel's parameter.
#[repr(C)]
#[derive(Clone, Copy, bytemuck::NoUninit)]
struct Problem {
    a: u64,
    b: u64,
    c: u64,
    bias: u64,
    starts: u64,
    a_index: u64,
    b_index: u64,
    m: u64,
    n: u64,
    k: u64,
    lda: u64,
    ldb: u64,
    a_stride: u64,
    b_stride: u64,
    c_stride: u64,
    alpha: f64,
    bias_first: i32,
    bias_last: i32,
    splits: i32,
    accumulate: i32,
    a_aligned: i32,
    b_aligned: i32,
}

/// A kernel: rows and columns of its tile, bytes of dynamic shared memory.
#[derive(Clone, Copy)]
struct Tile {
    name: &'static str,
    rows: usize,
    columns: usize,
    shared: usize,
}

/// The kernels of one layout of the operands: exact for short sums, small and large; on tensor cores small and large.
struct Tiles {
    short: Tile,
    simt: &'static [Tile],
    warp: &'static [Tile],
}

const fn tiles(a: bool, b: bool) -> Option<Tiles> {
    const fn simt(name: &'static str, side: usize) -> Tile {
        Tile { name, rows: side, columns: side, shared: 0 }
    }
    /// The shared memory is the same for elements of 32 and of 16 bits.
    const fn warp(name: &'static str, [rows, columns]: [usize; 2], [a, b]: [usize; 2]) -> Tile {
        Tile { name, rows, columns, shared: warp_tile::shared(rows, columns, a, b, 4) }
    }
    const SMALL: [usize; 2] = [warp_tile::SMALL_ROWS, warp_tile::SMALL_COLUMNS];
    const LARGE: [usize; 2] = [warp_tile::LARGE_ROWS, warp_tile::LARGE_COLUMNS];
    macro_rules! layout {
        ($layout:literal, $transposed:expr) => {
            Some(Tiles {
                short: simt(concat!("matmul_short_", $layout), simt_tile::SMALL),
                simt: const {
                    &[
                        simt(concat!("matmul_simt_", $layout, "_s"), simt_tile::SMALL),
                        simt(concat!("matmul_simt_", $layout, "_l"), simt_tile::LARGE),
                    ]
                },
                warp: const {
                    &[
                        warp(concat!("matmul_warp_", $layout, "_s"), SMALL, $transposed),
                        warp(concat!("matmul_warp_", $layout, "_l"), LARGE, $transposed),
                    ]
                },
            })
        };
    }
    match (a, b) {
        (false, false) => layout!("nn", [0, 0]),
        (false, true) => layout!("nt", [0, 1]),
        (true, false) => layout!("tn", [1, 0]),
        (true, true) => None,
    }
}

/// Terms up to which sums of `f32` are formed in double precision.
pub(crate) const SHORT: usize = 16;

/// Where most of an instruction's operands would be padding, ordinary multiply-adds are as fast, and exact.
const LEAST: usize = 16;
/// Threads of a block, of every kernel.
const THREADS: u32 = warp_tile::THREADS as u32;
const _: () = assert!(simt_tile::THREADS == warp_tile::THREADS);

/// The architecture that the kernels' code was compiled for, times ten.
struct Target(i32);

/// Whether a device has the tensor-core instructions and its code was compiled for them.
pub(crate) fn has_warp_kernels(device: &CudaDevice, dtype: DType) -> Result<bool> {
    if dtype == DType::F64 || device.info().compute_capability.0 < 8 {
        return Ok(false);
    }
    let target = device.constant(Key::Device, || {
        let kernel = Kernel::new("matmul_warp_nn_s", DType::F32);
        let function = device.kernels().function(device.context(), NAME, kernel, &[size_of::<Problem>()])?;
        let target = function.attribute(function_attribute::PTX_VERSION);
        target.map(Target).map_err(|error| device.error(NAME, error))
    })?;
    Ok(target.0 >= 80)
}

impl Product<'_> {
    /// Whether tensor cores compute it in one part, f32 as TF32.
    fn on_tensor_cores(&self, device: &CudaDevice) -> Result<bool> {
        let Sizes { m, n, k } = self.sizes;
        Ok(m.min(n).min(k) >= LEAST
            && device.options().products != Products::Plain
            && (self.dtype != DType::F32 || Compute::current() == Compute::Tf32)
            && has_warp_kernels(device, self.dtype)?)
    }

    /// Whether it is computed in TF32 by the kernels of compute capability 9.0, for which both operands may be stored transposed.
    pub fn may_transpose_both(&self, device: &CudaDevice) -> Result<bool> {
        Ok(self.dtype == DType::F32
            && device.options().products == Products::All
            && hopper::serves(device, self)
            && self.on_tensor_cores(device)?)
    }

    /// Computes into a new array of `shape`, which has as many elements as all C together.
    ///
    /// # Safety
    /// Operands, segments and the bias hold what the product's sizes, rows, strides, indices and starts tell, of its dtype, on this device,
    /// and live until this returns (later their memory is returned in the order of the device's stream).
    pub unsafe fn run(&self, device: &CudaDevice, shape: impl Into<Shape>) -> Result<Array> {
        let out = Array::for_kernel(self.operation, shape, self.dtype, device)?;
        if out.elements() > 0 {
            // SAFETY: as for this function; `out` is new and has room for all C.
            unsafe { self.run_into(device, &out, false)? };
        }
        Ok(out)
    }

    /// Computes into `out`, which is contiguous, or adds to what it holds.
    ///
    /// # Safety
    /// Operands, segments and the bias hold what the product's sizes, rows, strides, indices and starts tell, of its dtype, on this device,
    /// and live until this returns (later their memory is returned in the order of the device's stream). `out` is the caller's to
    /// write and is none of them; it has the dtype of the product and room for all C, in their window if there is one.
    pub unsafe fn run_into(&self, device: &CudaDevice, out: &Array, accumulate: bool) -> Result<()> {
        let Sizes { m, n, k } = self.sizes;
        let tensor = self.on_tensor_cores(device)?;
        // Exact products of f32 are also fastest on tensor cores, with operands in three parts.
        let exact =
            m.min(n).min(k) >= LEAST && self.dtype == DType::F32 && Compute::current() != Compute::Tf32;
        if (tensor || exact)
            && device.options().products == Products::All
            // SAFETY: as for this function.
            && unsafe { hopper::run(device, self, out, accumulate, exact)? }
        {
            return Ok(());
        }
        let Some(tiles) = tiles(self.a.transpose, self.b.transpose) else {
            unreachable!("callers transpose one operand at most, unless `may_transpose_both` says they may")
        };
        let sizes = if tensor { tiles.warp } else { tiles.simt };
        let blocks = |tile: &Tile| m.div_ceil(tile.rows) * n.div_ceil(tile.columns) * self.count;
        let stretches = |tile: &Tile| {
            if accumulate || self.bias.is_some() || self.window.is_some() {
                1
            } else {
                splits(blocks(tile), self.segments, k)
            }
        };
        // A large tile pays where it is mostly filled and there are enough of them.
        let sms = device.info().multiprocessors as usize;
        let pays = |tile: &&Tile| {
            let fills = m > tile.rows / 2 && n > tile.columns / 2;
            fills && 2 * blocks(tile) * stretches(tile) >= sms
        };
        let tile = match () {
            () if self.dtype == DType::F32 && !tensor && self.segments * k <= SHORT => tiles.short,
            () => *sizes.iter().rev().find(pays).unwrap_or(&sizes[0]),
        };
        let splits = stretches(&tile);
        let size = self.dtype.size();
        let aligned = |operand: &Operand<'_>| {
            let wide = 16 / size;
            i32::from(
                operand.address.is_multiple_of(16)
                    && operand.row.is_multiple_of(wide)
                    && operand.stride.is_multiple_of(wide),
            )
        };
        let target = if splits > 1 {
            let partial = self.dtype.accumulator();
            Array::for_kernel(self.operation, [splits, self.count * m * n], partial, device)?
        } else {
            out.clone()
        };
        let (offset, stride) = self.window.unwrap_or((0, m * n));
        let address = |words: Option<&Words>| words.map_or(0, Words::address);
        let (bias, range) = self.bias.clone().unwrap_or((0, 0..0));
        let problem = Problem {
            a: self.a.address,
            b: self.b.address,
            c: target.cuda_address() + (offset * size) as u64,
            bias,
            starts: address(self.starts),
            a_index: address(self.a.index),
            b_index: address(self.b.index),
            m: m as u64,
            n: n as u64,
            k: k as u64,
            lda: self.a.row as u64,
            ldb: self.b.row as u64,
            a_stride: self.a.stride as u64,
            b_stride: self.b.stride as u64,
            c_stride: stride as u64,
            alpha: self.scale,
            bias_first: range.start as i32,
            bias_last: range.end as i32,
            splits: splits as i32,
            accumulate: i32::from(accumulate),
            a_aligned: aligned(&self.a),
            b_aligned: aligned(&self.b),
        };
        let kernel = Kernel::new(tile.name, self.dtype);
        let grid = Grid::blocks(blocks(&tile) * splits, THREADS).shared(tile.shared);
        // SAFETY: 1: as the caller vouches for operands, segments and `out`; `target` has room for all stretches of the sums. 2: `target`
        // is new, or `out`, which the caller has to write. 3: threads and shared memory are those of the tile. 4: as the caller vouches.
        unsafe { device.launch(self.operation, kernel, grid, Args::new().value(&problem))? };
        if splits > 1 {
            sum_partials_into(device, self.operation, &target, out, 1.0)?;
        }
        Ok(())
    }
}

/// Into how many stretches a sum of `segments` times `k` terms is cut: enough to occupy a large device, each of some
/// hundreds of terms. Depends on sizes only.
fn splits(blocks: usize, segments: usize, k: usize) -> usize {
    const BLOCKS: usize = 512;
    const TERMS: usize = 256;
    (BLOCKS / blocks.max(1)).min(segments * k / TERMS).max(1)
}

pub(super) fn product(
    device: &CudaDevice,
    dtype: DType,
    left: &Matrices,
    right: &Matrices,
    shape: &[usize],
) -> Result<Array> {
    let ((m, k), (_, n)) = (left.sizes(), right.sizes());
    // Both transposed is rare: one of them is copied.
    let swapped;
    let left = if left.transpose && right.transpose {
        let rank = left.array.rank();
        let array = left.array.transpose(rank - 2, rank - 1)?.contiguous()?;
        swapped = Matrices {
            array,
            starts: left.starts.clone(),
            rows: left.columns,
            columns: left.rows,
            transpose: false,
        };
        &swapped
    } else {
        left
    };
    let count = left.starts.len();
    let index = |matrices: &Matrices| -> Result<Option<Arc<Words>>> {
        let size = (matrices.rows * matrices.columns).max(1);
        let numbers: Vec<u32> = matrices.starts.iter().map(|start| (start / size) as u32).collect();
        let plain = numbers.iter().enumerate().all(|(position, &number)| position == number as usize);
        if plain { Ok(None) } else { Words::kept(device, NAME, &numbers).map(Some) }
    };
    let (a_index, b_index) = (index(left)?, index(right)?);
    let operand = |matrices: &Matrices| Operand {
        address: matrices.array.cuda_address(),
        row: matrices.columns,
        stride: matrices.rows * matrices.columns,
        transpose: matrices.transpose,
        index: None,
        transposed: None,
    };
    let product = Product {
        operation: NAME,
        dtype,
        sizes: Sizes { m, n, k },
        count,
        a: Operand { index: a_index.as_deref(), ..operand(left) },
        b: Operand { index: b_index.as_deref(), ..operand(right) },
        starts: None,
        segments: 1,
        bias: None,
        scale: 1.0,
        window: None,
    };
    let plain = product.a.index.is_none() && product.b.index.is_none();
    if !plain || m * n * k * count == 0 {
        // SAFETY: the operands are matrices of the sizes compared by the caller, at the places that the indices tell; both are borrowed.
        return unsafe { product.run(device, shape) };
    }
    let out = Array::for_kernel(NAME, shape, dtype, device)?;
    // SAFETY: as above; `out` is new and has the shape of all C.
    let ours = || unsafe { product.run_into(device, &out, false) };
    let done = vendor::product(device, Sizes { m, n, k }, count, [left, right], &out, &ours)?;
    if !done {
        ours()?;
    }
    Ok(out)
}
