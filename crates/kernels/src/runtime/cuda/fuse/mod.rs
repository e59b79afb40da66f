//! Fused kernels: what operators on elements compute is recorded, and kernels generated for several of them at once are launched.
//!
//! While a thread captures, or in a [scope](CudaDevice::fused) of its own, an operator that knows how its elements follow from those of its
//! operands does not launch its kernel: it [describes](defer) the value. The value is computed once a kernel that knows no more than addresses
//! gets one of an array that waits, or when the capture or the scope ends. A generated kernel computes it, with everything that it follows from
//! and that waits too: in registers, at the positions that it needs. Values that are gone by then, as nothing holds their array any more, are
//! never written.
//!
//! The bits are those of the operators' own kernels: generated kernels call the same functions of elements (csrc/gradewise/functions.cuh), in
//! the same order, and round wherever those round. A value that waits alone is computed by its operator's own kernel.
//!
//! Kernels are compiled between captures: the first capture finds out which are missing, and is repeated. A scope compiles what it needs at
//! once. Without a compiler, operators are launched as without this module.

mod parts;
mod pending;
mod plan;
mod source;
mod stages;
mod sums;
#[cfg(test)]
mod tests;
mod value;

#[cfg(test)]
pub(crate) use stages::List;
pub(crate) use sums::{PartialSum, defer as defer_sum};
pub(crate) use value::{Axes, Columns, Description, Function, Groups, Operand};

use super::{
    Args, CudaDevice, Grid, Kernel,
    generated::{self, Code, Library},
    submit::submit_function,
};
use crate::Result;
use gradewise_ffi::{LaunchConfig, sys::CUstream};
use parts::Runs;
use pending::{Id, Pending};
use plan::Work;
use stages::{Launch, Stage};
use std::{cell::RefCell, collections::BTreeMap, sync::Arc};
use sums::PartialSums;
use value::{Own, Value};

/// Threads of a block of a generated kernel.
const THREADS: u32 = 128;

/// The unit tests of this crate have no kernels but generated ones.
const HAS_OWN_KERNELS: bool = !cfg!(test);

/// What a thread records values in.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Extent {
    /// A capture of the device.
    Capture,
    /// Work that runs in this stream, or that another library captures: then nothing is compiled meanwhile.
    Stream { stream: CUstream, is_captured: bool },
}

/// Values that wait, of a capture or a scope of this thread.
struct Recording {
    device: CudaDevice,
    extent: Extent,
    library: Arc<Library>,
    pending: Pending,
    /// Sums of partial results that wait beside the values.
    sums: PartialSums,
    /// Kernels that will be launched before anything else is.
    queue: Vec<Stage>,
    /// How the arrays of earlier kernels fell into parts.
    runs: Runs,
    /// Kernels that were not compiled when they were needed. From the first on, a graph is not what it should be.
    missing: Vec<Code>,
    /// Launches of kernels that no generated one replaces, by operator, for the log.
    launched: BTreeMap<&'static str, usize>,
    fused: usize,
}

impl Recording {
    /// Whether operators of this thread on its device belong to it.
    fn is_in_force(&self) -> bool {
        let captures = self.device.gate().is_mine();
        match self.extent {
            Extent::Capture => captures,
            Extent::Stream { stream, .. } => !captures && self.device.stream().raw() == stream,
        }
    }
}

thread_local! {
    /// A thread captures several devices at most one inside the other.
    static RECORDINGS: RefCell<Vec<Recording>> = const { RefCell::new(Vec::new()) };
}

/// What a capture or a scope that recorded values lacks.
pub(super) struct Missing {
    library: Arc<Library>,
    codes: Vec<Code>,
}

impl Missing {
    pub fn is_empty(&self) -> bool {
        self.codes.is_empty()
    }

    /// Compiles the kernels, so that the next one finds them.
    pub fn compile(&self, device: &CudaDevice) {
        let codes: Vec<&Code> = self.codes.iter().collect();
        self.library.compile(device, &codes);
    }
}

/// Whether kernels can be generated for `device`.
pub(super) fn is_possible() -> bool {
    generated::has_compiler()
}

/// From here on, values of this thread on `device` wait.
pub(super) fn begin(device: &CudaDevice, extent: Extent) -> Result<()> {
    let library = Library::of(device)?;
    let recording = Recording {
        device: device.clone(),
        extent,
        library,
        pending: Pending::default(),
        sums: PartialSums::default(),
        queue: Vec::new(),
        runs: Runs::new(),
        missing: Vec::new(),
        launched: BTreeMap::new(),
        fused: 0,
    };
    RECORDINGS.with_borrow_mut(|recordings| recordings.push(recording));
    Ok(())
}

