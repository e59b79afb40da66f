//! Communicators: one process's endpoint for collective operations between GPUs.

use super::{Nccl, ncclComm_t, ncclConfig_t, ncclDataType_t, ncclRedOp_t, ncclResult_t, ncclUniqueId};
use crate::{Context, Error, Result, Stream, sys::CUdeviceptr};
use std::{
    ffi::{c_int, c_void},
    fmt,
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

/// How a communicator is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// Timeout of collective calls.
    pub timeout: Duration,
    /// Whether the library's calls block until their work is done. A blocking call that waits for a process that is gone never returns, and
    /// nothing can end it.
    pub blocking: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { timeout: Duration::from_secs(60), blocking: false }
    }
}

/// A communicator, owned. Any thread may use or [abort](Self::abort) it.
///
/// Dropping a communicator without [`finish`](Self::finish) aborts it: waiting for processes that are gone could hang.
pub struct Communicator {
    library: Nccl,
    context: Context,
    /// None once the communicator is aborted or released.
    raw: Mutex<Option<ncclComm_t>>,
    timeout: Duration,
    rank: usize,
    world: usize,
}

impl Communicator {
    /// Joins the group `id` as `rank` of `world`, on the context's device. Returns when all processes have joined.
    ///
    /// # Errors
    /// [`Error::Status`] from the library; [`Error::Timeout`] if the other processes do not join in time.
    pub fn new(
        library: &Nccl,
        context: &Context,
        id: ncclUniqueId,
        rank: usize,
        world: usize,
        options: Options,
    ) -> Result<Self> {
        context.bind()?;
        let number = |number: usize| {
            c_int::try_from(number).map_err(|_| Error::Argument {
                call: "nccl::Communicator::new",
                problem: format!("rank {rank} of {world}"),
            })
        };
        let (rank_number, world_number) = (number(rank)?, number(world)?);
        let mut config = ncclConfig_t::new(options.blocking);
        let mut raw = ncclComm_t::NULL;
        // SAFETY: both pointers are valid during the call; the context is bound; `drop` releases.
        let begun =
            unsafe { library.ncclCommInitRankConfig(&mut raw, world_number, id, rank_number, &mut config) };
        let raw_or_none = Some(raw).filter(|raw| *raw != ncclComm_t::NULL);
        let communicator = Self {
            library: library.clone(),
            context: context.clone(),
            raw: Mutex::new(raw_or_none),
            timeout: options.timeout,
            rank,
            world,
        };
        communicator.settle("ncclCommInitRankConfig", begun)?;
        Ok(communicator)
    }

    /// Which process this is.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Number of processes.
    pub fn world(&self) -> usize {
        self.world
    }

    /// Queues the sum of `count` elements over all processes, from `source` to `target`, which may be the same.
    ///
    /// # Safety
    /// Both must be addresses of `count` elements on the context's device. Nothing else may access them until the work is done.
    ///
    /// # Errors
    /// [`Error::Status`], also if the communicator was aborted; [`Error::Timeout`].
    pub unsafe fn all_reduce(
        &self,
        source: CUdeviceptr,
        target: CUdeviceptr,
        count: usize,
        dtype: ncclDataType_t,
        stream: &Stream,
    ) -> Result<()> {
        const CALL: &str = "ncclAllReduce";
        self.context.bind()?;
        let begun = self.with(CALL, |raw| {
            let (source, target) = (address(source), address(target));
            // SAFETY: communicator and stream are alive; the caller vouches for the memory.
            unsafe {
                self.library.ncclAllReduce(source, target, count, dtype, ncclRedOp_t::SUM, raw, stream.raw())
            }
        });
        self.settle(CALL, begun)
    }

    /// Queues a broadcast of `count` elements at `address` from process `root` to `address` of every other process.
    ///
    /// # Safety
    /// As [`all_reduce`](Self::all_reduce).
    ///
    /// # Errors
    /// As [`all_reduce`](Self::all_reduce).
    pub unsafe fn broadcast(
        &self,
        at: CUdeviceptr,
        count: usize,
        dtype: ncclDataType_t,
        root: usize,
        stream: &Stream,
    ) -> Result<()> {
        const CALL: &str = "ncclBroadcast";
        self.context.bind()?;
        let begun = self.with(CALL, |raw| {
            // SAFETY: as in `all_reduce`.
            unsafe {
                self.library.ncclBroadcast(
                    address(at),
                    address(at),
                    count,
                    dtype,
                    root as c_int,
                    raw,
                    stream.raw(),
                )
            }
        });
        self.settle(CALL, begun)
    }

