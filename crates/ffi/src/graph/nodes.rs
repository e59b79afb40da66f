//! What a graph holds, and whether that may be replayed.

use super::Graph;
use crate::{DeviceMemory, Error, Result, sys::*};

/// The nodes of a graph by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Nodes {
    /// Kernels.
    pub kernels: usize,
    /// Copies.
    pub copies: usize,
    /// Fills.
    pub fills: usize,
    /// Functions of the host.
    pub host_functions: usize,
    /// Blocks of memory that the graph takes at each launch.
    pub allocations: usize,
    /// Blocks of memory that the graph returns.
    pub frees: usize,
    /// All others, such as waits for events and graphs inside of the graph.
    pub others: usize,
}

impl Nodes {
    /// The number of nodes.
    pub fn total(&self) -> usize {
        let Self { kernels, copies, fills, host_functions, allocations, frees, others } = self;
        kernels + copies + fills + host_functions + allocations + frees + others
    }
}

impl Graph {
    /// Counts the nodes by kind.
    ///
    /// # Errors
    /// From the driver.
    pub fn nodes(&self) -> Result<Nodes> {
        let mut nodes = Nodes::default();
        for node in self.handles()? {
            *match self.kind(node)? {
                graph_node_type::KERNEL => &mut nodes.kernels,
                graph_node_type::MEMCPY => &mut nodes.copies,
                graph_node_type::MEMSET => &mut nodes.fills,
                graph_node_type::HOST => &mut nodes.host_functions,
                graph_node_type::MEM_ALLOC => &mut nodes.allocations,
                graph_node_type::MEM_FREE => &mut nodes.frees,
                _ => &mut nodes.others,
            } += 1;
        }
        Ok(nodes)
    }

    fn handles(&self) -> Result<Vec<CUgraphNode>> {
        let mut count = self.node_count()?;
        let mut nodes = vec![CUgraphNode::NULL; count];
        if count > 0 {
            // SAFETY: the array has room for `count` nodes; the graph is alive.
            unsafe { self.context.driver().cuGraphGetNodes(self.raw, nodes.as_mut_ptr(), &mut count)? };
        }
        Ok(nodes)
    }

    fn kind(&self, node: CUgraphNode) -> Result<u32> {
        let mut kind = 0;
        // SAFETY: the pointer is valid for the write; the node is of this graph, which is alive.
        unsafe { self.context.driver().cuGraphNodeGetType(node, &mut kind)? };
        Ok(kind)
    }

    /// Checks what the driver takes into a graph without complaint and what fails, or is undefined, at a replay.
    ///
    /// # Errors
    /// [`Error::Capture`] if the graph is empty, leaves memory allocated, or copies from or to pageable host memory; otherwise from the
    /// driver.
    pub(super) fn require_replayable(&self) -> Result<()> {
        let nodes = self.nodes()?;
        let refuse = |problem: String, hint| {
            Err(Error::Capture { place: "as a whole".to_owned(), call: None, problem, hint })
        };
        if nodes.total() == 0 {
            return refuse(
                "nothing was queued in the stream".to_owned(),
                "work that goes into another stream is not recorded, but runs at once",
            );
        }
        if nodes.allocations != nodes.frees {
            let Nodes { allocations, frees, .. } = nodes;
            return refuse(
                format!(
                    "{allocations} blocks of memory are taken in it and {frees} returned, so that it runs only once"
                ),
                "take memory that outlives the recording before it",
            );
        }
        for node in self.handles()? {
            if self.kind(node)? == graph_node_type::MEMCPY
                && let Some((address, side, bytes)) = self.pageable(node)?
            {
                return refuse(
                    format!(
                        "a copy of {bytes} bytes {side} pageable host memory at {address:#x} at each replay"
                    ),
                    "use page-locked memory (`HostMemory`) that the graph keeps, or copy outside of the recording",
                );
            }
        }
        Ok(())
    }

    /// The address of the pageable host memory that a copy has on one of its sides, what it does with it, and how many bytes.
    fn pageable(&self, node: CUgraphNode) -> Result<Option<(u64, &'static str, usize)>> {
        let none = CUmemcpySide {
            x_in_bytes: 0,
            y: 0,
            z: 0,
            lod: 0,
            memory_type: 0,
            host: std::ptr::null_mut(),
            device: 0,
            array: std::ptr::null_mut(),
            reserved: std::ptr::null_mut(),
            pitch: 0,
            height: 0,
        };
        let mut copy = CUDA_MEMCPY3D { source: none, target: none, width_in_bytes: 0, height: 0, depth: 0 };
        // SAFETY: the pointer is valid for the write; the node is a copy of this graph, which is alive.
        unsafe { self.context.driver().cuGraphMemcpyNodeGetParams(node, &mut copy)? };
        for (side, verb) in [(copy.source, "reads"), (copy.target, "writes")] {
            let address = match side.memory_type {
                memory_type::HOST => side.host as u64,
                memory_type::UNIFIED => side.device,
                _ => continue,
            };
            if DeviceMemory::device_of(self.context.driver(), address)?.is_none() {
                let bytes = copy.width_in_bytes * copy.height.max(1) * copy.depth.max(1);
                return Ok(Some((address, verb, bytes)));
            }
        }
        Ok(None)
    }
}