/// Computes what still waits and may be read, and ends what [`begin`] began; without computing anything if the work failed.
pub(super) fn end(device: &CudaDevice, failed: bool) -> Result<Missing> {
    let computed = if failed { Ok(()) } else { settle(device) };
    let position =
        RECORDINGS.with_borrow(|all| all.iter().rposition(|recording| recording.device == *device));
    let Some(position) = position else { unreachable!("a recording ends where it began") };
    let Recording { library, missing, pending, launched, fused, .. } =
        RECORDINGS.with_borrow_mut(|recordings| recordings.remove(position));
    drop(pending);
    if missing.is_empty() {
        tracing::debug!("{fused} fused kernels, and others by operator: {launched:?}");
    }
    computed?;
    Ok(Missing { library, codes: missing })
}

/// Whether operators of this thread on `device` should describe their values.
pub(crate) fn is_recording(device: &CudaDevice) -> bool {
    RECORDINGS
        .with_borrow(|all| all.iter().any(|recording| recording.device == *device && recording.is_in_force()))
}

/// Runs `work` on the recording of `device`, if there is one.
fn with<R>(device: &CudaDevice, work: impl FnOnce(&mut Recording) -> R) -> Option<R> {
    RECORDINGS.with_borrow_mut(|all| all.iter_mut().rfind(|recording| recording.device == *device).map(work))
}

/// Lets a value wait instead of launching the kernel that computes it.
pub(super) fn defer(
    device: &CudaDevice,
    operation: &'static str,
    kernel: Kernel,
    grid: Grid,
    args: Args<'_>,
    description: Description,
) -> Result<()> {
    let Description { function, operands, out, dtype, elements } = description;
    // Generated kernels read memory.
    sums::settle_touched(device, operands.iter().map(|operand| operand.buffer.pointer()))?;
    let own = Own { kernel, grid, args: args.into_owned() };
    let value = Value { operation, function, operands, out, dtype, elements, own };
    let before = with(device, |recording| recording.pending.before(&value)).unwrap_or_default();
    compute(device, &before)?;
    with(device, |recording| recording.pending.add(value));
    Ok(())
}

/// Whether a value may wait here. The lists of an index are known by their addresses alone, and nothing but a capture keeps them.
pub(super) fn may_wait(device: &CudaDevice, description: &Description) -> bool {
    let captures = with(device, |recording| recording.extent == Extent::Capture).unwrap_or(false);
    captures || !HAS_OWN_KERNELS || !description.function.reads_lists()
}

/// Computes the values in whose memory one of the arguments of a kernel points that is launched next.
pub(super) fn settle_touched(device: &CudaDevice, operation: &'static str, args: &Args<'_>) -> Result<()> {
    sums::settle_touched(device, args.all.words())?;
    let touched = with(device, |recording| {
        *recording.launched.entry(operation).or_insert(0) += 1;
        if recording.pending.is_empty() { Vec::new() } else { recording.pending.touched(args.all.words()) }
    });
    compute(device, &touched.unwrap_or_default())
}

/// Whether the value in whose memory an address is waits.
pub(super) fn is_waiting(device: &CudaDevice, address: u64) -> bool {
    let word = || std::iter::once(address);
    let waits = |recording: &mut Recording| {
        recording.sums.is_touched(word()) || !recording.pending.touched(word()).is_empty()
    };
    with(device, waits).unwrap_or(false)
}

/// Computes the value in whose memory an address is.
pub(super) fn settle_at(device: &CudaDevice, address: u64) -> Result<()> {
    sums::settle_touched(device, std::iter::once(address))?;
    let touched = with(device, |recording| recording.pending.touched(std::iter::once(address)));
    compute(device, &touched.unwrap_or_default())
}

/// Computes all values that something may still read.
pub(super) fn settle(device: &CudaDevice) -> Result<()> {
    sums::settle(device)?;
    let wanted = with(device, |recording| {
        recording.pending.sweep();
        recording.pending.wanted()
    });
    compute(device, &wanted.unwrap_or_default())?;
    flush(device)
}

/// The most kernels that are queued.
const MOST_QUEUED: usize = 1024;

