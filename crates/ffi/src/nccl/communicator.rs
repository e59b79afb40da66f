//! Communicators: a process's end of what GPUs say to each other.

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
    /// How long a call may take that other processes take part in.
    pub timeout: Duration,
    /// Whether the library's calls return only when their work is done. Those of a process that waits for one that is gone then
    /// never return, and nothing can end them.
    pub blocking: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { timeout: Duration::from_secs(60), blocking: false }
    }
}

/// A communicator, owned. Any thread may use or [abort](Self::abort) it.
///
/// Dropped without [`finish`](Self::finish) it is aborted: others may be gone, and would be waited for.
pub struct Communicator {
    library: Nccl,
    context: Context,
    /// None once it is aborted or released.
    raw: Mutex<Option<ncclComm_t>>,
    timeout: Duration,
    rank: usize,
    world: usize,
}

impl Communicator {
    /// Joins the group named `id` as `rank` of `world`, on the context's device. Returns when all are there.
    ///
    /// # Errors
    /// [`Error::Status`] from the library; [`Error::Timeout`] if the others do not come.
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
    /// Both must be addresses of so many elements on the context's device that nobody else accesses before the work is done.
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

    /// Queues a copy of `count` elements at `address` of process `root` to the same of every other.
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

    /// Nothing, if all is well as far as the library knows.
    ///
    /// # Errors
    /// [`Error::Status`] with what went wrong since the last call.
    pub fn check(&self) -> Result<()> {
        match self.state("ncclCommGetAsyncError")? {
            ncclResult_t::IN_PROGRESS => Ok(()),
            code => self.library.check("ncclCommGetAsyncError", code),
        }
    }

    /// Ends what runs on the device, unfinished, and releases the communicator. Further calls are errors.
    pub fn abort(&self) {
        // Taken first, so that nobody calls the library with what is being released.
        let raw = self.lock().take();
        let Some(raw) = raw else { return };
        if self.context.bind().is_err() {
            return;
        }
        // SAFETY: taken out, hence released once. There is nothing to be done about a failure.
        let _ = unsafe { self.library.ncclCommAbort(raw) };
    }

    /// Waits until all processes are done with it, and releases it.
    ///
    /// # Errors
    /// [`Error::Status`]; [`Error::Timeout`] if the others do not come; it is aborted then.
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

    /// Calls the library with the communicator, while nobody else does.
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

    /// Waits until a call that may return before its work is begun has begun it.
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
                // Mostly a matter of microseconds; where it is not, others are waited for.
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
