//! Graphs: recorded work, launched as one.

use crate::{Context, Result, Stream, sys::*};

/// Recorded work.
#[derive(Debug)]
pub struct Graph {
    context: Context,
    raw: CUgraph,
}

impl Graph {
    pub(crate) fn own(context: &Context, raw: CUgraph) -> Self {
        Self { context: context.clone(), raw }
    }

    /// The driver's handle.
    pub fn raw(&self) -> CUgraph {
        self.raw
    }

    /// Number of nodes: kernels, copies, fills.
    ///
    /// # Errors
    /// From the driver.
    pub fn node_count(&self) -> Result<usize> {
        self.context.bind()?;
        let mut count = 0;
        // SAFETY: a null array asks for the number only; the graph is alive.
        unsafe { self.context.driver().cuGraphGetNodes(self.raw, std::ptr::null_mut(), &mut count)? };
        Ok(count)
    }

    /// Makes the graph ready to launch.
    ///
    /// # Errors
    /// From the driver.
    pub fn instantiate(&self) -> Result<GraphExec> {
        self.context.bind()?;
        let mut raw = CUgraphExec::NULL;
        // SAFETY: the pointer is valid for the write; the graph is alive; `GraphExec::drop` releases.
        unsafe { self.context.driver().cuGraphInstantiateWithFlags(&mut raw, self.raw, 0)? };
        Ok(GraphExec { context: self.context.clone(), raw })
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: owned since the capture ended, released once.
        let release = || unsafe { self.context.driver().cuGraphDestroy(self.raw) };
        self.context.park(self.context.bind().and_then(|()| release()));
    }
}

/// A graph ready to launch.
#[derive(Debug)]
pub struct GraphExec {
    context: Context,
    raw: CUgraphExec,
}

impl GraphExec {
    /// Queues the whole graph.
    ///
    /// # Safety
    /// All memory that the recorded work names must still be what it was at the time of recording.
    ///
    /// # Errors
    /// From the driver.
    pub unsafe fn launch(&self, stream: &Stream) -> Result<()> {
        self.context.bind()?;
        // SAFETY: both are alive; the caller vouches for the memory.
        unsafe { self.context.driver().cuGraphLaunch(self.raw, stream.raw()) }
    }
}

impl Drop for GraphExec {
    fn drop(&mut self) {
        // SAFETY: instantiated by `Graph::instantiate`, released once; the driver waits for a launch that is running.
        let release = || unsafe { self.context.driver().cuGraphExecDestroy(self.raw) };
        self.context.park(self.context.bind().and_then(|()| release()));
    }
}