/// Queues kernels that compute these values.
fn compute(device: &CudaDevice, targets: &[Id]) -> Result<()> {
    if targets.is_empty() {
        return Ok(());
    }
    let work = with(device, |recording| {
        recording.pending.sweep();
        // A capture holds all memory that is let go until its queue is launched.
        let keeps = recording.extent != Extent::Capture;
        (plan::compute(&mut recording.pending, targets, keeps), Arc::clone(&recording.library))
    });
    let Some((work, library)) = work else { return Ok(()) };
    // Without a kernel for some of it, those of the operators for all: a kernel computes again what is another's result here.
    let is_lacking = |work: &Work| !work.is_alone && is_missing(device, &library, &work.source.code);
    if work.iter().any(is_lacking) {
        flush(device)?;
        let values = work.into_iter().flat_map(|work| work.values).collect();
        let all = with(device, |recording| recording.pending.one_by_one(values));
        return all.into_iter().flatten().try_for_each(|Value { operation, own, .. }| {
            with(device, |recording| *recording.launched.entry(operation).or_insert(0) += 1);
            launch_own(device, operation, own)
        });
    }
    for work in work {
        let Work { source, values, is_alone, arrays } = work;
        // What holds the arrays goes: memory that the queue reads or writes stays as it is.
        device.hold_memory(true);
        let own = if is_alone {
            values.into_values().next().map(|Value { operation, own, .. }| (operation, own))
        } else {
            None
        };
        let stage = Stage { source, own, arrays };
        let is_last = !stage.is_small();
        let queued = with(device, |recording| {
            recording.queue.push(stage);
            recording.queue.len()
        });
        if is_last || queued.unwrap_or_default() >= MOST_QUEUED {
            flush(device)?;
        }
    }
    Ok(())
}

/// Whether a generated kernel cannot be had. One that a capture has not compiled yet is noted when it is launched.
fn is_missing(device: &CudaDevice, library: &Library, code: &Code) -> bool {
    if let Some(found) = library.find(code) {
        return found.is_none();
    }
    let extent = with(device, |recording| recording.extent);
    match extent {
        Some(Extent::Stream { is_captured, .. }) if HAS_OWN_KERNELS => {
            is_captured || library.get(device, code).is_none()
        }
        _ => false,
    }
}

/// Launches what is queued.
pub(super) fn flush(device: &CudaDevice) -> Result<()> {
    let work = with(device, |recording| {
        let queue = std::mem::take(&mut recording.queue);
        if queue.is_empty() { Vec::new() } else { stages::launches(queue, &mut recording.runs) }
    });
    let work = work.unwrap_or_default();
    if work.is_empty() {
        return Ok(());
    }
    work.into_iter().try_for_each(|work| launch(device, work))?;
    device.hold_memory(false);
    Ok(())
}

fn launch(device: &CudaDevice, work: Launch) -> Result<()> {
    let Some(library) = with(device, |recording| Arc::clone(&recording.library)) else { return Ok(()) };
    match work {
        Launch::One(stage) => {
            let Stage { source, own, arrays: _arrays } = *stage;
            if let Some((operation, own)) = own {
                with(device, |recording| *recording.launched.entry(operation).or_insert(0) += 1);
                return launch_own(device, operation, own);
            }
            let blocks = source.elements.div_ceil(THREADS as usize).clamp(1, 1 << 16);
            let args = source.addresses.iter().fold(Args::new(), |args, &address| args.pointer(address));
            launch_or_miss(device, &library, source.code, (blocks, THREADS), args)
        }
        Launch::Several { code, list, blocks, threads, stages } => {
            // Those of its stages, where it cannot be had.
            if is_missing(device, &library, &code) {
                return stages.into_iter().try_for_each(|stage| launch(device, Launch::One(Box::new(stage))));
            }
            let args = Args::new().large(&*list);
            launch_or_miss(device, &library, code, (blocks, threads), args)
        }
    }
}

/// Launches a generated kernel, or notes that it has to be compiled.
fn launch_or_miss(
    device: &CudaDevice,
    library: &Library,
    code: Code,
    (blocks, threads): (usize, u32),
    args: Args<'_>,
) -> Result<()> {
    let Some(Some(function)) = library.find(&code) else {
        with(device, |recording| recording.missing.push(code));
        return Ok(());
    };
    with(device, |recording| recording.fused += 1);
    let mut grid = Grid::blocks(blocks, threads);
    grid.0 = LaunchConfig { overlapped: device.overlaps(), ..grid.0 };
    // SAFETY: 1: the parameters are the arrays whose addresses these are, of the dtypes in the text, in which sizes and strides are
    // constants; those of a kernel of stages are a list of them. 2: what it writes are new arrays, which nothing has read yet; of several
    // stages, a block writes what no other one reads. 3: linear, the kernel strides, or has a block for each part. 4: memory of the capture
    // that the arrays were in is held until the queue is launched, and memory from before by the graph. 5: it begins by waiting.
    unsafe { submit_function(device, "fused operators", &function, grid, args) }
}

/// Launches the operator's own kernel.
fn launch_own(device: &CudaDevice, operation: &'static str, own: Own) -> Result<()> {
    let Own { kernel, mut grid, args } = own;
    grid.0.overlapped = device.overlaps();
    let function = device.kernels().function(device.context(), operation, kernel, &args.all.sizes())?;
    // SAFETY: 1 to 3: as the launcher vouched when it described the value. 4: as for generated kernels. 5: every kernel of csrc begins by
    // waiting.
    unsafe { submit_function(device, operation, &function, grid, args) }
}
