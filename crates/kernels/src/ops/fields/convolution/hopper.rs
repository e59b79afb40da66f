//! Convolutions by the copy engine and the matrix instructions of compute capability 9.0, see csrc/fields/hopper.cuh: which problems they
//! serve, how positions are cut into boxes, and how operands lie.

use super::geometry::{AXES, Gather};
use crate::{
    Array, Compute, CudaDevice, DType, Result,
    cuda::{Args, Grid, Kernel},
    ops::matmul::hopper::{self as product, LINE, describe, plan},
    tuning::Tile,
};
use bytemuck::Zeroable;
use gradewise_core::Shape;
use gradewise_ffi::tensor_map;

/// `FieldTiles` of csrc/fields/hopper.cuh.
#[repr(C, align(64))]
#[derive(Clone, Copy, bytemuck::NoUninit)]
struct Problem {
    tiles: product::Problem,
    fields: Fields,
}

/// `FieldBoxes` of csrc/fields/hopper.cuh.
#[repr(C, align(64))]
#[derive(Clone, Copy, bytemuck::NoUninit)]
struct Fields {
    shape: [i32; AXES + 1],
    across: [i32; AXES],
    extents: [i32; AXES],
    taps: [i32; AXES],
    first: [i32; AXES],
    pace: [i32; AXES],
    samples: i32,
    channels: i32,
    out_channels: i32,
    terms: i32,
    to_alignment: [i32; 9],
}

/// How positions are cut into boxes: binary logarithms of the extents along three axes of space and of the samples, and how many boxes
/// there are along each axis and in all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Boxes {
    shape: [u32; AXES + 1],
    across: [usize; AXES],
    count: usize,
}

impl Boxes {
    /// Boxes of `positions`, a power of two, and at least `width` along the last axis, as few as possible: boxes that reach over the edge
    /// of the field are partly empty. The samples of a box are of one blade, so that their number divides the batch.
    fn new(extents: [usize; AXES], batch: usize, positions: usize, width: usize) -> Option<Self> {
        let total = positions.ilog2();
        let mut best: Option<Self> = None;
        // Long boxes first: among equals the copy engine reads the longest stretches of memory.
        for x in (width.ilog2()..=total).rev() {
            for y in (0..=total - x).rev() {
                for z in (0..=total - x - y).rev() {
                    let shape = [z, y, x, total - x - y - z];
                    let [depth, height, width, samples] = shape.map(|bits| 1usize << bits);
                    if !batch.is_multiple_of(samples) {
                        continue;
                    }
                    let across =
                        [extents[0].div_ceil(depth), extents[1].div_ceil(height), extents[2].div_ceil(width)];
                    let count = across.iter().product::<usize>() * (batch / samples);
                    if best.is_none_or(|best| count < best.count) {
                        best = Some(Self { shape, across, count });
                    }
                }
            }
        }
        best
    }

    fn positions(&self) -> usize {
        1 << self.shape.iter().sum::<u32>()
    }

    /// Whether the positions of `rows` fill at least half of the boxes.
    fn filled(&self, rows: usize) -> bool {
        2 * rows >= self.count * self.positions()
    }

    /// A tile of as many channels over a box, innermost axis first.
    fn tile(&self, channels: usize) -> [usize; 5] {
        let [z, y, x, samples] = self.shape.map(|bits| 1 << bits);
        [channels, x, y, z, samples]
    }
}

/// A field as the copy engine reads it: blades whose channels fill whole lines, or one blade of the channels of all.
struct Operand {
    array: Array,
    blades: usize,
    channels: usize,
    extents: [usize; AXES],
    batch: usize,
}

impl Operand {
    /// The field `[blades, batch, *space, channels]`, with the blades beside the channels if that makes lines whole.
    fn new(
        array: &Array,
        [blades, channels]: [usize; 2],
        extents: [usize; AXES],
        batch: usize,
    ) -> Result<Self> {
        let whole = (channels * array.dtype().size()).is_multiple_of(LINE);
        if whole || blades == 1 {
            return Ok(Self { array: array.clone(), blades, channels, extents, batch });
        }
        let rows = batch * extents.iter().product::<usize>();
        let array = array.reshape([blades, rows, channels])?.permute(&[1, 0, 2])?.contiguous()?;
        Ok(Self { array, blades: 1, channels: blades * channels, extents, batch })
    }

