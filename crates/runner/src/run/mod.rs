//! The environment of a run: device, folder, interrupts, and monitoring.

mod contents;
mod deterministic;
mod dump;
mod energy;
pub mod environment;
mod failure;
mod folder;
mod interrupt;
mod lock;
mod memory;
mod pool;
mod predictions;
mod progress;
mod sampler;
mod target;
mod team;

pub use contents::Contents;
pub use deterministic::require_deterministic;
pub use dump::{DumpRequest, dumped};
pub use energy::Energy;
pub use failure::remember_panics;
pub use folder::RunFolder;
pub use interrupt::Interrupt;
pub use lock::FolderLock;
pub use memory::Memory;
pub(crate) use pool::{Caller, mark_main_thread};
pub use predictions::{PredictionFile, require_finite};
pub use progress::Progress;
pub use sampler::Sampler;
pub use target::Target;
pub use team::{GRACE, Team, is_supervised, obey_supervisor};

use crate::{
    config::Runtime,
    error::{Error, Result},
};
use gradewise_autograd::{
    backend::{self, Backend, Backends},
    detect_anomalies,
    observe::Pass,
};
use gradewise_distributed::Launch;
use gradewise_kernels::{
    BuildInfo, Compute, DType, Device, DeviceName, build_info, debug,
    memory::census::{self, Detail},
};
use gradewise_nn::{Placement, optim::MixedPrecision};
use std::collections::BTreeMap;

/// The device of one of several processes.
fn device_of(device: DeviceName, launch: &Launch) -> Result<DeviceName> {
    match device {
        // A launcher may make only its own device visible to each process.
        DeviceName::Cuda(None)
            if gradewise_ffi::Driver::load().and_then(|driver| driver.device_count()) == Ok(1) =>
        {
            Ok(DeviceName::Cuda(Some(0)))
        }
        DeviceName::Cuda(None) => Ok(DeviceName::Cuda(Some(launch.local_rank))),
        DeviceName::Cuda(Some(_)) => Err(Error::Usage(format!(
            "--device {device} is one device for {} processes; write --device cuda, and each takes its own",
            launch.world
        ))),
        DeviceName::Cpu => Ok(DeviceName::Cpu),
    }
}

/// Sets up the threads and finds the device and dtype to compute with.
///
/// # Errors
/// A device, dtype or arithmetic that is not available.
pub fn placement(runtime: &Runtime) -> Result<Placement> {
    placement_of(runtime, None)
}

/// Runs `work` with the [`placement`] of the settings. In debug mode, which an option, a configuration file or the environment may enable,
/// it stops at the first operation that produces a NaN or an infinity.
///
/// # Errors
/// As [`placement`]; whatever `work` returns.
pub fn once<R>(runtime: &Runtime, work: impl FnOnce(&Placement) -> Result<R>) -> Result<R> {
    let placement = placement(runtime)?;
    if debug::is_on() { detect_anomalies(|| work(&placement)) } else { work(&placement) }
}

/// The placement of new batches: on the host, because steps on a GPU copy them to where the captured work reads them.
pub fn loading(placement: &Placement) -> Placement {
    Placement::new(&Device::Cpu, placement.dtype)
}

/// As [`placement`], for one of several processes: each gets its own device, or its share of the cores.
///
/// # Errors
/// As [`placement`]; one device for several processes.
pub fn placement_of(runtime: &Runtime, launch: Option<&Launch>) -> Result<Placement> {
    placement_for(Caller::This, runtime, launch)
}

