//! A CUDA device and what belongs to it.

use super::{
    accounts::Accounts,
    constants::{Asked, Key},
    failure::failed,
    gate::Gate,
    image,
    kernel::{Grid, Kernel},
    kernels::Kernels,
    recycled::{LARGEST_KEPT, Recycled},
    streams::Streams,
};
use crate::{
    Error, Options, Result,
    runtime::{debug, external, growing::Growing},
};
use gradewise_ffi::{Context, DeviceInfo, DeviceMemory, Driver, LaunchConfig, Stream, sys};
use std::{
    any::{Any, TypeId},
    collections::BTreeMap,
    ffi::c_void,
    fmt,
    hash::{Hash, Hasher},
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

/// A CUDA device: its context, its stream, its memory and its kernels. Cheap to clone.
///
/// All operators of a device run in one stream, in the order in which they are called; results are there when something
/// reads them. Threads may share a device.
#[derive(Clone)]
pub struct CudaDevice(Arc<Inner>);

struct Inner {
    ordinal: usize,
    stream: Stream,
    kernels: Arc<Kernels>,
    options: Options,
    overlaps: bool,
    accounts: Arc<Accounts>,
    recycled: Recycled,
    gate: Gate,
    /// Streams of other libraries that operators ran in.
    streams: Streams,
    /// Things derived once and kept on the device, by their type and key.
    constants: Growing<(TypeId, Key), Arc<dyn Any + Send + Sync>>,
}

impl CudaDevice {
    /// Device number `ordinal` of the machine; the same handle every time.
    ///
    /// # Errors
    /// [`Error::NoBackend`] if this build has no kernels; [`Error::Cuda`] if there is no driver; [`Error::NoSuchDevice`];
    /// [`Error::UnsupportedDevice`] if the embedded kernels do not run there; those of [`Options::from_environment`].
    pub fn new(ordinal: usize) -> Result<Self> {
        static DEVICES: Mutex<BTreeMap<usize, CudaDevice>> = Mutex::new(BTreeMap::new());
        if image::IMAGES.is_empty() {
            return Err(Error::NoBackend {
                device: format!("cuda:{ordinal}"),
                reason: "this build has no CUDA kernels; build with --features cuda (scripts/get-nvcc installs the \
                         compiler), or choose the device cpu",
            });
        }
        let mut devices = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(device) = devices.get(&ordinal) {
            return Ok(device.clone());
        }
        let device = Self::with_driver(driver().map_err(failed("load the driver", ordinal))?, ordinal)?;
        devices.insert(ordinal, device.clone());
        Ok(device)
    }

    /// Device number `ordinal` of a driver of the caller's choice, with a context, memory and kernels of its own.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with_driver(driver: &Driver, ordinal: usize) -> Result<Self> {
        Self::with_options(driver, ordinal, Options::from_environment()?)
    }

    /// As [`with_driver`](Self::with_driver), with these options whatever the environment says.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with_options(driver: &Driver, ordinal: usize, options: Options) -> Result<Self> {
        let fail = failed("open the device", ordinal);
        let context = Context::primary(driver, ordinal).map_err(|source| match source.code() {
            Some(sys::CUresult::ERROR_INVALID_DEVICE) => {
                Error::NoSuchDevice { device: ordinal, devices: devices(driver) }
            }
            _ => fail(source),
        })?;
        image::require_target(context.info())?;
        let stream = Stream::new(&context).map_err(&fail)?;
        keep_free_memory(&context).map_err(&fail)?;
        let overlaps = options.overlap && overlaps(context.info(), driver.version().map_err(&fail)?);
        Ok(Self(Arc::new(Inner {
            ordinal,
            stream,
            kernels: Arc::default(),
            options,
            overlaps,
            accounts: Arc::default(),
            recycled: Recycled::default(),
            gate: Gate::default(),
            streams: Streams::default(),
            constants: Growing::default(),
        })))
    }

    /// The same device with a stream of its own, and counters of memory and captures of its own: what is queued here runs beside what
    /// is queued there, as far as there is room. Arrays of the two do not meet in an operation, for nothing orders their work.
    ///
    /// # Errors
    /// [`Error::Cuda`] from the driver.
    pub fn beside(&self) -> Result<Self> {
        let stream = Stream::new(self.context()).map_err(failed("open the device", self.0.ordinal))?;
        Ok(Self(Arc::new(Inner {
            ordinal: self.0.ordinal,
            stream,
            kernels: Arc::clone(&self.0.kernels),
            options: self.0.options,
            overlaps: self.0.overlaps,
            accounts: Arc::default(),
            recycled: Recycled::default(),
            gate: Gate::default(),
            streams: Streams::default(),
            constants: Growing::default(),
        })))
    }

    /// The device's number.
    pub fn ordinal(&self) -> usize {
        self.0.ordinal
    }

    /// The driver's description of the device.
    pub fn info(&self) -> &DeviceInfo {
        self.context().info()
    }

    /// The device's context.
    pub fn context(&self) -> &Context {
        self.0.stream.context()
    }

    /// The stream in which the operators that this thread calls run: the device's own, or inside [`on_stream`](Self::on_stream) the
    /// one given there.
    #[inline]
    pub fn stream(&self) -> &Stream {
        self.0.streams.current().unwrap_or(&self.0.stream)
    }

    /// The stream that belongs to the device.
    pub(crate) fn own_stream(&self) -> &Stream {
        &self.0.stream
    }

    /// Runs `work`; operators that this thread calls on this device meanwhile queue their work in `stream`, a stream of another library
    /// in the device's primary context, or null for its default stream. The library's own captures of the stream hold that work, once
    /// each operator has run outside of one: what the device keeps for later, such as kernels, is made at the first call.
    ///
    /// Arrays that were made in one stream and are read in another are ordered by whoever orders the streams. Those that `work` makes
    /// in memory of the device's pool return to it in the order of `stream`.
    ///
    /// # Safety
    /// `stream` must be such a stream, and live until the arrays that `work` makes are gone and this thread's work in it has been queued.
    ///
    /// # Errors
    /// [`Error::InCapture`] while this thread captures work of the device's own stream; [`Error::Cuda`] from the driver.
    pub unsafe fn on_stream<R>(&self, stream: sys::CUstream, work: impl FnOnce() -> R) -> Result<R> {
        const NAME: &str = "on_stream";
        self.refuse_in_capture(NAME)?;
        self.0.streams.add(stream, || {
            // SAFETY: as the caller says.
            unsafe { Stream::borrow(self.context(), stream) }
        });
        Ok(self.0.streams.scoped(stream, work))
    }

    /// A block of the device's pool, or one that was kept for reuse.
    pub(super) fn obtain(&self, bytes: usize) -> Result<DeviceMemory, gradewise_ffi::Error> {
        let kept = if self.recycles(bytes) { self.0.recycled.take(bytes) } else { None };
        kept.map_or_else(|| DeviceMemory::new(self.stream(), bytes), Ok)
    }

    /// Keeps a block for reuse, or returns it to the pool.
    pub(super) fn keep(&self, block: DeviceMemory) {
        if self.recycles(block.bytes()) && block.stream().raw() == self.own_stream().raw() {
            self.0.recycled.add(block);
        }
    }

    /// Whether a block is small, and the work of this thread in the device's own stream, to which the kept blocks belong.
    fn recycles(&self, bytes: usize) -> bool {
        let is_own_stream = || self.stream().raw() == self.own_stream().raw();
        bytes <= LARGEST_KEPT && self.options().recycle && is_own_stream()
    }

    pub(super) fn recycled(&self) -> &Recycled {
        &self.0.recycled
    }

    /// Waits for everything queued so far.
    ///
    /// # Errors
    /// [`Error::InCapture`] inside a capture; [`Error::Cuda`] with what went wrong in the meantime.
    pub fn synchronize(&self) -> Result<()> {
        const NAME: &str = "synchronize";
        self.refuse_in_capture(NAME)?;
        self.stream().synchronize().map_err(|source| self.error(NAME, source))
    }

    pub(crate) fn kernels(&self) -> &Kernels {
        &self.0.kernels
    }

    /// How operators compute here.
    pub fn options(&self) -> &Options {
        &self.0.options
    }

    /// Whether a kernel may be made ready while the one before it runs.
    pub(crate) fn overlaps(&self) -> bool {
        self.0.overlaps
    }

    /// Whether kernels run that take what sm_90a alone has: warpgroups with matrix instructions, and with registers of their own number.
    pub(crate) fn has_warpgroups(&self) -> bool {
        self.info().compute_capability == (9, 0) && image::build_info().targets.contains(&"90a")
    }

    /// Whether there is such a kernel for this device: embedded, or compiled at run time.
    pub(crate) fn has_kernel(&self, kernel: &Kernel) -> bool {
        self.kernels().has(self.context(), kernel)
    }

    /// How many clusters of a launch run at a time.
    pub(crate) fn clusters_at_a_time(
        &self,
        operation: &'static str,
        kernel: Kernel,
        grid: Grid,
    ) -> Result<usize> {
        let Grid(LaunchConfig { cluster, block, shared, .. }) = grid;
        let ask = || {
            let function = self.kernels().find(self.context(), operation, kernel)?;
            function.clusters(&grid.0).map(ClustersAtATime).map_err(|source| self.error(operation, source))
        };
        let known = self.constant(Key::Launch { kernel: kernel.id(), cluster, block, shared }, ask)?;
        Ok(known.0 as usize)
    }

    pub(crate) fn accounts(&self) -> &Arc<Accounts> {
        &self.0.accounts
    }

    pub(crate) fn gate(&self) -> &Gate {
        &self.0.gate
    }

    /// Refuses what a graph cannot hold, on behalf of `operation`.
    pub(crate) fn refuse_in_capture(&self, operation: &'static str) -> Result<()> {
        if self.gate().is_mine() { Err(Error::InCapture { operation }) } else { Ok(()) }
    }

    /// Something derived once and kept as long as the device.
    pub(crate) fn constant<T: Any + Send + Sync>(
        &self,
        key: Key<&[u8]>,
        make: impl FnOnce() -> Result<T>,
    ) -> Result<Arc<T>> {
        let constants = &self.0.constants;
        let asked = Asked(TypeId::of::<T>(), key);
        let value = match constants.get(&asked) {
            Some(value) => value,
            // Threads that ask for it at once may each make one: making one may need another.
            None => constants.add(asked.kept(), Arc::new(self.lasting(make)?)),
        };
        value.downcast::<T>().map_err(|_| unreachable!("the key has the type"))
    }

    /// Makes something that is kept as long as the device: in memory of its own and in the device's own stream, and waits until it is on
    /// the device, because any stream may use it from then on.
    fn lasting<T>(&self, make: impl FnOnce() -> Result<T>) -> Result<T> {
        const NAME: &str = "make a constant";
        // A capture of the own stream holds no copies from the host, so that what is made in one (kernels, numbers) needs no waiting.
        if self.gate().is_mine() {
            return external::without_allocator(make);
        }
        if self.0.streams.is_elsewhere()
            && self.stream().is_capturing().map_err(|source| self.error(NAME, source))?
        {
            return Err(Error::FirstInCapture);
        }
        let work = || {
            let made = make()?;
            // What waits in a scope in the own stream.
            self.settle().map(|()| made)
        };
        let made = self.0.streams.at_home(|| external::without_allocator(work))?;
        // Waiting for a stream that another thread captures would end the capture.
        let _gate = self.gate().enter();
        self.own_stream().synchronize().map_err(|source| self.error(NAME, source))?;
        Ok(made)
    }

    /// Drops what was derived once and kept, such as the tables of algebras: it is made again when it is needed. It holds the device as the
    /// device holds it, so a device made by [`beside`](Self::beside) goes away only after this. No captured work may be replayed
    /// afterwards.
    pub fn forget_constants(&self) {
        self.0.constants.clear();
    }

    /// Runs `queue`, which queues work for `operation`. In debug mode the work, as `describe` calls it, is kept among the last
    /// launches and waited for; with `GRADEWISE_LAUNCH_BLOCKING=1` (or `CUDA_LAUNCH_BLOCKING=1`) it is waited for.
    #[inline]
    pub(crate) fn queue(
        &self,
        operation: &'static str,
        describe: impl FnOnce() -> String,
        queue: impl FnOnce() -> Result<(), gradewise_ffi::Error>,
    ) -> Result<()> {
        // Kernels that a capture holds back come first.
        self.flush()?;
        if debug::waits() {
            return self.queue_and_wait(operation, describe, queue);
        }
        queue().map_err(|source| self.error(operation, source))
    }

    #[cold]
    fn queue_and_wait(
        &self,
        operation: &'static str,
        describe: impl FnOnce() -> String,
        queue: impl FnOnce() -> Result<(), gradewise_ffi::Error>,
    ) -> Result<()> {
        let kept = debug::is_on();
        if kept {
            debug::keep(operation, describe());
        }
        let captured = self.gate().is_mine();
        let result = queue().and_then(|()| if captured { Ok(()) } else { self.stream().synchronize() });
        if kept {
            debug::settle(match (&result, captured) {
                (Err(_), _) => debug::Outcome::Failed,
                (Ok(()), true) => debug::Outcome::Queued,
                (Ok(()), false) => debug::Outcome::Done,
            });
        }
        result.map_err(|source| self.error(operation, source))
    }

    pub(crate) fn error(&self, operation: &'static str, source: gradewise_ffi::Error) -> Error {
        failed(operation, self.0.ordinal)(source)
    }
}

