//! The edges of graphs.

use crate::Result;
use gradewise_kernels::{Device, Index};

/// Directed edges between nodes: messages flow from `senders` to `receivers`.
#[derive(Clone, Debug)]
pub struct Edges {
    /// The node each message arrives at.
    pub receivers: Index,
    /// The node each message comes from.
    pub senders: Index,
}

impl Edges {
    /// The same edges on `device`.
    ///
    /// # Errors
    /// If the device has no memory.
    pub fn to_device(&self, device: &Device) -> Result<Self> {
        Ok(Self { receivers: self.receivers.to_device(device)?, senders: self.senders.to_device(device)? })
    }

    /// Every ordered pair of different nodes within each of `graphs` graphs of `nodes` nodes, nodes numbered graph by
    /// graph.
    ///
    /// # Errors
    /// More nodes than an index can hold.
    pub fn complete(graphs: usize, nodes: usize, device: &Device) -> Result<Self> {
        let (mut receivers, mut senders) = (Vec::new(), Vec::new());
        for graph in 0..graphs {
            for receiver in 0..nodes {
                for sender in (0..nodes).filter(|&sender| sender != receiver) {
                    receivers.push(graph * nodes + receiver);
                    senders.push(graph * nodes + sender);
                }
            }
        }
        let bound = graphs * nodes;
        Ok(Self {
            receivers: Index::new(&receivers, bound, device)?,
            senders: Index::new(&senders, bound, device)?,
        })
    }
}
