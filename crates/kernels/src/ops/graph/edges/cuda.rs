//! Messages on graphs, on CUDA.

use super::{Rows, added};
use crate::{
    Array, CudaDevice, DType, Index, Result,
    array::{index::Resident, strided::divisor},
    csrc::edges::{self, COLUMNS, LONG_EDGES, LONG_RESULTS, NODES, STAGED},
    ops::clifford::block::mv_block,
    runtime::cuda::{
        Args, Grid, Kernel,
        fuse::{Function, Groups},
    },
};
use gradewise_core::{Error as CoreError, Shape};

/// Edges per node, on average, from which a block of threads sums those of a node together.
const LONG: usize = 32;

/// Bytes that the copy engine wants rows to begin at a multiple of, and of the widest access of a thread.
const ALIGNMENT: usize = 16;

/// Threads of a multiprocessor that keep it busy, of kernels that copy and of those that sum, which read the ends of longer chains of
/// loads. A thread takes several blocks of the leading axes where there are more.
const COPYING: usize = 512;
const SUMMING: usize = 1024;

/// The most blocks of the leading axes that a thread takes.
const DEPTH: usize = 8;

/// The names of an ordinary kernel and of a wide one.
type Names = [&'static str; 2];

/// The kernels of differences beside attributes of the same dtype and beside attributes in f32: the ordinary and the wide one, and the one
/// whose results go through shared memory.
const LIKE_FEATURES: (Names, &str) = (["edge_difference", "edge_difference_wide"], "edge_difference_rows");
const WITH_F32: (Names, &str) =
    (["edge_difference_with_f32", "edge_difference_wide_with_f32"], "edge_difference_rows_with_f32");

/// How many neighbours threads take, by a wide kernel or by an ordinary one.
#[derive(Clone, Copy, PartialEq)]
struct Pack(usize);

impl Pack {
    /// Neighbours of a wide kernel.
    fn wide(dtype: DType) -> Self {
        Self(edges::wide(dtype.size()))
    }

    /// Those of a kernel of means.
    fn of_means(dtype: DType) -> Self {
        Self(edges::wide_of_means(dtype.size()))
    }

    /// Whether `sizes`, those of rows and the distances between them, and the addresses are multiples of so many elements.
    fn fits(self, sizes: &[usize], arrays: &[&Array]) -> bool {
        let aligned =
            |array: &&Array| array.cuda_address().is_multiple_of((self.0 * array.dtype().size()) as u64);
        sizes.iter().all(|size| size.is_multiple_of(self.0)) && arrays.iter().all(aligned)
    }

    /// So many where they fit, else one.
    fn or_one(self, sizes: &[usize], arrays: &[&Array]) -> Self {
        if self.fits(sizes, arrays) { self } else { Self(1) }
    }

    /// The kernel for one or for several neighbours.
    fn kernel(self, [one, wide]: Names, of: &Array) -> Kernel {
        Kernel::new(if self.0 > 1 { wide } else { one }, of.dtype())
    }
}

/// How the blocks of the leading axes are shared out: `groups` of `depth` blocks, each group a thread's for every unit of a block.
struct Share {
    outer: usize,
    depth: usize,
    groups: usize,
}

impl Share {
    /// Of `outer` blocks of `threads` threads each, where `busy` threads keep a multiprocessor busy.
    fn of(device: &CudaDevice, outer: usize, threads: usize, busy: usize) -> Self {
        let enough = busy * device.info().multiprocessors.max(1) as usize;
        let depth = ((outer * threads + enough / 2) / enough).clamp(1, DEPTH.min(outer.max(1)));
        let groups = outer.div_ceil(depth);
        Self { outer, depth: outer.div_ceil(groups.max(1)), groups }
    }

    fn args<'a>(&self, args: Args<'a>) -> Args<'a> {
        args.size(self.outer).size(self.depth)
    }
}

