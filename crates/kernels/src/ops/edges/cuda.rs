//! Messages on graphs, on CUDA.

use super::Rows;
use crate::{
    Array, CudaDevice, Index, Result,
    cuda::{Args, Grid, Kernel, strided::divisor},
    index::Resident,
};

/// Edges per node, on average, from which a block of threads sums those of a node together.
const LONG: usize = 32;

/// A list of indices, and where it is on the device.
pub(super) type OnDevice<'a> = (&'a Index, &'a Resident);

/// Of contiguous arguments; `shape` is that of the result.
pub(super) fn difference(
    device: &CudaDevice,
    operation: &'static str,
    (h, attributes): (&Array, Option<&Array>),
    [(receivers, to), (_, from)]: [OnDevice<'_>; 2],
    shape: &[usize],
) -> Result<Array> {
    let out = Array::for_kernel(operation, shape, h.dtype(), device)?;
    let elements = out.elements();
    if elements > 0 {
        let args = Args::new()
            .array(h)
            .optional(attributes)
            .pointer(to.values())
            .pointer(from.values())
            .array(&out)
            .size(elements)
            .value(&divisor(receivers.len()))
            .value(&divisor(shape[shape.len() - 1]))
            .size(receivers.bound())
            .size(h.dims()[h.rank() - 1]);
        let kernel = Kernel::new("edge_difference", h.dtype());
        device.launch(operation, kernel, Grid::linear(elements), args)?;
    }
    Ok(out)
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
    [(receivers, to), (_, from)]: [OnDevice<'_>; 2],
    shape: &[usize],
) -> Result<Array> {
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
    (h, messages): (&Array, &Array),
    (receivers, to): OnDevice<'_>,
    shape: &[usize],
) -> Result<Array> {
    let out = Array::for_kernel(operation, shape, h.dtype(), device)?;
    let (elements, nodes, edges) = (out.elements(), receivers.bound(), receivers.len());
    if elements == 0 {
        return Ok(out);
    }
    let width = shape[shape.len() - 1];
    let [starts, order] = to.groups();
    let args = Args::new().array(h).array(messages).pointer(starts).pointer(order).array(&out);
    let (name, grid, args) = if edges / nodes < LONG {
        let args = args.size(elements).value(&divisor(nodes)).value(&divisor(width));
        ("concat_segment_mean", Grid::linear(elements), args)
    } else {
        let rows = elements / width;
        ("concat_segment_mean_long", long(rows, width), args.size(rows / nodes).size(nodes).size(width))
    };
    let args = args.size(h.dims()[h.rank() - 1]).size(edges);
    device.launch(operation, Kernel::new(name, h.dtype()), grid, args)?;
    Ok(out)
}

/// `shape` is that of the result.
pub(super) fn spread(
    device: &CudaDevice,
    operation: &'static str,
    x: &Rows,
    (segments, lists): OnDevice<'_>,
    shape: &[usize],
) -> Result<Array> {
    let dtype = x.array.dtype();
    let out = Array::for_kernel(operation, shape, dtype, device)?;
    let elements = out.elements();
    if elements > 0 {
        let [starts, _] = lists.groups();
        let args = Args::new()
            .array(&x.array)
            .pointer(lists.values())
            .pointer(starts)
            .array(&out)
            .size(elements)
            .value(&divisor(segments.len()))
            .value(&divisor(x.size))
            .size(segments.bound())
            .size(x.pitch);
        device.launch(operation, Kernel::new("segment_spread", dtype), Grid::linear(elements), args)?;
    }
    Ok(out)
}
