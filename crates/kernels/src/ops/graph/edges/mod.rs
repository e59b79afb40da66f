//! Messages on graphs: differences of nodes along edges, means over the edges that arrive at a node, and the transposes of both.
//!
//! Features of nodes are `[…, nodes, features]`, those of edges `[…, edges, features]`, with the same axes before. An edge goes from its
//! sender to its receiver; lists of both ends have the number of nodes as their bound. A node may send to itself, edges may occur twice,
//! nodes may be without edges.

mod cpu;
mod cuda;

use crate::{
    Array, Device, Element, Index, Result, array::layout::collapse, cpu::element::with_element,
    ops::pointwise::add_n,
};
use gradewise_core::{DType, Error as CoreError, Shape};

/// Refuses lists of ends that do not belong together or to `x`.
fn require_ends(
    operation: &'static str,
    receivers: &Index,
    senders: &Index,
    argument: &'static str,
    x: &Array,
) -> Result<()> {
    x.require_beside(receivers.device(), operation, "receivers")?;
    x.require_beside(senders.device(), operation, "senders")?;
    if senders.len() != receivers.len() {
        return Err(CoreError::Shape {
            operation,
            argument: "senders",
            actual: Shape::from([senders.len()]),
            expected: format!("[{}]", receivers.len()),
            reason: "one sender for each receiver".to_owned(),
        }
        .into());
    }
    if senders.bound() != receivers.bound() {
        return Err(CoreError::Shape {
            operation,
            argument,
            actual: x.shape().clone(),
            expected: format!("nodes below the bound {} of `senders`", senders.bound()),
            reason: format!(
                "the bound of `receivers` is {}; make both with the number of nodes",
                receivers.bound()
            ),
        }
        .into());
    }
    Ok(())
}

/// Refuses an array that is not `[…, rows, features]`; the number of rows is `what`.
fn require_rows(
    operation: &'static str,
    argument: &'static str,
    x: &Array,
    rows: usize,
    what: &str,
) -> Result<()> {
    if matches!(x.dims(), [.., found, _] if *found == rows) {
        return Ok(());
    }
    Err(CoreError::Shape {
        operation,
        argument,
        actual: x.shape().clone(),
        expected: format!("[…, {rows}, features]"),
        reason: format!("the axis before the last has the size of {what}"),
    }
    .into())
}

/// The number of features of an edge: of `x`, which has the device of `h` and the same axes before its edges.
fn edge_features(
    operation: &'static str,
    argument: &'static str,
    x: &Array,
    h: &Array,
    edges: usize,
) -> Result<usize> {
    x.require_like(h, operation, argument)?;
    rows_of_edges(operation, argument, x, h, edges)
}

/// The number of features of an edge: of `x`, which has the axes of `h` before its edges.
fn rows_of_edges(
    operation: &'static str,
    argument: &'static str,
    x: &Array,
    h: &Array,
    edges: usize,
) -> Result<usize> {
    let mut expected = resized(h, edges, 0);
    let features = x.dims().last().copied().unwrap_or(0);
    if let Some(last) = expected.last_mut() {
        *last = features;
    }
    x.require_shape(operation, argument, &expected, || {
        format!("a row for each of {edges} edges, and before them the axes of `h`, {}", h.shape())
    })?;
    Ok(features)
}

/// The shape of `x` with `rows` rows of `features` features.
fn resized(x: &Array, rows: usize, features: usize) -> Vec<usize> {
    let mut shape = x.dims().to_vec();
    let rank = shape.len();
    shape[rank - 2] = rows;
    shape[rank - 1] = features;
    shape
}

/// An array whose rows, along its last axis, are adjacent elements and lie at equal distances, as columns of wider rows do.
struct Rows {
    array: Array,
    size: usize,
    pitch: usize,
}

impl Rows {
    /// From an array whose rows are laid out like this.
    fn in_place(x: &Array) -> Option<Self> {
        let size = x.dims()[x.rank() - 1];
        let (sizes, [steps]) = collapse(x.dims(), [x.strides()]);
        let pitch = match (&sizes[..], &steps[..]) {
            _ if x.is_contiguous() => size,
            ([_, adjacent], &[pitch, 1]) if *adjacent == size => pitch,
            ([_], &[pitch]) if size == 1 => pitch,
            _ => return None,
        };
        Some(Self { array: x.clone(), size, pitch })
    }

