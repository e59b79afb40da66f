//! Capturing work into a graph, and replaying it.

use super::{
    CudaDevice,
    accounts::Kept,
    arena::Arena,
    fuse,
    gate::{Session, this_thread},
};
use crate::{Error, Result};
use gradewise_ffi::{Graph, GraphExec, sys::capture_mode};
use std::sync::{Arc, PoisonError, atomic::Ordering};

/// Captured work of one device, with the memory it works in.
///
/// Arrays made during the capture hold, after each [`replay`](Self::replay), what that replay computed.
#[derive(Debug)]
pub struct CapturedGraph {
    // Declared before the memory, to be released before it.
    exec: GraphExec,
    graph: Graph,
    device: CudaDevice,
    arena: Arc<Arena>,
    _retired: Retired,
}

/// Memory from before a capture that was let go during it, as long as the graph lives.
#[derive(Debug)]
struct Retired {
    device: CudaDevice,
    blocks: Vec<Kept>,
}

impl Drop for Retired {
    fn drop(&mut self) {
        if self.blocks.is_empty() {
            return;
        }
        // Returned in stream order, hence not into a capture: another graph's of this thread, or another thread's.
        if let Some(mut session) = self.device.gate().session()
            && let Some(session) = session.as_mut()
        {
            return session.retired.append(&mut self.blocks);
        }
        self.blocks.iter().for_each(|block| self.device.accounts().release(block));
        let _gate = self.device.gate().enter();
        self.blocks.clear();
    }
}

/// Whether a capture, or a step on the host, computes several operators at once where it can.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Fusion {
    /// Operators on elements are computed together: by kernels that are generated for them, on the host block by block. The bits are the same.
    #[default]
    On,
    /// Every operator launches its own kernels, or computes its whole result.
    Off,
}

impl Fusion {
    /// `On` for true.
    pub fn from_switch(on: bool) -> Self {
        if on { Self::On } else { Self::Off }
    }
}

/// How often a capture is repeated at most until all its kernels are compiled. Work that asks for other kernels each time is captured with
/// those of its operators.
const ATTEMPTS: usize = 3;

impl CudaDevice {
    /// Records the operators that `work` calls in this thread on this device, without running them: every operator launches its own kernels.
    ///
    /// Whatever `work` reads must exist before and stay in place: run it once beforehand, so that constants and kernels are
    /// on the device. Operators of other threads on this device wait meanwhile.
    ///
    /// # Errors
    /// Those of `work`, such as [`Error::InCapture`] if it reads a result on the host; [`Error::InCapture`] inside another
    /// capture; [`Error::Cuda`] from the driver. The device is usable afterwards.
    pub fn capture<R>(&self, work: impl FnOnce() -> Result<R>) -> Result<(R, CapturedGraph)> {
        match self.record(Fusion::Off, work)? {
            Recorded::Graph(value, graph) => Ok((value, graph)),
            Recorded::Missing(_) => unreachable!("operators have their own kernels"),
        }
    }

    /// As [`capture`](Self::capture), with [fused](Fusion) operators unless [`Options::fuse`](crate::Options::fuse) says otherwise. `work` is
    /// called again where kernels have to be compiled first; only its last result is returned.
    ///
    /// # Errors
    /// As [`capture`](Self::capture).
    pub fn capture_with<R>(
        &self,
        fusion: Fusion,
        mut work: impl FnMut() -> Result<R>,
    ) -> Result<(R, CapturedGraph)> {
        if fusion == Fusion::On && self.options().fuse && fuse::is_possible() {
            for _ in 0..ATTEMPTS {
                match self.record(Fusion::On, &mut work)? {
                    Recorded::Graph(value, graph) => return Ok((value, graph)),
                    Recorded::Missing(missing) => missing.compile(self),
                }
            }
            tracing::warn!("operators are not fused: each capture asks for other kernels");
        }
        self.capture(work)
    }

    /// Runs `work`. Operators on elements that this thread calls meanwhile, in the stream that is in force now, may wait, to be computed
    /// together by [fused](Fusion) kernels; the bits are the same. All that arrays hold afterwards is queued when this returns.
    ///
    /// Kernels are compiled when they are needed first, but while another library captures the stream: then the operators' own take the
    /// place of those that are missing. Inside of a capture of the device, of another scope, or without fusion
    /// ([`Options::fuse`](crate::Options::fuse)), `work` is all that runs.
    ///
    /// # Errors
    /// Those of `work`; [`Error::Cuda`] from the driver.
    pub fn fused<R, E: From<Error>>(&self, work: impl FnOnce() -> Result<R, E>) -> Result<R, E> {
        let is_on = self.options().fuse && !self.gate().is_mine() && !fuse::is_recording(self);
        if !is_on || !fuse::is_possible() {
            return work();
        }
        self.fused_now(work).map(|(value, _)| value)
    }