    fn describe(
        &self,
        operation: &'static str,
        device: &CudaDevice,
        element: u32,
        boxes: &Boxes,
    ) -> Result<[u64; 16]> {
        let size = self.array.dtype().size();
        let [z, y, x] = self.extents;
        let strides = [self.channels, x * self.channels, y * x * self.channels, z * y * x * self.channels];
        let sizes = [self.channels, x, y, z, self.batch * self.blades];
        let tile = boxes.tile(LINE / size);
        describe(device, operation, (element, size), self.array.cuda_address(), &sizes, &strides, &tile)
    }
}

/// The kernels' view of a convolution over these boxes.
fn fields(gather: &Gather, boxes: &Boxes, channels: usize, out_channels: usize) -> Fields {
    let three = |sizes: [usize; AXES]| sizes.map(|size| size as i32);
    let (before, dilation) = (three(gather.before), three(gather.dilation));
    let (first, pace) = match gather.adjoint {
        false => (before.map(|before| -before), dilation),
        true => (before, dilation.map(|dilation| -dilation)),
    };
    Fields {
        shape: boxes.shape.map(|bits| bits as i32),
        across: three(boxes.across),
        extents: three(gather.target_extents),
        taps: three(gather.taps),
        first,
        pace,
        samples: gather.sizes.batch as i32,
        channels: channels as i32,
        out_channels: out_channels as i32,
        terms: (gather.source[0] * gather.source[1]) as i32,
        to_alignment: [0; 9],
    }
}

/// What every problem must have: a stride of 1, one group, channels in whole packs of 16 bytes, sums and results of some size.
fn serves(device: &CudaDevice, gather: &Gather, dtype: DType, arrays: &[&Array]) -> bool {
    // Fewer channels leave most of a tile empty.
    const LEAST: usize = 64;
    let pack = 16 / dtype.size();
    let [source, target] = [gather.source, gather.target];
    device.has_warpgroups()
        && dtype != DType::F64
        && gather.sizes.groups == 1
        && gather.stride == [1; AXES]
        && source[1].is_multiple_of(pack)
        && target[1].is_multiple_of(pack)
        && target[0] * target[1] >= LEAST
        && source[0] * source[1] * dtype.size() >= LINE
        && arrays.iter().all(|array| array.cuda_address().is_multiple_of(16))
}

/// The kernel's tile, shared memory, and the type as which the copy engine reads f32: rounded to TF32, unless products are to be exact.
struct Engine {
    tile: Tile,
    shared: usize,
    element: u32,
    exact: bool,
}

impl Engine {
    /// The engine whose tiles have 256 columns, or 128 if they are to be narrow or products are to be exact.
    fn of(dtype: DType, narrow: bool) -> Self {
        let exact = dtype == DType::F32 && Compute::current() != Compute::Tf32;
        let element =
            if dtype == DType::F32 && !exact { tensor_map::TFLOAT32 } else { product::element(dtype) };
        let (tile, shared) = match Tile::ALL[if narrow { 2 } else { 1 }] {
            _ if exact => (Tile::EXACT, Tile::exact_shared_bytes()),
            tile => (tile, tile.shared_bytes()),
        };
        Self { tile, shared, element, exact }
    }