    /// Reports asynchronous errors that the library knows of.
    ///
    /// # Errors
    /// [`Error::Status`] with what went wrong since the last call.
    pub fn check(&self) -> Result<()> {
        match self.state("ncclCommGetAsyncError")? {
            ncclResult_t::IN_PROGRESS => Ok(()),
            code => self.library.check("ncclCommGetAsyncError", code),
        }
    }

    /// Aborts operations that run on the device, and releases the communicator. Further calls are errors.
    pub fn abort(&self) {
        // Takes the handle first, so that no other thread uses it during the release.
        let raw = self.lock().take();
        let Some(raw) = raw else { return };
        if self.context.bind().is_err() {
            return;
        }
        // SAFETY: taken out, hence released once. A failure is ignored, since nothing can handle it.
        let _ = unsafe { self.library.ncclCommAbort(raw) };
    }

    /// Waits until all processes have finished with the communicator, and releases it.
    ///
    /// # Errors
    /// [`Error::Status`]; [`Error::Timeout`] if the other processes do not finish in time. The communicator is aborted then.
    pub fn finish(self) -> Result<()> {
        const CALL: &str = "ncclCommFinalize";
        self.context.bind()?;
        // SAFETY: the communicator is alive.
        let begun = self.with(CALL, |raw| unsafe { self.library.ncclCommFinalize(raw) });
        self.settle(CALL, begun)?;
        let raw = self.lock().take();
        // SAFETY: taken out, hence released once.
        raw.map_or(Ok(()), |raw| unsafe { self.library.ncclCommDestroy(raw) })
    }

    fn lock(&self) -> MutexGuard<'_, Option<ncclComm_t>> {
        self.raw.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls the library with the communicator, under its lock.
    fn with<T>(&self, call: &'static str, work: impl FnOnce(ncclComm_t) -> Result<T>) -> Result<T> {
        match *self.lock() {
            Some(raw) => work(raw),
            None => Err(Error::Status {
                library: "NCCL",
                call,
                code: ncclResult_t::REMOTE_ERROR.0,
                text: "the communicator was aborted".to_owned(),
            }),
        }
    }

    fn state(&self, call: &'static str) -> Result<ncclResult_t> {
        self.with(call, |raw| {
            let mut state = ncclResult_t::SUCCESS;
            // SAFETY: the communicator is alive; the pointer is valid for the write.
            unsafe { self.library.ncclCommGetAsyncError(raw, &mut state)? };
            Ok(state)
        })
    }

    /// Waits until a non-blocking call is no longer in progress.
    fn settle(&self, call: &'static str, begun: Result<()>) -> Result<()> {
        match begun {
            Err(Error::Status { code, .. }) if code == ncclResult_t::IN_PROGRESS.0 => {}
            other => return other,
        }
        let deadline = Instant::now() + self.timeout;
        let mut waits = 0u32;
        loop {
            match self.state(call)? {
                ncclResult_t::IN_PROGRESS if Instant::now() >= deadline => {
                    self.abort();
                    let seconds = self.timeout.as_secs_f64();
                    return Err(Error::Timeout { library: "NCCL", call, seconds: seconds.to_string() });
                }
                // Mostly takes microseconds, so spin first. A longer wait is for other processes.
                ncclResult_t::IN_PROGRESS if waits < 1000 => std::hint::spin_loop(),
                ncclResult_t::IN_PROGRESS => thread::sleep(Duration::from_micros(100)),
                code => return self.library.check(call, code),
            }
            waits = waits.saturating_add(1);
        }
    }
}

fn address(address: CUdeviceptr) -> *mut c_void {
    std::ptr::without_provenance_mut(address as usize)
}

impl Drop for Communicator {
    fn drop(&mut self) {
        self.abort();
    }
}

impl fmt::Debug for Communicator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Communicator(rank {} of {}, {:?})", self.rank, self.world, self.library)
    }
}