    /// Whether the stream in force is being captured, by whomever.
    ///
    /// # Errors
    /// [`Error::Cuda`] from the driver.
    pub fn is_captured(&self) -> Result<bool> {
        self.stream().is_capturing().map_err(|source| self.error("is_captured", source))
    }

    /// What [`fused`](Self::fused) does where it is on, and the kernels that it lacked, of which there are none but in the unit tests of this
    /// crate: they have neither a compiler nor the operators' own kernels.
    pub(super) fn fused_now<R, E: From<Error>>(
        &self,
        work: impl FnOnce() -> Result<R, E>,
    ) -> Result<(R, fuse::Missing), E> {
        let is_captured = self.is_captured()?;
        fuse::begin(self, fuse::Extent::Stream { stream: self.stream().raw(), is_captured })?;
        // A panic in `work` must not leave its values waiting for ever.
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        let missing = fuse::end(self, !matches!(result, Ok(Ok(_))));
        match result {
            Ok(value) => Ok((value?, missing?)),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }

    /// Whether memory of the capture of this thread that arrays are done with is kept from others.
    pub(super) fn hold_memory(&self, holds: bool) {
        if let Some(arena) = self.gate().arena() {
            arena.hold(holds);
        }
    }

    pub(super) fn record<R>(&self, fusion: Fusion, work: impl FnOnce() -> Result<R>) -> Result<Recorded<R>> {
        const NAME: &str = "capture";
        let fail = |source| self.error(NAME, source);
        self.refuse_in_capture(NAME)?;
        if self.stream().raw() != self.own_stream().raw() {
            return Err(Error::OtherStream { operation: NAME });
        }
        if fusion == Fusion::On {
            fuse::begin(self, fuse::Extent::Capture)?;
        }
        let gate = self.gate();
        let exclusive = gate.lock.write().unwrap_or_else(PoisonError::into_inner);
        let set = |session| *gate.session.lock().unwrap_or_else(PoisonError::into_inner) = session;
        // What is queued must not wait for memory that the graph takes.
        let arena = Arc::new(Arena::new(self.accounts(), self.stream()));
        let begun = self.stream().synchronize().and_then(|()| {
            set(Some(Session { arena: Arc::clone(&arena), retired: Vec::new() }));
            self.stream().begin_capture(capture_mode::THREAD_LOCAL)
        });
        if let Err(error) = begun {
            set(None);
            if fusion == Fusion::On {
                fuse::end(self, true)?;
            }
            return Err(fail(error));
        }
        gate.owner.store(this_thread(), Ordering::Relaxed);
        // A panic in `work` must not leave the device capturing for ever.
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        let failed = !matches!(result, Ok(Ok(_)));
        let missing = (fusion == Fusion::On).then(|| fuse::end(self, failed)).transpose();
        gate.owner.store(0, Ordering::Relaxed);
        let graph = self.stream().end_capture().map_err(fail);
        let session = gate.session.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(exclusive);
        let blocks = session.map(|session| session.retired).unwrap_or_default();
        let retired = Retired { device: self.clone(), blocks };
        let value = match result {
            Ok(value) => value?,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        let graph = graph?;
        if let Some(missing) = missing?
            && !missing.is_empty()
        {
            return Ok(Recorded::Missing(missing));
        }
        let exec = graph.instantiate().map_err(fail)?;
        let graph = CapturedGraph { exec, graph, device: self.clone(), arena, _retired: retired };
        Ok(Recorded::Graph(value, graph))
    }
}

/// What came of a capture.
pub(super) enum Recorded<R> {
    Graph(R, CapturedGraph),
    /// Kernels that it lacks.
    Missing(fuse::Missing),
}

impl CapturedGraph {
    /// Queues the captured work once more.
    ///
    /// # Errors
    /// [`Error::InCapture`] inside a capture; [`Error::Cuda`] from the driver.
    pub fn replay(&self) -> Result<()> {
        self.device.refuse_in_capture("replay")?;
        let _gate = self.device.gate().enter();
        let describe = || "a captured graph".to_owned();
        self.device.queue("replay", describe, || {
            // SAFETY: the arena holds everything allocated during the capture, `_retired` everything let go, and what was
            // alive before and after belongs to the caller's arrays, whose writers go through the same stream.
            unsafe { self.exec.launch(self.device.stream()) }
        })
    }

    /// Number of kernels, copies and fills in the graph.
    ///
    /// # Errors
    /// [`Error::Cuda`] from the driver.
    pub fn node_count(&self) -> Result<usize> {
        self.graph.node_count().map_err(|source| self.device.error("node_count", source))
    }

    /// Bytes of memory that belong to the graph.
    pub fn bytes(&self) -> usize {
        self.arena.bytes()
    }
}
