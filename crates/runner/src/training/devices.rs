//! The devices of a run, and the processes for them.

use crate::{
    config::{Fallback, Runtime},
    error::{Error, Result},
    output, process,
    run::{FolderLock, GRACE, Interrupt, RunFolder, is_supervised},
    task::Task,
};
use gradewise_distributed::{ChildFailure, DETERMINISTIC, Launch, Plan, Request, Supervisor, Wanted};
use gradewise_ffi::Driver;
use gradewise_kernels::DeviceName;

/// The processes that compute.
pub enum Planned {
    /// This process: alone, or as one of several that a launcher started.
    Here(Option<Launch>),
    /// Processes that this one starts.
    Elsewhere(Plan),
}

/// Plans the devices from the settings and the launcher. A plan for a single device is written into `runtime`.
///
/// # Errors
/// Too few devices; both a launcher and a number of devices; an environment that contradicts itself.
pub fn plan(runtime: &mut Runtime) -> Result<Planned> {
    let launch = Launch::from_env()?;
    let asked =
        runtime.devices != Wanted::Count(1) || runtime.min_devices > 0 || runtime.fallback != Fallback::None;
    if let Some(launch) = launch.as_ref().filter(|_| is_supervised()) {
        settle(runtime, launch.world);
    } else if asked {
        return start(runtime, launch);
    }
    Ok(Planned::Here(launch))
}

/// Writes the resolved plan into the run's configuration.
fn settle(runtime: &mut Runtime, devices: usize) {
    (runtime.devices, runtime.min_devices) = (Wanted::Count(devices), 0);
    runtime.fallback = Fallback::None;
}

/// As [`plan`], if devices are requested.
fn start(runtime: &mut Runtime, launch: Option<Launch>) -> Result<Planned> {
    if let Some(launch) = launch {
        return Err(Error::Usage(format!(
            "--devices (runtime.devices) starts processes, and this one was started by {} as one of {} already; leave one of \
             the two out, the former by runtime.devices=1",
            launch.launcher, launch.world
        )));
    }
    let request = Request {
        wanted: runtime.devices,
        minimum: (runtime.min_devices > 0).then_some(runtime.min_devices),
        fallback: runtime.fallback == Fallback::Cpu,
    };
    let plan = match runtime.device {
        DeviceName::Cpu => request.processes()?,
        DeviceName::Cuda(None) => {
            let found = Driver::load().and_then(|driver| driver.device_count());
            let lacking = found.as_ref().err().map(ToString::to_string).unwrap_or_default();
            request.gpus(found.unwrap_or(0), &lacking)?
        }
        other @ DeviceName::Cuda(Some(_)) => {
            return Err(Error::Usage(format!("--devices with --device {other}: write --device cuda or cpu")));
        }
    };
    output::note(&format!("devices: {plan}"));
    match plan.devices.as_slice() {
        [one] => {
            runtime.device = one.parse()?;
            settle(runtime, 1);
            Ok(Planned::Here(None))
        }
        _ => Ok(Planned::Elsewhere(plan)),
    }
}

/// Starts and supervises the processes of a plan, with the arguments of this process.
///
/// # Errors
/// The first process that failed, and how.
pub fn supervise<T: Task>(arguments: &super::Request<'_>, plan: &Plan, deterministic: bool) -> Result<()> {
    let (program, mut own) = process::command()?;
    // Released at once, because rank 0 takes it; the logs are written by this process until the end.
    let folder = match arguments.resume {
        Some(folder) => RunFolder::open(folder)?.locked()?.path().to_owned(),
        None => {
            let folder = RunFolder::create(arguments.out, T::NAME)?.path().to_owned();
            if arguments.out.is_none() {
                own.extend(["--out".into(), folder.clone().into()]);
            }
            folder
        }
    };
    let supervisor = Supervisor {
        program,
        arguments: own,
        variables: nccl_variables(deterministic),
        world: plan.devices.len(),
        logs: folder.join("logs"),
        grace: 2 * GRACE,
    };
    std::fs::create_dir_all(&supervisor.logs)
        .map_err(|error| Error::Output { path: supervisor.logs.clone(), reason: error.to_string() })?;
    let _logs = FolderLock::take(&supervisor.logs)?;
    let interrupt = Interrupt::listen();
    match supervisor.run(|| interrupt.requested())? {
        None => Ok(()),
        Some(failure) if interrupt.requested() && failure.rank == 0 && failure.status.code() == Some(1) => {
            Err(Error::Interrupted("the processes have ended as asked".to_owned()))
        }
        Some(failure) => Err(Error::Failed(describe(&failure))),
    }
}

/// NCCL variables for the processes, unless the environment sets them.
pub fn nccl_variables(deterministic: bool) -> Vec<(String, String)> {
    let wanted = if deterministic { &DETERMINISTIC[..] } else { &[] };
    // Captured buffers must be registered by all processes in the same step, which fails if one process records its graph again.
    let all = wanted.iter().chain(&[("NCCL_GRAPH_REGISTER", "0")]);
    let unset = all.filter(|(name, _)| std::env::var_os(name).is_none());
    unset.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// Describes how a process failed.
pub fn describe(failure: &ChildFailure) -> String {
    let ChildFailure { rank, status, said, log } = failure;
    let mut text = format!("rank {rank} failed first, with {status}");
    if let Some(log) = log {
        text += &format!("; its words are in {}", log.display());
        if !said.is_empty() {
            text += &format!(", at the end:\n{said}");
        }
    }
    text
}
