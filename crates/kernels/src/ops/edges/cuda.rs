//! Messages on graphs, on CUDA.

use super::Rows;
use crate::{
    Array, CudaDevice, Index, Result,
    array::strided::divisor,
    cuda::{Args, Grid, Kernel},
    index::Resident,
    ops::clifford::mv_block,
};

/// Edges per node, on average, from which a block of threads sums those of a node together.
const LONG: usize = 32;

/// Neighbours that a thread of a wide kernel takes.
const WIDE: usize = 4;

/// Bytes that the copy engine wants rows to begin at a multiple of.
const ALIGNMENT: usize = 16;

/// How many neighbours threads take: [`WIDE`] where `sizes`, those of rows and the distances between them, and the addresses are
/// multiples of that.
fn pack(sizes: &[usize], arrays: &[&Array]) -> usize {
    let aligned = |array: &&Array| array.cuda_address().is_multiple_of((WIDE * array.dtype().size()) as u64);
    if sizes.iter().all(|size| size.is_multiple_of(WIDE)) && arrays.iter().all(aligned) { WIDE } else { 1 }
}

/// The kernel for one or for [`WIDE`] neighbours.
fn kernel([one, wide]: [&'static str; 2], pack: usize, of: &Array) -> Kernel {
    Kernel::new(if pack == WIDE { wide } else { one }, of.dtype())
}

/// The ends of edges: the receivers, where they are on the device, and where the senders are.
pub(super) struct Ends<'a> {
    pub receivers: &'a Index,
    pub to: &'a Resident,
    pub from: &'a Resident,
}

/// Of contiguous arguments; `shape` is that of the result, whose rows may be columns of wider rows.
pub(super) fn difference(
    device: &CudaDevice,
    operation: &'static str,
    h: &Array,
    attributes: Option<&Array>,
    ends: &Ends<'_>,
    shape: &[usize],
) -> Result<Array> {
    let Ends { receivers, to, from } = ends;
    let (last, features) = (shape.len() - 1, h.dims()[h.rank() - 1]);
    let width = shape[last];
    // For the first map of a block of that many features.
    let is_aligned = mv_block::wants_aligned_rows(device, features, h.dtype());
    let pitch = if is_aligned { width.next_multiple_of(ALIGNMENT / h.dtype().size()) } else { width };
    let mut padded = shape.to_vec();
    padded[last] = pitch;
    let out = Array::for_kernel(operation, padded, h.dtype(), device)?;
    if out.elements() > 0 {
        let (edges, own) = (receivers.len(), width - features);
        let pack = pack(&[features], &[h]);
        let packs = features / pack + own.div_ceil(pack);
        let units = out.elements() / pitch * packs;
        let args = Args::new()
            .array(h)
            .optional(attributes)
            .pointer(to.values())
            .pointer(from.values())
            .array(&out)
            .size(units)
            .value(&divisor(edges))
            .value(&divisor(packs))
            .size(receivers.bound())
            .size(features)
            .size(own)
            .size(pitch);
        let kernel = kernel(["edge_difference", "edge_difference_wide"], pack, h);
        device.launch(operation, kernel, Grid::linear(units), args)?;
    }
    if pitch > width { out.slice(last, 0..width) } else { Ok(out) }
}

/// A grid of blocks that each sum the edges of a node together, for `rows` rows of `size` results.
fn long(rows: usize, size: usize) -> Grid {
    Grid::new([(rows * size.div_ceil(32)).min(1 << 16), 1, 1], [32, 8, 1])
}

/// `shape` is that of the result.
pub(super) fn net_inflow(
    device: &CudaDevice,
    operation: &'static str,
    x: &Rows,
    ends: &Ends<'_>,
    shape: &[usize],
) -> Result<Array> {
    let Ends { receivers, to, from } = ends;
    let dtype = x.array.dtype();
    let out = Array::for_kernel(operation, shape, dtype, device)?;
    let (elements, nodes, edges) = (out.elements(), receivers.bound(), receivers.len());
    if elements == 0 {
        return Ok(out);
    }
    let ([in_starts, in_order], [out_starts, out_order]) = (to.groups(), from.groups());
    let args = Args::new()
        .array(&x.array)
        .pointer(in_starts)
        .pointer(in_order)
        .pointer(out_starts)
        .pointer(out_order)
        .array(&out);
    let (name, grid, args) = if edges / nodes < LONG {
        let args = args.size(elements).value(&divisor(nodes)).value(&divisor(x.size));
        ("net_inflow", Grid::linear(elements), args)
    } else {
        let rows = elements / x.size;
        ("net_inflow_long", long(rows, x.size), args.size(rows / nodes).size(nodes).size(x.size))
    };
    device.launch(operation, Kernel::new(name, dtype), grid, args.size(edges).size(x.pitch))?;
    Ok(out)
}

/// Of contiguous arguments; `shape` is that of the result.
pub(super) fn concat_mean(
    device: &CudaDevice,
    operation: &'static str,
    h: &Array,
    messages: &Array,
    receivers: &Index,
    to: &Resident,
    shape: &[usize],
) -> Result<Array> {
    let out = Array::for_kernel(operation, shape, h.dtype(), device)?;
    let (elements, nodes, edges) = (out.elements(), receivers.bound(), receivers.len());
    if elements == 0 {
        return Ok(out);
    }
    let (features, width) = (h.dims()[h.rank() - 1], shape[shape.len() - 1]);
    let [starts, order] = to.groups();
    let args = Args::new().array(h).array(messages).pointer(starts).pointer(order).array(&out);
    let (kernel, grid, args) = if edges / nodes < LONG {
        let pack = pack(&[features, width], &[h, messages, &out]);
        let units = elements / pack;
        let args = args.size(units).value(&divisor(nodes)).value(&divisor(width / pack));
        (kernel(["concat_segment_mean", "concat_segment_mean_wide"], pack, h), Grid::linear(units), args)
    } else {
        let rows = elements / width;
        let kernel = Kernel::new("concat_segment_mean_long", h.dtype());
        (kernel, long(rows, width), args.size(rows / nodes).size(nodes).size(width))
    };
    device.launch(operation, kernel, grid, args.size(features).size(edges))?;
    Ok(out)
}

/// `shape` is that of the result.
pub(super) fn spread(
    device: &CudaDevice,
    operation: &'static str,
    x: &Rows,
    segments: &Index,
    lists: &Resident,
    shape: &[usize],
) -> Result<Array> {
    let dtype = x.array.dtype();
    let out = Array::for_kernel(operation, shape, dtype, device)?;
    if out.elements() > 0 {
        let [starts, _] = lists.groups();
        let pack = pack(&[x.size, x.pitch], &[&x.array, &out]);
        let units = out.elements() / pack;
        let args = Args::new()
            .array(&x.array)
            .pointer(lists.values())
            .pointer(starts)
            .array(&out)
            .size(units)
            .value(&divisor(segments.len()))
            .value(&divisor(x.size / pack))
            .size(segments.bound())
            .size(x.pitch);
        let kernel = kernel(["segment_spread", "segment_spread_wide"], pack, &out);
        device.launch(operation, kernel, Grid::linear(units), args)?;
    }
    Ok(out)
}
