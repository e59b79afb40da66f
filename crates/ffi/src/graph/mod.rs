//! Graphs: recorded work, launched as one.

// nodes
// recording

mod nodes;
mod recording;

pub use nodes::Nodes;
pub use recording::{RecordedGraph, Recording};

use crate::{Context, Error, Result, Stream, sys::*};

/// Recorded work. [`Stream::record`] makes one that keeps the memory it works on, and that is safe to replay.
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

    /// Instantiates the graph for launching.
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

impl Stream {
    /// Ends the capture and returns what was recorded.
    ///
    /// # Errors
    /// If something queued meanwhile cannot be captured.
    pub fn end_capture(&self) -> Result<Graph> {
        // Ends the capture even if binding failed: a stream left in capture could not even release memory.
        let bound = self.context().bind();
        let mut graph = CUgraph::NULL;
        // SAFETY: the pointer is valid for the write; the stream is alive.
        unsafe { self.context().driver().cuStreamEndCapture(self.raw(), &mut graph)? };
        let graph = Graph::own(self.context(), graph);
        bound.map(|()| graph)
    }

    /// Records what `work` queues into a graph. Ends the capture even if `work` fails.
    ///
    /// # Errors
    /// That of `work`; or from the driver, if something queued cannot be captured.
    pub fn capture<E: From<Error>>(
        &self,
        mode: u32,
        work: impl FnOnce(&Self) -> std::result::Result<(), E>,
    ) -> std::result::Result<Graph, E> {
        struct End<'a>(Option<&'a Stream>);
        impl Drop for End<'_> {
            fn drop(&mut self) {
                // Discards the capture error: `work` failed or panicked, which is the root cause.
                let _ = self.0.map(Stream::end_capture);
            }
        }
        self.begin_capture(mode)?;
        let mut end = End(Some(self));
        work(self)?;
        end.0 = None;
        Ok(self.end_capture()?)
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: owned since the capture ended, released once.
        self.context.release(|driver| unsafe { driver.cuGraphDestroy(self.raw) });
    }
}

/// An instantiated graph.
#[derive(Debug)]
pub struct GraphExec {
    context: Context,
    raw: CUgraphExec,
}

impl GraphExec {
    /// Queues the whole graph.
    ///
    /// # Safety
    /// All memory that the recorded work accesses must still be allocated as it was at the time of recording.
    ///
    /// # Errors
    /// From the driver.
    pub unsafe fn launch(&self, stream: &Stream) -> Result<()> {
        self.context.bind()?;
        // SAFETY: both are alive; the caller vouches for the memory.
        unsafe { self.context.driver().cuGraphLaunch(self.raw, stream.raw()) }
    }
}

impl GraphExec {
    /// The driver's handle.
    pub fn raw(&self) -> CUgraphExec {
        self.raw
    }

    /// Uploads the graph to the device now, so that its first launch does not have to.
    ///
    /// # Errors
    /// From the driver.
    pub fn upload(&self, stream: &Stream) -> Result<()> {
        self.context.bind()?;
        // SAFETY: both are alive.
        unsafe { self.context.driver().cuGraphUpload(self.raw, stream.raw()) }
    }

    /// Updates the arguments to those of `graph`, which must have the same nodes in the same order. Launches queued earlier keep their
    /// arguments. Returns `false` if the topologies differ: then this graph is unchanged, and `graph` needs its own
    /// [`instantiate`](Graph::instantiate).
    ///
    /// # Errors
    /// From the driver.
    pub fn update(&mut self, graph: &Graph) -> Result<bool> {
        self.context.bind()?;
        let mut result = CUgraphExecUpdateResultInfo {
            result: 0,
            error_node: CUgraphNode::NULL,
            error_from_node: CUgraphNode::NULL,
        };
        // SAFETY: the pointer is valid for the write; both graphs are alive.
        match unsafe { self.context.driver().cuGraphExecUpdate_v2(self.raw, graph.raw, &mut result) } {
            Ok(()) => Ok(true),
            Err(Error::Call { code: CUresult::ERROR_GRAPH_EXEC_UPDATE_FAILURE, .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

impl Drop for GraphExec {
    fn drop(&mut self) {
        // SAFETY: instantiated by `Graph::instantiate`, released once; the driver waits for a launch that is running.
        self.context.release(|driver| unsafe { driver.cuGraphExecDestroy(self.raw) });
    }
}