    fn kernel(&self, names: [&'static str; 2], dtype: DType) -> Kernel {
        Kernel::new(names[usize::from(self.exact)], dtype)
    }

    fn grid(&self, device: &CudaDevice, units: usize) -> Grid {
        let blocks = units.min(device.info().multiprocessors as usize);
        Grid::blocks(blocks, Tile::THREADS).shared(self.shared)
    }
}

/// Computes the target of `source` and the kernel `w` `[J, O, I, *taps, C]` into `out`, if these kernels serve. Returns whether they did.
pub(super) fn gathered(
    operation: &'static str,
    device: &CudaDevice,
    gather: &Gather,
    [source, w]: [&Array; 2],
    out: &Array,
) -> Result<bool> {
    let (dtype, batch) = (source.dtype(), gather.sizes.batch);
    if !serves(device, gather, dtype, &[source, out]) {
        return Ok(false);
    }
    let engine = Engine::of(dtype, false);
    let (rows, size) = (gather.target[0] * gather.target[1], dtype.size());
    let Some(boxes) = Boxes::new(gather.target_extents, batch, engine.tile.columns, 1) else {
        return Ok(false);
    };
    let units = rows.div_ceil(engine.tile.rows) * boxes.count;
    // Fewer tiles than an eighth of the multiprocessors: smaller ones occupy more of them.
    if !boxes.filled(gather.rows()) || 8 * units < device.info().multiprocessors as usize {
        return Ok(false);
    }
    let source = Operand::new(source, gather.source, gather.source_extents, batch)?;
    let w = gather.by_tap(w)?;
    let fields = fields(gather, &boxes, source.channels, gather.target[1]);
    let (terms, depth) = (fields.terms as usize, LINE / size);
    let per_tap = source.blades * source.channels.div_ceil(depth);
    let w_map = describe(
        device,
        operation,
        (engine.element, size),
        w.cuda_address(),
        &[terms, rows, gather.sizes.taps],
        &[gather.sizes.taps * terms, terms],
        &[depth, engine.tile.rows, 1],
    )?;
    let problem = Problem {
        tiles: product::Problem {
            r: w_map,
            s: source.describe(operation, device, engine.element, &boxes)?,
            c: out.cuda_address(),
            rows: rows as u64,
            columns: (boxes.count * engine.tile.columns) as u64,
            count: 1,
            steps: (gather.sizes.taps * per_tap) as i32,
            alpha: 1.0,
            ..Zeroable::zeroed()
        },
        fields,
    };
    let kernel = engine.kernel(["field_hopper_forward", "field_hopper_exact_forward"], dtype);
    device.launch(operation, kernel, engine.grid(device, units), Args::new().large(&problem))?;
    Ok(true)
}

/// The kernel's gradient for the fields `source` and `target`, of this shape, if these kernels serve.
pub(super) fn gradient(
    operation: &'static str,
    device: &CudaDevice,
    gather: &Gather,
    [source, target]: [&Array; 2],
    shape: &Shape,
) -> Result<Option<Array>> {
    let dtype = source.dtype();
    if !serves(device, gather, dtype, &[source, target]) {
        return Ok(None);
    }
    let (size, taps, batch) = (dtype.size(), gather.sizes.taps, gather.sizes.batch);
    let [out_channels, terms] = [gather.target, gather.source].map(|[blades, channels]| blades * channels);
    // Instructions in f32 take their second operand along k alone: the result is turned, and the target transposed.
    let turned = size == 4;
    let engine = Engine::of(dtype, turned);
    let (rows, columns) = if turned { (taps * terms, out_channels) } else { (out_channels, taps * terms) };
    // Pieces of a tile are of one tap, and tiles mostly filled.
    let pieces = terms.is_multiple_of(LINE / size)
        && 2 * rows >= engine.tile.rows
        && 2 * columns >= engine.tile.columns;
    // The transposed target has its positions innermost: the copy engine takes axes of whole packs, and swizzles whole lines.
    let packs = !turned || gather.target_extents[2].is_multiple_of(4);
    let width = if turned { LINE / size } else { 1 };
    let boxes = Boxes::new(gather.target_extents, batch, LINE / size, width);
    let Some(boxes) = boxes.filter(|boxes| pieces && packs && boxes.filled(gather.rows())) else {
        return Ok(None);
    };
    let source = Operand::new(source, gather.source, gather.source_extents, batch)?;
    let source_map = source.describe(operation, device, engine.element, &boxes)?;
    let (target_map, per_blade, _alive) = if turned {
        let positions = gather.rows();
        let dims = [gather.target[0], positions, gather.target[1]];
        let transposed = target.reshape(dims)?.permute(&[0, 2, 1])?.contiguous()?;
        let [z, y, x] = gather.target_extents;
        let [_, width, height, depth, samples] = boxes.tile(1);
        let map = describe(
            device,
            operation,
            (engine.element, size),
            transposed.cuda_address(),
            &[x, y, z, batch, out_channels],
            &[x, y * x, z * y * x, positions],
            &[width, height, depth, samples, engine.tile.columns],
        )?;
        (map, out_channels, transposed)
    } else {
        let target = Operand::new(target, gather.target, gather.target_extents, batch)?;
        (target.describe(operation, device, engine.element, &boxes)?, target.channels, target.array)
    };
    let fields = fields(gather, &boxes, source.channels, per_blade);
    let (r, s) = if turned { (source_map, target_map) } else { (target_map, source_map) };
    let sms = device.info().multiprocessors as usize;
    let steps = boxes.count;
    let plan = plan::planned(&[steps], (rows, columns), true, sms, Some(engine.tile));
    let stretches = plan.parts.as_ref().map(|parts| parts[1] as usize);
    let out = Array::for_kernel(operation, [rows, columns], dtype, device)?;
    let sums = match stretches {
        Some(count) => Array::for_kernel(operation, [count, rows, columns], DType::F32, device)?,
        None => out.clone(),
    };
    let sum_size = sums.dtype().size();
    let out_map = describe(
        device,
        operation,
        (product::element(sums.dtype()), sum_size),
        sums.cuda_address(),
        &[columns, rows, stretches.unwrap_or(1)],
        &[columns, rows * columns],
        &[LINE / sum_size, 64, 1],
    )?;
    let problem = Problem {
        tiles: product::Problem {
            r,
            s,
            out: out_map,
            c: sums.cuda_address(),
            rows: rows as u64,
            columns: columns as u64,
            c_stride: (rows * columns) as u64,
            c_row: columns as u64,
            count: 1,
            steps: steps as i32,
            share: plan.share as i32,
            boxes: 1,
            alpha: 1.0,
            split: i32::from(stretches.is_some()),
            list: plan.list(&[steps], false),
            ..Zeroable::zeroed()
        },
        fields,
    };
    let units =
        rows.div_ceil(engine.tile.rows) * columns.div_ceil(engine.tile.columns) * stretches.unwrap_or(1);
    let kernel = engine.kernel(["field_hopper_gradient", "field_hopper_exact_gradient"], dtype);
    device.launch(operation, kernel, engine.grid(device, units), Args::new().large(&problem))?;
    if stretches.is_some() {
        product::sum_all(device, operation, &sums, &out)?;
    }
    let ([j, o], [i, c]) = (gather.target, gather.source);
    // To [J, O, I, taps, C].
    let parts = match turned {
        true => out.reshape([taps, i, c, j, o])?.permute(&[3, 4, 1, 0, 2])?,
        false => out.reshape([j, o, taps, i, c])?.permute(&[0, 1, 3, 2, 4])?,
    };
    Ok(Some(parts.contiguous()?.reshape(shape)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_laid_out_as_in_the_kernel() {
        assert_eq!(size_of::<Problem>(), 832);
        assert_eq!(std::mem::offset_of!(Problem, fields), 704);
        assert_eq!(std::mem::offset_of!(Fields, samples), 76);
    }

    #[test]
    fn boxes_cover_all_positions_with_few_of_them() {
        for (extents, batch, positions, width, shape, count) in [
            ([1, 128, 128], 16, 256, 1, [0, 1, 7, 0], 1024),
            ([1, 128, 128], 16, 64, 1, [0, 0, 6, 0], 4096),
            ([32, 32, 32], 4, 256, 1, [0, 3, 5, 0], 512),
            ([1, 1, 300], 2, 64, 1, [0, 0, 6, 0], 10),
            ([1, 1, 300], 2, 32, 1, [0, 0, 4, 1], 19),
            ([1, 1, 300], 2, 32, 32, [0, 0, 5, 0], 20),
            ([1, 4, 4], 32, 256, 1, [0, 2, 2, 4], 2),
            ([1, 4, 4], 3, 32, 1, [0, 2, 3, 0], 3),
        ] {
            let boxes = Boxes::new(extents, batch, positions, width).unwrap();
            assert_eq!((boxes.shape, boxes.count), (shape, count), "{extents:?} {batch}");
            assert_eq!(boxes.positions(), positions);
            let covers = extents.iter().zip(boxes.across).zip(boxes.shape);
            assert!(covers.into_iter().all(|((extent, across), bits)| across << bits >= *extent));
        }
        assert!(Boxes::new([1, 128, 128], 16, 256, 1).unwrap().filled(16 * 128 * 128));
        assert!(!Boxes::new([1, 4, 4], 3, 256, 1).unwrap().filled(48));
    }
}
