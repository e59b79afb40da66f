//! Steps with timings of every operation and of their parts.

use super::{
    failed,
    stepper::{Batches, Stepper},
};
use crate::{
    error::Result,
    task::{Batch, Task},
};
use gradewise_autograd::observe::observe;
use gradewise_bench::{
    gpu::Timer,
    profile::{Clock, CopyRow, NamedTime, Recorder, Recording, Timers},
};
use gradewise_ffi::DeviceMemory;
use gradewise_kernels::{Device, transfers};
use std::cell::RefCell;

/// The recorded steps.
pub(super) struct Recorded {
    pub(super) recordings: Vec<Recording>,
    /// Mean time of a step by the clock of the device.
    pub(super) step_seconds: f64,
    pub(super) parts: Vec<NamedTime>,
    /// Copies between host and device.
    pub(super) copies: Vec<CopyRow>,
}

/// Takes steps and records every operation.
pub(super) fn record<T: Task>(
    stepper: &mut Stepper<T>,
    batches: Batches<'_, T>,
    device: &Device,
    steps: usize,
    eager_seconds: f64,
) -> Result<Recorded> {
    let clock = Clock::new(device);
    let filler = Filler::new(device, eager_seconds)?;
    let (mut recordings, mut total) = (Vec::new(), 0.0);
    for _ in 0..steps {
        let begun = RefCell::new(None);
        let loss = |model: &T::Model, batch: &Batch<T>| {
            let mut begun = begun.borrow_mut();
            if begun.is_none() {
                filler.queue()?;
                *begun = Some(clock.mark()?);
            }
            T::loss(model, batch)
        };
        let (report, recorder) = observe(Recorder::new(&clock), || stepper.step(batches, loss));
        report?;
        let end = clock.mark()?;
        clock.wait().map_err(failed)?;
        if let Some(start) = begun.into_inner() {
            total += end.since(&start).map_err(failed)?;
        }
        recordings.push(recorder.finish());
    }
    // Parts are timed in a separate pass, so that the events of operations do not disturb them.
    let timers = Timers::new(device);
    for _ in 0..steps {
        timers.time("step", || {
            let mut waited = std::iter::from_fn(|| timers.time("wait for a batch", || batches.next()));
            stepper.step(&mut waited, |model, batch| timers.time("forward", || T::loss(model, batch)))
        })?;
    }
    let parts = timers.report().map_err(failed)?;
    // Also a separate pass, because timing waits for each copy.
    let (taken, transfers) =
        transfers::watched(|| (0..steps).try_for_each(|_| stepper.step(batches, T::loss).map(drop)));
    taken?;
    let copies = CopyRow::of(&transfers, steps);
    Ok(Recorded { recordings, step_seconds: total / steps as f64, parts, copies })
}

/// Keeps a GPU busy while the host queues a step, so that the times of operations contain no waiting for the host.
struct Filler(Option<(gradewise_kernels::CudaDevice, [DeviceMemory; 2], usize)>);

impl Filler {
    const BYTES: usize = 256 << 20;

    fn new(device: &Device, host_seconds: f64) -> Result<Self> {
        let Device::Cuda(cuda) = device else { return Ok(Self(None)) };
        let driver = |error: gradewise_ffi::Error| failed(error.into());
        let block = || DeviceMemory::new(cuda.stream(), Self::BYTES).map_err(driver);
        let blocks = [block()?, block()?];
        let times =
            Timer::new(cuda, 1, 3).times(|| Ok(blocks[1].copy_from(0, &blocks[0], 0, Self::BYTES)?));
        let one = times.map_err(failed)?.median() * 1e-3;
        // Events, and copies from the host between them, make a step take several times as long on the host.
        let count = (5.0 * host_seconds / one).ceil().clamp(1.0, 400.0) as usize;
        Ok(Self(Some((cuda.clone(), blocks, count))))
    }

    fn queue(&self) -> gradewise_nn::Result<()> {
        let Some((cuda, [from, to], count)) = &self.0 else { return Ok(()) };
        for _ in 0..*count {
            to.copy_from(0, from, 0, Self::BYTES).map_err(|source| gradewise_kernels::Error::Cuda {
                operation: "keep the device busy",
                device: cuda.ordinal(),
                source,
                launches: Default::default(),
            })?;
        }
        Ok(())
    }
}