/// Refuses rows and leading axes that a kernel does not count in 32 bits.
fn require_counts(operation: &'static str, outer: usize, width: usize) -> Result<()> {
    if u32::try_from(outer.max(width)).is_ok() {
        return Ok(());
    }
    Err(CoreError::Shape {
        operation,
        argument: "output",
        actual: Shape::from([outer, width]),
        expected: format!("[at most {max}, at most {max}]", max = u32::MAX),
        reason: "the leading axes together and the features of a row are counted in 32 bits".to_owned(),
    }
    .into())
}

/// The ends of edges: the receivers, where they are on the device, and where the senders are.
pub(super) struct Ends<'a> {
    pub receivers: &'a Index,
    pub senders: &'a Index,
    pub to: &'a Resident,
    pub from: &'a Resident,
}

/// Of contiguous arguments, the attributes like `h` or in f32 beside 16 bits; `shape` is that of the result, whose rows may be columns of
/// wider rows.
pub(super) fn difference(
    device: &CudaDevice,
    operation: &'static str,
    h: &Array,
    attributes: Option<&Array>,
    ends: &Ends<'_>,
    shape: &[usize],
) -> Result<Array> {
    let &Ends { receivers, senders, to, from } = ends;
    let (last, features, dtype) = (shape.len() - 1, h.dims()[h.rank() - 1], h.dtype());
    let width = shape[last];
    // For the first map of a block of that many features.
    let is_aligned = mv_block::wants_aligned_rows(device, features, dtype);
    let pitch = if is_aligned { width.next_multiple_of(ALIGNMENT / dtype.size()) } else { width };
    let mut padded = shape.to_vec();
    padded[last] = pitch;
    let out = Array::for_kernel(operation, padded, dtype, device)?;
    if out.elements() > 0 {
        let (edges, nodes, own) = (receivers.len(), receivers.bound(), width - features);
        let outer = out.elements() / pitch / edges;
        require_counts(operation, outer, pitch)?;
        let args = Args::new()
            .array(h)
            .optional(attributes)
            .pointer(to.values())
            .pointer(from.values())
            .size(nodes)
            .size(features)
            .size(own)
            .size(nodes * features)
            .size(edges * own)
            .array(&out);
        let pack = Pack::wide(dtype).or_one(&[features, pitch], &[h]);
        let is_mixed = attributes.is_some_and(|attributes| attributes.dtype() != dtype);
        let (kernels, by_rows) = if is_mixed { WITH_F32 } else { LIKE_FEATURES };
        // Threads of a row whose results go through shared memory, and the rows of a block.
        let packs = features / COLUMNS + (pitch - features).div_ceil(COLUMNS);
        let rows = STAGED / COLUMNS / packs.max(1) / (ALIGNMENT / dtype.size()) * (ALIGNMENT / dtype.size());
        let in_rows = rows > 0
            && Pack(COLUMNS).fits(&[features], &[h])
            && (edges * pitch * dtype.size()).is_multiple_of(ALIGNMENT);
        if pack == Pack(1) && in_rows {
            let (tiles, threads) = (edges.div_ceil(rows), Grid::THREADS);
            let share = Share::of(device, outer, tiles * threads as usize, COPYING);
            let units = share.groups * tiles;
            let args = share.args(args.size(units).value(&divisor(tiles)).value(&divisor(packs)));
            let args = args.size(rows).size(edges).size(pitch).size(edges * pitch);
            let grid = Grid::blocks(units.min(1 << 16), threads);
            // SAFETY: 1: `require_ends`, `require_rows` and `require_shape` where the operator is entered compared the arrays with the
            // lists; rows of x are contiguous, and counts fit 32 bits. 2: `out` is new. 3: 256 threads; `rows` rows of results fit the
            // kernel's static shared memory of `STAGED` elements. 4: the lists are borrowed.
            unsafe { device.launch(operation, Kernel::new(by_rows, dtype), grid, args)? };
        } else {
            let packs = pitch / pack.0;
            let share = Share::of(device, outer, edges * packs, COPYING);
            let units = share.groups * edges * packs;
            let args = share.args(args.size(units).value(&divisor(edges)).value(&divisor(packs)));
            let describe = || {
                let parts = receivers.rely_on_parts_with(senders);
                let (to, from) = (to.values(), from.values());
                let function = Function::Difference { to, from, parts, edges, nodes, features };
                (pitch == features).then(|| out.described(function, &[h])).flatten()
            };
            // SAFETY: 1: as above; several neighbours are taken only where all rows and addresses allow it. 2: `out` is new. 3: linear, the
            // kernel strides. 4: the lists are borrowed.
            unsafe {
                device.launch_value(
                    operation,
                    pack.kernel(kernels, h),
                    Grid::linear(units),
                    args.size(edges * pitch),
                    describe,
                )?
            };
        }
    }
    if pitch > width { out.slice(last, 0..width) } else { Ok(out) }
}