/// What is kept of an answer of the driver.
struct ClustersAtATime(u32);

/// The driver of this process, loaded once.
pub(crate) fn driver() -> Result<&'static Driver, gradewise_ffi::Error> {
    static DRIVER: OnceLock<Result<Driver, gradewise_ffi::Error>> = OnceLock::new();
    DRIVER.get_or_init(Driver::load).as_ref().map_err(Clone::clone)
}

/// The devices that a driver shows, for readers.
fn devices(driver: &Driver) -> Vec<String> {
    let named = |ordinal| match DeviceInfo::new(driver, ordinal) {
        Ok(info) => format!("cuda:{ordinal} ({})", info.name),
        Err(_) => format!("cuda:{ordinal}"),
    };
    (0..driver.device_count().unwrap_or(0)).map(named).collect()
}

/// Whether launches can overlap: the device can, the driver can capture that, and the code it runs waits where it must.
fn overlaps(info: &DeviceInfo, driver: (u32, u32)) -> bool {
    let code = image::build_info().code_for(info.compute_capability);
    driver >= (12, 3) && code.is_some_and(|code| code.architecture() >= WAITING)
}

/// From this architecture on, kernels are compiled to wait for what is ahead of them (csrc/ptx/grid.cuh).
const WAITING: u32 = 90;

/// Lets the driver's pool keep freed memory for the next allocation instead of returning it at each synchronisation.
fn keep_free_memory(context: &Context) -> Result<(), gradewise_ffi::Error> {
    let mut threshold = u64::MAX;
    let pool = default_pool(context)?;
    // SAFETY: the attribute is a u64; the pool is the device's own and lives as long as the device.
    unsafe {
        context.driver().cuMemPoolSetAttribute(
            pool,
            sys::pool_attribute::RELEASE_THRESHOLD,
            (&raw mut threshold).cast::<c_void>(),
        )
    }
}

pub(super) fn default_pool(context: &Context) -> Result<sys::CUmemoryPool, gradewise_ffi::Error> {
    let mut pool = sys::CUmemoryPool::NULL;
    // SAFETY: the pointer is valid for the write.
    unsafe { context.driver().cuDeviceGetDefaultMemPool(&mut pool, context.info().device)? };
    Ok(pool)
}

impl PartialEq for CudaDevice {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for CudaDevice {}

impl Hash for CudaDevice {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.0).hash(state);
    }
}

impl fmt::Debug for CudaDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CudaDevice({}: {})", self.ordinal(), self.info().name)
    }
}
