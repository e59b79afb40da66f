//! Times and memory of named parts of a program.

use super::{Clock, Mark};
use crate::Result;
use gradewise_kernels::{Device, memory};
use serde::Serialize;
use std::{cell::RefCell, collections::BTreeMap, fmt};

/// Measures time and memory of named parts of a program: with CUDA events on a GPU, without synchronisation, and with the host's clock on
/// the CPU. Parts may be nested.
///
/// ```
/// use gradewise_bench::profile::Timers;
/// use gradewise_kernels::{Array, DType, Device};
///
/// let timers = Timers::new(&Device::Cpu);
/// let x = timers.time("make", || Array::zeros([1000], DType::F64, &Device::Cpu))?;
/// let report = timers.report()?;
/// assert!(report[0].name == "make" && report[0].peak_bytes >= 8000);
/// # drop(x);
/// # Ok::<(), gradewise_bench::Error>(())
/// ```
#[derive(Debug)]
pub struct Timers {
    device: Device,
    clock: Clock,
    parts: RefCell<BTreeMap<String, Part>>,
    /// The peak allocation in each open part.
    open: RefCell<Vec<usize>>,
}

#[derive(Debug, Default)]
struct Part {
    marks: Vec<[Mark; 2]>,
    peak: usize,
    kept: i64,
}

/// A named part of a program.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct NamedTime {
    /// Its name.
    pub name: String,
    /// Number of calls.
    pub calls: usize,
    /// Total time of all calls.
    pub seconds: f64,
    /// The peak allocation while it ran, including earlier allocations.
    pub peak_bytes: usize,
    /// The increase of allocated bytes from before to after, summed over all calls.
    pub kept_bytes: i64,
}

impl fmt::Display for NamedTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |bytes: f64| bytes / f64::from(1 << 20);
        let Self { name, calls, seconds, peak_bytes, kept_bytes } = self;
        write!(
            f,
            "{name:<33}{:>11.4}{calls:>7}{:>11.1}{:>11.1}",
            1e3 * seconds / (*calls).max(1) as f64,
            mib(*peak_bytes as f64),
            mib(*kept_bytes as f64)
        )
    }
}

impl Timers {
    /// Timers of a device.
    pub fn new(device: &Device) -> Self {
        Self {
            device: device.clone(),
            clock: Clock::new(device),
            parts: RefCell::default(),
            open: RefCell::default(),
        }
    }

    /// Bytes allocated now, and the peak since the last call.
    fn memory(&self) -> (usize, usize) {
        match &self.device {
            Device::Cpu => {
                let memory::Stats { allocated, peak, .. } = memory::stats();
                memory::reset_peak();
                (allocated, peak)
            }
            Device::Cuda(cuda) => {
                let peak = cuda.memory().map_or(0, |report| report.peak);
                cuda.reset_peak();
                (cuda.allocated(), peak)
            }
        }
    }

    /// Runs `body` under a name. This resets the peak of the device's memory.
    pub fn time<R>(&self, name: &str, body: impl FnOnce() -> R) -> R {
        let (before, peak) = self.memory();
        if let Some(outer) = self.open.borrow_mut().last_mut() {
            *outer = (*outer).max(peak);
        }
        self.open.borrow_mut().push(before);
        let start = self.clock.mark();
        let result = body();
        let end = self.clock.mark();
        let (after, peak) = self.memory();
        let mut open = self.open.borrow_mut();
        let peak = open.pop().unwrap_or(0).max(peak);
        if let Some(outer) = open.last_mut() {
            *outer = (*outer).max(peak);
        }
        let mut parts = self.parts.borrow_mut();
        let part = parts.entry(name.to_owned()).or_default();
        part.peak = part.peak.max(peak);
        part.kept += after as i64 - before as i64;
        // The clock fails only after failed work, which reports its own error.
        if let (Ok(start), Ok(end)) = (start, end) {
            part.marks.push([start, end]);
        }
        result
    }

    /// Waits for the device, and returns the measurements so far, the longest first.
    ///
    /// # Errors
    /// From the device.
    pub fn report(&self) -> Result<Vec<NamedTime>> {
        self.clock.wait()?;
        let mut report = Vec::new();
        for (name, Part { marks, peak, kept }) in self.parts.borrow().iter() {
            let times = marks.iter().map(|[start, end]| end.since(start));
            let seconds = times.sum::<Result<f64>>()?;
            let (name, calls) = (name.clone(), marks.len());
            report.push(NamedTime { name, calls, seconds, peak_bytes: *peak, kept_bytes: *kept });
        }
        report.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
        Ok(report)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gradewise_kernels::{Array, DType};
    use std::{thread::sleep, time::Duration};

    #[test]
    fn parts_have_their_times_and_memory_also_inside_one_another() {
        let timers = Timers::new(&Device::Cpu);
        let make = |elements: usize| Array::zeros([elements], DType::F64, &Device::Cpu).unwrap();
        let kept = timers.time("outer", || {
            let kept = timers.time("inner", || {
                drop(make(3 << 20));
                sleep(Duration::from_millis(20));
                make(1 << 10)
            });
            timers.time("inner", || sleep(Duration::from_millis(1)));
            kept
        });
        let report = timers.report().unwrap();
        let [outer, inner] = &report[..] else { panic!("{report:?}") };
        assert_eq!((outer.name.as_str(), outer.calls, inner.calls), ("outer", 1, 2));
        assert!(outer.seconds >= inner.seconds && inner.seconds >= 0.02, "{report:?}");
        assert!(inner.peak_bytes >= 24 << 20 && outer.peak_bytes >= inner.peak_bytes, "{report:?}");
        drop(kept);
    }
}