/// A grid of blocks that each sum the edges of a node together, for `rows` rows of `size` results.
fn long(rows: usize, size: usize) -> Grid {
    let blocks = (rows * size.div_ceil(LONG_RESULTS)).min(1 << 16);
    Grid::new([blocks, 1, 1], [LONG_RESULTS as u32, LONG_EDGES as u32, 1])
}

/// `shape` is that of the result and of the `summands` that it is added to.
pub(super) fn net_inflow(
    device: &CudaDevice,
    operation: &'static str,
    x: &Rows,
    ends: &Ends<'_>,
    shape: &[usize],
    summands: &[&Array],
) -> Result<Array> {
    let &Ends { receivers, senders, to, from } = ends;
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
    let outer = elements / x.size / nodes;
    if edges / nodes >= LONG {
        let kernel = Kernel::new("net_inflow_long", dtype);
        let args = args.size(outer).size(nodes).size(x.size).size(edges).size(x.pitch);
        // SAFETY: 1: `require_ends`, `require_rows` and `require_shape` where the operator is entered compared the arrays with the lists; x
        // has rows of `size` elements, `pitch` apart. 2: `out` is new. 3: `LONG_RESULTS` columns by `LONG_EDGES` edges. 4: the lists are borrowed.
        unsafe { device.launch(operation, kernel, long(outer * nodes, x.size), args)? };
        return added(summands, out);
    }
    require_counts(operation, outer, x.size)?;
    // Apart, sum and additions are computed with what waits; together, by one kernel of their own.
    let waits = x.array.waits() || summands.iter().any(|summand| summand.waits());
    let mut in_place: Vec<Rows> = summands.iter().map_while(|summand| Rows::in_place(summand)).collect();
    let wide = |summands: &[Rows]| {
        let read = || std::iter::once(x).chain(summands);
        let sizes: Vec<usize> = read().flat_map(|rows| [rows.size, rows.pitch]).collect();
        let arrays: Vec<&Array> = read().map(|rows| &rows.array).chain([&out]).collect();
        Pack::wide(dtype).or_one(&sizes, &arrays)
    };
    let share = |pack: Pack| Share::of(device, outer, nodes * x.size / pack.0, SUMMING);
    let mut pack = wide(&in_place);
    // Sums of 16 bits, one by one, of many nodes are limited by their instructions and registers: adding by itself is faster.
    let is_slower = dtype.size() == 2 && pack == Pack(1) && share(pack).depth > 1;
    if in_place.len() < summands.len() || summands.len() > 2 || is_slower || waits {
        in_place.clear();
        pack = wide(&[]);
    }
    let (packs, share) = (x.size / pack.0, share(pack));
    let units = share.groups * nodes * packs;
    let args = share.args(args.size(units).value(&divisor(nodes)).value(&divisor(packs)));
    let args = args.size(edges).size(x.pitch).size(edges * x.pitch).size(nodes * x.size);
    let [first, rest @ ..] = &in_place[..] else {
        let kernel = pack.kernel(["net_inflow", "net_inflow_wide"], &out);
        let describe = || {
            let parts = receivers.rely_on_parts_with(senders);
            let [arriving, leaving] =
                [to, from].map(|lists| lists.groups()).map(|[starts, order]| Groups { starts, order, parts });
            let function = Function::NetInflow { arriving, leaving, nodes, edges, features: x.size };
            let is_contiguous = x.pitch == x.size;
            is_contiguous.then(|| out.described(function, &[&x.array])).flatten()
        };
        // SAFETY: 1: as above, with counts that fit 32 bits and packs that all rows and addresses allow. 2: `out` is new. 3: linear, the
        // kernel strides. 4: the lists are borrowed.
        unsafe { device.launch_value(operation, kernel, Grid::linear(units), args, describe)? };
        return added(summands, out);
    };
    // Where there is one, it is read twice and added once.
    let args = [first, rest.first().unwrap_or(first)].into_iter().fold(args, |args, summand| {
        args.array(&summand.array).size(summand.pitch).size(nodes * summand.pitch)
    });
    let kernel = pack.kernel(["net_inflow_onto", "net_inflow_onto_wide"], &out);
    // SAFETY: 1: as without summands; these were checked to have the shape and dtype of the result, and to lie in rows of such pitches. 2:
    // `out` is new. 3: linear, the kernel strides. 4: the lists are borrowed.
    unsafe { device.launch(operation, kernel, Grid::linear(units), args.int(i32::from(!rest.is_empty())))? };
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
    let (outer, dtype) = (elements / width / nodes, h.dtype());
    let [starts, order] = to.groups();
    let args = Args::new().array(h).array(messages).pointer(starts).pointer(order).array(&out);
    if edges / nodes >= LONG {
        let kernel = Kernel::new("concat_segment_mean_long", dtype);
        let args = args.size(outer).size(nodes).size(width).size(features).size(edges);
        // SAFETY: 1: `require_ends`, `require_rows` and `require_shape` where the operator is entered compared the arrays with the lists,
        // which are contiguous. 2: `out` is new. 3: `LONG_RESULTS` columns by `LONG_EDGES` edges. 4: the list is borrowed.
        unsafe { device.launch(operation, kernel, long(outer * nodes, width), args)? };
        return Ok(out);
    }
    require_counts(operation, outer, NODES * width)?;
    let received = width - features;
    let pack = Pack::of_means(dtype).or_one(&[features, received], &[h, messages, &out]);
    let (tiles, tile) = (nodes.div_ceil(NODES), NODES * (width / pack.0));
    let share = Share::of(device, outer, tiles * tile, SUMMING);
    let units = share.groups * tiles * tile;
    let args = args.size(units).value(&divisor(tiles)).value(&divisor(tile));
    let args = share.args(args.value(&divisor(features / pack.0)).value(&divisor(received / pack.0)));
    let args = args.size(nodes).size(edges).size(nodes * features).size(edges * received).size(nodes * width);
    let kernel = pack.kernel(["concat_segment_mean", "concat_segment_mean_wide"], h);
    // SAFETY: 1: as above, with counts that fit 32 bits and packs that all rows and addresses allow. 2: `out` is new. 3: linear, in whole
    // tiles; the kernel strides. 4: the list is borrowed.
    unsafe { device.launch(operation, kernel, Grid::linear(units), args)? };
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
        let (positions, bound) = (segments.len(), segments.bound());
        let outer = out.elements() / x.size / positions;
        require_counts(operation, outer, x.size)?;
        let pack = Pack::wide(dtype).or_one(&[x.size, x.pitch], &[&x.array, &out]);
        let packs = x.size / pack.0;
        let share = Share::of(device, outer, positions * packs, COPYING);
        let units = share.groups * positions * packs;
        let args = Args::new()
            .array(&x.array)
            .pointer(lists.values())
            .pointer(starts)
            .array(&out)
            .size(units)
            .value(&divisor(positions))
            .value(&divisor(packs));
        let args = share.args(args).size(bound).size(x.pitch).size(bound * x.pitch).size(positions * x.size);
        let kernel = pack.kernel(["segment_spread", "segment_spread_wide"], &out);
        // SAFETY: 1: `require_ends`, `require_rows` and `require_shape` where the operator is entered compared the arrays with the lists; x
        // has rows of `size` elements, `pitch` apart, and counts fit 32 bits. 2: `out` is new. 3: linear, the kernel strides. 4: the list
        // is borrowed.
        unsafe { device.launch(operation, kernel, Grid::linear(units), args)? };
    }
    Ok(out)
}