    /// From any array; copies one whose rows are not laid out like this.
    fn of(x: &Array) -> Result<Self> {
        let size = x.dims()[x.rank() - 1];
        Self::in_place(x).map_or_else(|| Ok(Self { array: x.contiguous()?, size, pitch: size }), Ok)
    }

    fn on_host<T: Element>(&self, operation: &'static str) -> Result<cpu::Rows<'_, T>> {
        let (data, _) = self.array.strided_slice(operation)?;
        Ok(cpu::Rows { data, size: self.size, pitch: self.pitch })
    }
}

/// `[h[receivers] − h[senders], attributes]`: for each edge the features of its receiver minus those of its sender, then its own.
/// `h` `[…, nodes, F]`, `attributes` `[…, edges, A]` or none → `[…, edges, F + A]`, on a GPU perhaps as columns of wider rows, which begin at
/// multiples of 16 bytes. Attributes may be in `f32` where `h` has 16 bits: the result has the dtype of `h`.
///
/// # Errors
/// Another number of nodes than the bound of `receivers` and `senders`, attributes of another number of edges, lists of different length;
/// other dtypes or devices.
pub fn edge_difference(
    h: &Array,
    attributes: Option<&Array>,
    receivers: &Index,
    senders: &Index,
) -> Result<Array> {
    const NAME: &str = "edge_difference";
    require_ends(NAME, receivers, senders, "h", h)?;
    let (nodes, edges) = (receivers.bound(), receivers.len());
    require_rows(NAME, "h", h, nodes, "the bound of `receivers`")?;
    let own = attributes.map_or(Ok(0), |x| {
        if x.dtype() == DType::F32 && h.dtype().is_short() {
            x.require_beside(&h.device(), NAME, "attributes")?;
            return rows_of_edges(NAME, "attributes", x, h, edges);
        }
        edge_features(NAME, "attributes", x, h, edges)
    })?;
    let shape = resized(h, edges, h.dims()[h.rank() - 1] + own);
    let (h, attributes) = (h.contiguous()?, attributes.map(Array::contiguous).transpose()?);
    if let (Device::Cuda(device), Some(to), Some(from)) =
        (h.device(), receivers.resident(), senders.resident())
    {
        let ends = cuda::Ends { receivers, senders, to, from };
        return cuda::difference(&device, NAME, &h, attributes.as_ref(), &ends, &shape);
    }
    let attributes = attributes.map(|attributes| attributes.cast(h.dtype())).transpose()?;
    let (to, from) = (receivers.lists()?, senders.lists()?);
    with_element!(h.dtype(), NAME, T => {
        let (h, attributes) = (Rows::of(&h)?, attributes.as_ref().map(Rows::of).transpose()?);
        let none = cpu::Rows::<T> { data: &[], size: 0, pitch: 0 };
        let attributes = attributes.as_ref().map_or(Ok(none), |x| x.on_host(NAME))?;
        let h = h.on_host(NAME)?;
        Array::build(shape, &Device::Cpu, |out: &mut [T]| {
            cpu::difference(h, attributes, nodes, [&to.values, &from.values], out);
        })
    })
}

/// What arrives at each node minus what leaves it, the transpose of [`edge_difference`] in `h`: `x` `[…, edges, F]` → `[…, nodes, F]`. Sums
/// run over the edges in their order, in double precision on a GPU. Columns of wider rows are read without a copy.
///
/// # Errors
/// Another number of edges than the length of `receivers` and `senders`, or these do not fit together; other devices.
pub fn net_inflow(x: &Array, receivers: &Index, senders: &Index) -> Result<Array> {
    net_inflow_onto(&[], x, receivers, senders)
}

/// The sum of `summands` `[…, nodes, F]`, in order, and of [`net_inflow`]: the same bits as by [`add_n`]. On a GPU, where that is faster, in
/// one launch for up to two summands, which may be columns of wider rows.
///
/// # Errors
/// As [`net_inflow`]; summands of another shape, dtype or device.
pub fn net_inflow_onto(summands: &[&Array], x: &Array, receivers: &Index, senders: &Index) -> Result<Array> {
    const NAME: &str = "net_inflow";
    require_ends(NAME, receivers, senders, "x", x)?;
    let (nodes, edges) = (receivers.bound(), receivers.len());
    require_rows(NAME, "x", x, edges, "the list of receivers")?;
    let rows = Rows::of(x)?;
    let shape = resized(x, nodes, rows.size);
    for summand in summands {
        summand.require_like(x, NAME, "summands")?;
        summand.require_shape(NAME, "summands", &shape, || "it is that of the result".to_owned())?;
    }
    if let (Device::Cuda(device), Some(to), Some(from)) =
        (x.device(), receivers.resident(), senders.resident())
    {
        let ends = cuda::Ends { receivers, senders, to, from };
        return cuda::net_inflow(&device, NAME, &rows, &ends, &shape, summands);
    }
    let (to, from) = (receivers.lists()?, senders.lists()?);
    let inflow = with_element!(x.dtype(), NAME, T => {
        let rows = rows.on_host::<T>(NAME)?;
        Array::build(shape, &Device::Cpu, |out: &mut [T]| {
            cpu::net_inflow(rows, cpu::Graph { nodes, edges }, [to.groups(nodes), from.groups(nodes)], out);
        })
    })?;
    added(summands, inflow)
}

/// The sum of `summands` and of `last`.
fn added(summands: &[&Array], last: Array) -> Result<Array> {
    if summands.is_empty() { Ok(last) } else { add_n(&[summands, &[&last]].concat()) }
}

/// `[h, the mean of the messages that arrive]`: the mean aggregator of Hamilton et al. (2017, arXiv:1706.02216). `h` `[…, nodes, F]`,
/// `messages` `[…, edges, M]` → `[…, nodes, F + M]`; a node at which none arrives has zeros. Sums run over the edges in their order, in
/// double precision on a GPU.
///
/// # Errors
/// Another number of nodes than the bound of `receivers`, of edges than their number; other dtypes or devices.
pub fn concat_segment_mean(h: &Array, messages: &Array, receivers: &Index) -> Result<Array> {
    const NAME: &str = "concat_segment_mean";
    h.require_beside(receivers.device(), NAME, "receivers")?;
    let (nodes, edges) = (receivers.bound(), receivers.len());
    require_rows(NAME, "h", h, nodes, "the bound of `receivers`")?;
    let received = edge_features(NAME, "messages", messages, h, edges)?;
    let shape = resized(h, nodes, h.dims()[h.rank() - 1] + received);
    let (h, messages) = (h.contiguous()?, messages.contiguous()?);
    if let (Device::Cuda(device), Some(to)) = (h.device(), receivers.resident()) {
        return cuda::concat_mean(&device, NAME, &h, &messages, receivers, to, &shape);
    }
    let lists = receivers.lists()?;
    with_element!(h.dtype(), NAME, T => {
        let (h, messages) = (Rows::of(&h)?, Rows::of(&messages)?);
        let (h, messages) = (h.on_host::<T>(NAME)?, messages.on_host(NAME)?);
        Array::build(shape, &Device::Cpu, |out: &mut [T]| {
            cpu::concat_mean(h, messages, cpu::Graph { nodes, edges }, lists.groups(nodes), out);
        })
    })
}

/// Gives each position an equal share of its segment's value, the transpose of the mean over segments: `x` `[…, segments, F]` → `[…,
/// positions, F]`, `out[p] = x[s] / (positions of s)` for the segment s of p. Columns of wider rows are read without a copy.
///
/// # Errors
/// Another number of segments than the bound of `segments`; another device.
pub fn segment_spread(x: &Array, segments: &Index) -> Result<Array> {
    const NAME: &str = "segment_spread";
    x.require_beside(segments.device(), NAME, "segments")?;
    let bound = segments.bound();
    require_rows(NAME, "x", x, bound, "the bound of `segments`")?;
    let rows = Rows::of(x)?;
    let shape = resized(x, segments.len(), rows.size);
    if let (Device::Cuda(device), Some(lists)) = (x.device(), segments.resident()) {
        return cuda::spread(&device, NAME, &rows, segments, lists, &shape);
    }
    let lists = segments.lists()?;
    with_element!(x.dtype(), NAME, T => {
        let rows = rows.on_host::<T>(NAME)?;
        Array::build(shape, &Device::Cpu, |out: &mut [T]| {
            cpu::spread(rows, bound, &lists.values, lists.groups(bound), out);
        })
    })
}
