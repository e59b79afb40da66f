//! Fused kernels: a capture records what operators on elements compute, and launches kernels generated for several of them at once.
//!
//! While a thread captures, an operator that knows how its elements follow from those of its operands does not launch its kernel: it
//! [describes](defer) the value. The value is computed once a kernel that knows no more than addresses gets one of an array that waits, or
//! when the capture ends. A generated kernel computes it, with everything that it follows from and that waits too: in registers, at the
//! positions that it needs. Values that are gone by then, as nothing holds their array any more, are never written.
//!
//! The bits are those of the operators' own kernels: generated kernels call the same functions of elements (csrc/gradewise/functions.cuh), in
//! the same order, and round wherever those round. A value that waits alone is computed by its operator's own kernel.
//!
//! Kernels are compiled between captures: the first capture finds out which are missing, and is repeated. Without a compiler, operators are
//! launched as without this module.

mod pending;
mod plan;
mod source;
#[cfg(test)]
mod tests;
mod value;

pub(crate) use value::{Axes, Columns, Description, Function, Groups, Operand};

use super::{
    Args, CudaDevice, Grid, Kernel,
    generated::{self, Code, Library},
    submit::submit_function,
};
use crate::Result;
use gradewise_ffi::LaunchConfig;
use pending::{Id, Pending};
use plan::Work;
use source::Source;
use std::{cell::RefCell, collections::BTreeMap, sync::Arc};
use value::{Own, Value};

/// Threads of a block of a generated kernel.
const THREADS: u32 = 128;

/// Values that wait, of a capture of this thread.
struct Recording {
    device: CudaDevice,
    library: Arc<Library>,
    pending: Pending,
    /// Kernels that were not compiled when they were needed. From the first on, the graph is not what it should be.
    missing: Vec<Source>,
    /// Launches of kernels that no generated one replaces, by operator, for the log.
    launched: BTreeMap<&'static str, usize>,
    fused: usize,
}

thread_local! {
    /// A thread captures several devices at most one inside the other.
    static RECORDINGS: RefCell<Vec<Recording>> = const { RefCell::new(Vec::new()) };
}

/// What a capture that recorded values lacks.
pub(super) struct Missing {
    library: Arc<Library>,
    sources: Vec<Source>,
}

impl Missing {
    pub fn is_empty(&self) -> bool {
        self.sources.is_empty()
    }

    /// Compiles the kernels, so that another capture finds them.
    pub fn compile(&self, device: &CudaDevice) {
        let codes: Vec<&Code> = self.sources.iter().map(|source| &source.code).collect();
        self.library.compile(device, &codes);
    }
}

/// Whether kernels can be generated for `device`.
pub(super) fn is_possible() -> bool {
    generated::has_compiler()
}

/// From here on, values of this thread on `device` wait.
pub(super) fn begin(device: &CudaDevice) -> Result<()> {
    let library = Library::of(device)?;
    let recording = Recording {
        device: device.clone(),
        library,
        pending: Pending::default(),
        missing: Vec::new(),
        launched: BTreeMap::new(),
        fused: 0,
    };
    RECORDINGS.with_borrow_mut(|recordings| recordings.push(recording));
    Ok(())
}

/// Computes what still waits and may be read, and ends what [`begin`] began; without computing anything if the capture failed.
pub(super) fn end(device: &CudaDevice, failed: bool) -> Result<Missing> {
    let computed = if failed { Ok(()) } else { settle(device) };
    let position =
        RECORDINGS.with_borrow(|all| all.iter().rposition(|recording| recording.device == *device));
    let Some(position) = position else { unreachable!("a recording ends where it began") };
    let Recording { library, missing, pending, launched, fused, .. } =
        RECORDINGS.with_borrow_mut(|recordings| recordings.remove(position));
    drop(pending);
    if missing.is_empty() {
        tracing::debug!("captured {fused} fused kernels, and others by operator: {launched:?}");
    }
    computed?;
    Ok(Missing { library, sources: missing })
}

