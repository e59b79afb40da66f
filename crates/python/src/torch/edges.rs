//! Edges of graphs as tensors of PyTorch give them.

use super::Torch;
use crate::errors::{Class, raised};
use gradewise_kernels::{BorrowedIndex, Device, Index};
use pyo3::prelude::*;

/// The receivers and the senders of edges between nodes.
#[pyclass(frozen, module = "gradewise._core")]
pub struct Edges {
    pub receivers: Index,
    pub senders: Index,
}

#[pymethods]
impl Edges {
    /// Edges between `nodes` nodes, on the host.
    #[new]
    fn new(py: Python<'_>, receivers: Vec<i64>, senders: Vec<i64>, nodes: usize) -> PyResult<Self> {
        let index = |ends: Vec<i64>| {
            let unsigned = |end: i64| {
                usize::try_from(end).map_err(|_| {
                    let message = format!(
                        "edges: an edge ends at node {end}; nodes are 0 to {}",
                        nodes.saturating_sub(1)
                    );
                    Class::Argument.exception(py, &message)
                })
            };
            let ends = ends.into_iter().map(unsigned).collect::<PyResult<Vec<usize>>>()?;
            Index::new(&ends, nodes, &Device::Cpu).map_err(|error| raised(py, error))
        };
        Ok(Self { receivers: index(receivers)?, senders: index(senders)? })
    }

    /// Edges between `nodes` nodes that are on a CUDA device. For receivers and senders each: the nodes, `nodes + 1` positions in the list
    /// that follows, and the numbers of the edges, ascending, of one node after the other; contiguous tensors of dtype int32, whose values
    /// are not checked.
    #[staticmethod]
    fn on_device(
        py: Python<'_>,
        receivers: [Bound<'_, PyAny>; 3],
        senders: [Bound<'_, PyAny>; 3],
        nodes: usize,
    ) -> PyResult<Self> {
        let torch = Torch::get(py)?;
        let index = |lists: [Bound<'_, PyAny>; 3]| -> PyResult<Index> {
            let here = torch.here(py, &lists)?;
            let Device::Cuda(device) = here.device() else {
                let message = "the lists are on the host; make Edges(receivers, senders, nodes)";
                return Err(Class::Device.exception(py, message));
            };
            let [(values, length), (starts, places), (order, positions)] =
                [torch.list(&lists[0])?, torch.list(&lists[1])?, torch.list(&lists[2])?];
            if places != nodes + 1 || positions != length {
                let message = format!(
                    "lists of {length}, {places} and {positions} numbers, expected {length}, {} and {length}",
                    nodes + 1
                );
                return Err(Class::Shape.exception(py, &message));
            }
            let owner = Box::new(lists.map(Bound::unbind));
            let borrowed = BorrowedIndex { values, starts, order, length, bound: nodes, owner };
            // SAFETY: PyTorch's description of its own memory, which the tensors keep. The package makes the lists by PyTorch's operators,
            // which check the numbers of nodes on the device, in the stream that operators run in, and keeps them to itself.
            unsafe { Index::borrow(borrowed, device) }.map_err(|error| raised(py, error))
        };
        Ok(Self { receivers: index(receivers)?, senders: index(senders)? })
    }

    fn __repr__(&self) -> String {
        format!("Edges({} edges between {} nodes)", self.receivers.len(), self.receivers.bound())
    }
}
