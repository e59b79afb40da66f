//! Convolutions by the copy engine and the matrix instructions of compute capability 9.0, see csrc/fields/hopper.cuh: which problems they
//! serve, and how operands lie.

mod boxes;
mod engines;

pub(crate) use engines::shared_bytes_of_kernel;

use super::geometry::{AXES, Gather};
use crate::{
    Array, CudaDevice, DType, Result,
    ops::matmul::hopper::{self as product, LINE, describe, plan},
    runtime::cuda::Args,
};
use boxes::{Boxes, Operand};
use bytemuck::Zeroable;
use engines::Engine;
use gradewise_core::Shape;

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
    let sms = device.info().multiprocessors as usize;
    let Some((engine, boxes)) = Engine::forward(gather, dtype, sms) else {
        return Ok(false);
    };
    let (out_channels, size) = (gather.target[0] * gather.target[1], dtype.size());
    let source = Operand::new(source, gather.source, gather.source_extents, batch)?;
    let w = gather.by_tap(w)?;
    let fields = fields(gather, &boxes, source.channels, gather.target[1]);
    let (terms, depth) = (fields.terms as usize, LINE / size);
    let per_tap = source.blades * source.channels.div_ceil(depth);
    let element = engines::element(dtype);
    let source_map = source.describe(operation, device, element, &boxes)?;
    let w_map = describe(
        device,
        operation,
        (element, size),
        w.cuda_address(),
        &[terms, out_channels, gather.sizes.taps],
        &[gather.sizes.taps * terms, terms],
        &[depth, engine.channels_of_tile(), 1],
    )?;
    let positions = boxes.count * boxes.positions();
    let (r, s) = if engine.turned { (source_map, w_map) } else { (w_map, source_map) };
    let (rows, columns) = if engine.turned { (positions, out_channels) } else { (out_channels, positions) };
    let problem = Problem {
        tiles: product::Problem {
            r,
            s,
            c: out.cuda_address(),
            rows: rows as u64,
            columns: columns as u64,
            count: 1,
            steps: (gather.sizes.taps * per_tap) as i32,
            alpha: 1.0,
            ..Zeroable::zeroed()
        },
        fields,
    };
    let grid = engine.grid(device, engine.units(out_channels, boxes.count));
    // SAFETY: 1: sizes are those of the fields and the kernel, which the operator's entry compared with the geometry; `describe` tells them
    // to the copy engine, which fills up with zeros past them. 2: the caller's `out` is new. 3: the engine's kernel and grid belong
    // together. 4: `source` and `w` live until after the launch.
    unsafe { device.launch(operation, engine.kernel(dtype), grid, Args::new().large(&problem))? };
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
    // Instructions in f32 take their second operand, the target, along k alone: it is transposed.
    let along = size == 4;
    // The transposed target has its positions innermost: the copy engine takes axes of whole packs, and swizzles whole lines.
    let packs = !along || gather.target_extents[2].is_multiple_of(4);
    let width = if along { LINE / size } else { 1 };
    let boxes = Boxes::new(gather.target_extents, batch, LINE / size, width);
    // Pieces of a tile are of one tap: each tap has whole pieces, and what lies past the last channel arrives as zeros.
    let per_tap = terms.next_multiple_of(LINE / size);
    let Some(boxes) = boxes.filter(|boxes| packs && boxes.filled(gather.rows())) else {
        return Ok(None);
    };
    let sms = device.info().multiprocessors as usize;
    let steps = boxes.count;
    let candidates = Engine::gradients(dtype).iter().filter_map(|engine| {
        let (all_terms, turned) = (taps * per_tap, engine.turned);
        let sizes = if turned { [all_terms, out_channels] } else { [out_channels, all_terms] };
        let [rows, columns] = sizes;
        // Tiles mostly filled.
        let serves = 2 * rows >= engine.tile.rows && 2 * columns >= engine.tile.columns;
        let plan = || plan::planned(&[steps], (rows, columns), true, sms, Some(engine.tile));
        serves.then(|| (engine, sizes, plan()))
    });
    let Some((engine, [rows, columns], plan)) = candidates.min_by_key(|(.., plan)| plan.cycles) else {
        return Ok(None);
    };
    let element = engines::element(dtype);
    let source = Operand::new(source, gather.source, gather.source_extents, batch)?;
    let source_map = source.describe(operation, device, element, &boxes)?;
    let (target_map, per_blade, _alive) = if along {
        let positions = gather.rows();
        let dims = [gather.target[0], positions, gather.target[1]];
        let transposed = target.reshape(dims)?.permute(&[0, 2, 1])?.contiguous()?;
        let [z, y, x] = gather.target_extents;
        let [_, width, height, depth, samples] = boxes.tile(1);
        let map = describe(
            device,
            operation,
            (element, size),
            transposed.cuda_address(),
            &[x, y, z, batch, out_channels],
            &[x, y * x, z * y * x, positions],
            &[width, height, depth, samples, engine.tile.columns],
        )?;
        (map, out_channels, transposed)
    } else {
        let target = Operand::new(target, gather.target, gather.target_extents, batch)?;
        (target.describe(operation, device, element, &boxes)?, target.channels, target.array)
    };
    let fields = Fields { terms: per_tap as i32, ..fields(gather, &boxes, source.channels, per_blade) };
    let (r, s) = if engine.turned { (source_map, target_map) } else { (target_map, source_map) };
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
    // SAFETY: 1: as in `gathered`; `sums` has room for all stretches. 2: `sums` is new. 3: the engine's kernel and grid belong together. 4:
    // `source`, the target or its transpose (`_alive`) and `sums` live until after the launch.
    unsafe {
        device.launch(
            operation,
            engine.kernel(dtype),
            engine.grid(device, units),
            Args::new().large(&problem),
        )?
    };
    if stretches.is_some() {
        product::sum_all(device, operation, &sums, &out)?;
    }
    let ([j, o], [i, c]) = (gather.target, gather.source);
    // To [J, O, I, taps, C].
    let parts = match engine.turned {
        true => {
            let out = out.reshape([taps, per_tap, out_channels])?.slice(1, 0..terms)?;
            out.reshape([taps, i, c, j, o])?.permute(&[3, 4, 1, 0, 2])?
        }
        false => {
            let out = out.reshape([out_channels, taps, per_tap])?.slice(2, 0..terms)?;
            out.reshape([j, o, taps, i, c])?.permute(&[0, 1, 3, 2, 4])?
        }
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
}