/// Whether operators of this thread on `device` should describe their values.
pub(crate) fn is_recording(device: &CudaDevice) -> bool {
    device.gate().is_mine()
        && RECORDINGS.with_borrow(|all| all.iter().any(|recording| recording.device == *device))
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
    let own = Own { kernel, grid, args: args.into_owned() };
    let value = Value { operation, function, operands, out, dtype, elements, own };
    let before = with(device, |recording| recording.pending.before(&value)).unwrap_or_default();
    compute(device, &before)?;
    with(device, |recording| recording.pending.add(value));
    Ok(())
}

/// Computes the values in whose memory one of these words points: those of the arguments of a kernel that is launched next.
pub(super) fn settle_touched(
    device: &CudaDevice,
    operation: &'static str,
    words: impl Iterator<Item = u64>,
) -> Result<()> {
    let touched = with(device, |recording| {
        *recording.launched.entry(operation).or_insert(0) += 1;
        if recording.pending.is_empty() { Vec::new() } else { recording.pending.touched(words) }
    });
    compute(device, &touched.unwrap_or_default())
}

/// Whether the value in whose memory an address is waits.
pub(super) fn is_waiting(device: &CudaDevice, address: u64) -> bool {
    with(device, |recording| !recording.pending.touched(std::iter::once(address)).is_empty()).unwrap_or(false)
}

/// Computes the value in whose memory an address is.
pub(super) fn settle_at(device: &CudaDevice, address: u64) -> Result<()> {
    let touched = with(device, |recording| recording.pending.touched(std::iter::once(address)));
    compute(device, &touched.unwrap_or_default())
}

/// Computes all values that something may still read.
pub(super) fn settle(device: &CudaDevice) -> Result<()> {
    let wanted = with(device, |recording| {
        recording.pending.sweep();
        recording.pending.wanted()
    });
    compute(device, &wanted.unwrap_or_default())
}

/// Launches kernels that compute these values.
fn compute(device: &CudaDevice, targets: &[Id]) -> Result<()> {
    if targets.is_empty() {
        return Ok(());
    }
    let work = with(device, |recording| {
        recording.pending.sweep();
        let work = plan::compute(&mut recording.pending, targets);
        for work in &work {
            match work {
                Work::Own(value) => *recording.launched.entry(value.operation).or_insert(0) += 1,
                Work::Fused { .. } => recording.fused += 1,
            }
        }
        (work, Arc::clone(&recording.library))
    });
    let Some((work, library)) = work else { return Ok(()) };
    for work in work {
        match work {
            Work::Own(value) => launch_own(device, *value)?,
            Work::Fused { source, values } => match library.find(&source.code) {
                Some(Some(function)) => {
                    let blocks = source.elements.div_ceil(THREADS as usize).clamp(1, 1 << 16);
                    let mut grid = Grid::blocks(blocks, THREADS);
                    grid.0 = LaunchConfig { overlapped: device.overlaps(), ..grid.0 };
                    let args =
                        source.addresses.iter().fold(Args::new(), |args, &address| args.pointer(address));
                    // SAFETY: 1: the parameters are the arrays whose addresses these are, of the dtypes in the text, in which sizes and
                    // strides are constants. 2: what it writes are new arrays, which nothing has read yet. 3: linear, the kernel strides.
                    // 4: `values` and those that wait keep the arrays. 5: it begins by waiting.
                    unsafe { submit_function(device, "fused operators", &function, grid, args)? };
                }
                Some(None) => {
                    let all = with(device, |recording| recording.pending.one_by_one(values));
                    all.into_iter().flatten().try_for_each(|value| launch_own(device, value))?;
                }
                None => {
                    with(device, |recording| recording.missing.push(source));
                }
            },
        }
    }
    Ok(())
}

/// Launches the operator's own kernel.
fn launch_own(device: &CudaDevice, value: Value) -> Result<()> {
    let Own { kernel, mut grid, args } = value.own;
    grid.0.overlapped = device.overlaps();
    let function = device.kernels().function(device.context(), value.operation, kernel, &args.all.sizes())?;
    // SAFETY: 1 to 3: as the launcher vouched when it described the value. 4: the value keeps its operands and its array. 5: every kernel of
    // csrc begins by waiting.
    unsafe { submit_function(device, value.operation, &function, grid, args) }
}
