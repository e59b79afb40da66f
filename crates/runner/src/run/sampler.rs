//! Samples the utilisation of a GPU during a run.

use gradewise_ffi::nvml::{Clock, Device as Counter, Nvml};
use gradewise_kernels::Device;
use serde::Serialize;
use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{self, RecvTimeoutError, Sender},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

/// Time between samples. NVML itself averages over the last sixth of a second to a second.
const INTERVAL: Duration = Duration::from_millis(250);

/// Means over samples of NVML's values for a device, which include all processes on it.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Utilization {
    /// Number of samples.
    pub samples: u32,
    /// Percent of the time in which a kernel ran.
    pub gpu: f64,
    /// Percent of the time in which memory was read or written.
    pub memory: f64,
    /// Peak memory usage by all processes, in bytes.
    pub memory_used: u64,
    /// Watts, if the device reports it.
    pub power: Option<f64>,
    /// Clock of the multiprocessors in MHz, if the device reports it.
    pub clock: Option<f64>,
}

#[derive(Clone, Copy, Default)]
struct Sums {
    samples: u32,
    gpu: f64,
    memory: f64,
    memory_used: u64,
    power: Option<f64>,
    clock: Option<f64>,
}

impl Sums {
    fn add(&mut self, counter: &Counter) {
        let Ok(rates) = counter.utilization() else { return };
        let first = self.samples == 0;
        let also = |sum: Option<f64>, value: Option<f64>| match (first, sum, value) {
            (true, _, value) => value,
            (false, Some(sum), Some(value)) => Some(sum + value),
            _ => None,
        };
        self.power = also(self.power, counter.power().ok());
        self.clock = also(self.clock, counter.clock(Clock::Multiprocessor).ok().map(f64::from));
        self.samples += 1;
        self.gpu += f64::from(rates.gpu);
        self.memory += f64::from(rates.memory);
        self.memory_used = self.memory_used.max(counter.memory().map_or(0, |memory| memory.used));
    }

    fn means(&self) -> Option<Utilization> {
        let count = f64::from(self.samples);
        (self.samples > 0).then(|| Utilization {
            samples: self.samples,
            gpu: self.gpu / count,
            memory: self.memory / count,
            memory_used: self.memory_used,
            power: self.power.map(|sum| sum / count),
            clock: self.clock.map(|sum| sum / count),
        })
    }
}

/// Samples a GPU in a separate thread. Does nothing on the CPU, or without NVML.
pub struct Sampler(Option<Sampling>);

struct Sampling {
    /// Sums since the last [`Sampler::take`], and since the start.
    sums: Arc<Mutex<[Sums; 2]>>,
    /// Dropped to end the thread.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

fn lock(sums: &Mutex<[Sums; 2]>) -> MutexGuard<'_, [Sums; 2]> {
    sums.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Sampler {
    /// Starts sampling a device.
    pub fn start(device: &Device) -> Self {
        let Device::Cuda(cuda) = device else { return Self(None) };
        match Nvml::load().and_then(|nvml| nvml.device_of(cuda.info())) {
            Ok(counter) => Self::of(counter, INTERVAL),
            Err(error) => {
                tracing::debug!("no utilisation is reported: {error}");
                Self(None)
            }
        }
    }

    fn of(counter: Counter, interval: Duration) -> Self {
        let (stop, stopped) = mpsc::channel::<()>();
        let sums = Arc::new(Mutex::new([Sums::default(); 2]));
        let shared = Arc::clone(&sums);
        let work = move || {
            while stopped.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
                lock(&shared).iter_mut().for_each(|sums| sums.add(&counter));
            }
        };
        match thread::Builder::new().name("nvml".to_owned()).spawn(work) {
            Ok(thread) => Self(Some(Sampling { sums, stop: Some(stop), thread: Some(thread) })),
            Err(error) => {
                tracing::debug!("no utilisation is reported: {error}");
                Self(None)
            }
        }
    }

    /// Means since the last call, if there was a sample.
    pub fn take(&self) -> Option<Utilization> {
        std::mem::take(&mut lock(&self.0.as_ref()?.sums)[0]).means()
    }

    /// Means since the start, if there was a sample.
    pub fn total(&self) -> Option<Utilization> {
        lock(&self.0.as_ref()?.sums)[1].means()
    }
}

impl Drop for Sampling {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // The thread does not panic, and a panic could not be reported here.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gradewise_ffi::Dynamic;

    #[test]
    fn samples_are_averaged_since_the_last_record_and_in_all() {
        let library = Dynamic::open("NVML", &[gradewise_fake_driver::nvml()], "").unwrap();
        let counter = Nvml::new(library).unwrap().device(0).unwrap();
        let sampler = Sampler::of(counter, Duration::from_millis(1));
        let mut taken = None;
        for _ in 0..2000 {
            thread::sleep(Duration::from_millis(1));
            taken = taken.or_else(|| sampler.take());
            if sampler.total().is_some_and(|total| total.samples >= 5) {
                break;
            }
        }
        let (taken, total) = (taken.unwrap(), sampler.total().unwrap());
        assert!(taken.samples < total.samples, "{taken:?} {total:?}");
        for means in [taken, total] {
            let near = |a: f64, b: f64| (a - b).abs() < 1e-9 * b;
            assert!(near(means.gpu, 70.0) && means.memory_used == 1000, "{means:?}");
            assert!(near(means.power.unwrap(), 123.456) && near(means.clock.unwrap(), 1000.0), "{means:?}");
        }
        assert!(Sampler::start(&Device::Cpu).take().is_none());
    }
}