/// As [`placement_of`], for work that `caller` asks for.
///
/// # Errors
/// As [`placement_of`].
pub(crate) fn placement_for(caller: Caller, runtime: &Runtime, launch: Option<&Launch>) -> Result<Placement> {
    let mut runtime = runtime.clone();
    if let Some(launch) = launch {
        runtime.device = device_of(runtime.device, launch)?;
        if runtime.threads == 0 {
            let cores = std::thread::available_parallelism().map_or(1, usize::from);
            runtime.threads = (cores / launch.local_world.unwrap_or(1)).max(1);
        }
    }
    if runtime.debug_cuda {
        debug::set(true);
    }
    // Before the device is opened, because the information helps if that fails.
    if debug::is_on() {
        crate::doctor::introduce(runtime.device);
    }
    let device = runtime.device.open()?;
    if debug::is_on() {
        crate::output::note(&debugged(&device, &build_info()));
    }
    let dtype = runtime.dtype;
    if device == Device::Cpu && dtype.is_short() {
        // The error of the operators would advise a cast, which is not possible on a command line.
        return Err(Error::Usage(format!(
            "runtime.dtype: {dtype} as storage is not supported on cpu, which has f32 and f64; mixed precision computes \
             products in {dtype} and keeps weights in f32: --precision {dtype}"
        )));
    }
    device.require(dtype, "runtime.dtype")?;
    device.limit_memory(runtime.memory_mib.saturating_mul(1 << 20));
    choose_backends(&runtime.backends)?;
    if runtime.compute == Compute::Tf32 && device == Device::Cpu {
        return Err(Error::Usage(
            "compute tf32 is arithmetic of CUDA tensor cores and the device is cpu; choose --compute exact"
                .to_owned(),
        ));
    }
    runtime.compute.set_default();
    // With a GPU the main thread queues work for that, and the pool prepares data.
    pool::set_up(runtime.threads, if device == Device::Cpu { caller } else { Caller::Others });
    Ok(Placement::new(&device, dtype))
}

/// Starts the census of live arrays, with the detail of the settings or at least `least`.
pub fn census(runtime: &Runtime, least: impl Into<Option<Detail>>) {
    if let Some(detail) = runtime.census.detail().or(least.into()) {
        census::start(detail);
    }
}

/// Describes debug mode on a device.
fn debugged(device: &Device, build: &BuildInfo) -> String {
    let mut text =
        "debug mode: new memory is poisoned, every result is checked for NaN, infinities and unwritten \
                    elements"
            .to_owned();
    if matches!(device, Device::Cuda(_)) {
        text += ", every launch is waited for and kept";
        text += if build.assertions {
            "; kernels have their assertions"
        } else {
            "; the kernels of this build have no assertions, for which it must be built with GRADEWISE_DEBUG_CUDA=1"
        };
    }
    text
}

/// Chooses the implementations of operations by the configuration and `GRADEWISE_BACKEND`, and reports them once.
fn choose_backends(chosen: &BTreeMap<String, Backend>) -> Result<()> {
    let usage = |error: gradewise_autograd::Error| Error::Usage(error.to_string());
    let environment = backend::from_environment().map_err(usage)?;
    let refused = |reason: &dyn std::fmt::Display| Error::Usage(format!("runtime.backends: {reason}"));
    let mut configured = Backends::default();
    for (target, backend) in chosen {
        let (operation, pass) = match target.rsplit_once('.') {
            Some((operation, "forward")) => (operation, Some(Pass::Forward)),
            Some((operation, "backward")) => (operation, Some(Pass::Backward)),
            Some((_, other)) => {
                let reason = format!("`{other}` is no pass; write .forward or .backward, or neither");
                return Err(refused(&reason));
            }
            None => (target.as_str(), None),
        };
        configured.choose(operation, pass, *backend).map_err(|error| refused(&error))?;
    }
    for (source, backends) in [("GRADEWISE_BACKEND", environment), ("runtime.backends", &configured)] {
        if !backends.is_empty() {
            crate::output::note(&format!("backends by {source}: {backends}"));
        }
    }
    backend::set_default(configured);
    Ok(())
}

/// The mixed precision of a run, if it has one. Call this after the model is made, which may add operations.
///
/// # Errors
/// Rules for unknown operations, in full precision, too: there a wrong name would wait for the day that the rules are used.
pub fn mixed_precision(runtime: &Runtime) -> Result<Option<MixedPrecision>> {
    let usage = |error: gradewise_autograd::Error| Error::Usage(format!("runtime.autocast: {error}"));
    let products = runtime.precision.products();
    let mut precision = MixedPrecision::new(products.unwrap_or(DType::BF16))?;
    for (operation, rule) in &runtime.autocast {
        precision.policy = precision.policy.with(operation, *rule).map_err(usage)?;
    }
    if products.is_none() {
        return Ok(None);
    }
    if let Some(scaler) = &mut precision.scaler
        && runtime.loss_scale > 0.0
    {
        scaler.initial = runtime.loss_scale;
    }
    Ok(Some(precision))
}
