//! Times work on a device with CUDA events.

use crate::{Error, Result};
use gradewise_ffi::{Event, nvtx};
use gradewise_kernels::CudaDevice;

/// The NVTX range around the runs before the measurement.
pub const WARM_UP_RANGE: &str = "warm-up";
/// The NVTX range around the measured runs.
pub const MEASURE_RANGE: &str = "measure";

/// Times work between CUDA events.
///
/// Runs are queued back to back, each between two events, with one synchronisation at the end. If the host queues faster than the device
/// works, a time is pure device time; for small work it is the host's launch time.
pub struct Timer {
    device: CudaDevice,
    warm_up: usize,
    runs: usize,
    ranges: bool,
}

impl Timer {
    /// A timer of `runs` runs, at least one, after `warm_up` warm-up runs.
    pub fn new(device: &CudaDevice, warm_up: usize, runs: usize) -> Self {
        Self { device: device.clone(), warm_up, runs: runs.max(1), ranges: false }
    }

    /// Whether warm-up and measurement are marked as NVTX ranges, for profilers.
    #[must_use]
    pub fn ranges(mut self, ranges: bool) -> Self {
        self.ranges = ranges;
        self
    }

    /// The device.
    pub fn device(&self) -> &CudaDevice {
        &self.device
    }

    /// This timer with other numbers of runs.
    #[must_use]
    pub fn with_runs(&self, warm_up: usize, runs: usize) -> Self {
        Self::new(&self.device, warm_up, runs).ranges(self.ranges)
    }

    /// The times of `work`, which queues something on the device's stream.
    ///
    /// # Errors
    /// Those of `work` and of the device.
    pub fn times(&self, mut work: impl FnMut() -> Result<()>) -> Result<Times> {
        self.within(WARM_UP_RANGE, || (0..self.warm_up).try_for_each(|_| work()))?;
        let stream = self.device.stream();
        let event = || Event::new(self.device.context(), true);
        let events = (0..self.runs).map(|_| Ok([event()?, event()?])).collect::<Result<Vec<[Event; 2]>>>()?;
        self.within(MEASURE_RANGE, || {
            events.iter().try_for_each(|[start, end]| {
                start.record(stream)?;
                work()?;
                Ok(end.record(stream)?)
            })
        })?;
        let times = events.iter().map(|[start, end]| Ok(f64::from(end.milliseconds_since(start)?)));
        Times::new(times.collect::<Result<_>>()?)
    }

    /// The total time of `runs` runs of `work`, in seconds, for criterion.
    ///
    /// # Errors
    /// As [`times`](Self::times).
    pub fn seconds(&self, runs: u64, mut work: impl FnMut() -> Result<()>) -> Result<f64> {
        let [start, end] =
            [Event::new(self.device.context(), true)?, Event::new(self.device.context(), true)?];
        start.record(self.device.stream())?;
        (0..runs).try_for_each(|_| work())?;
        end.record(self.device.stream())?;
        end.synchronize()?;
        Ok(f64::from(end.milliseconds_since(&start)?) / 1e3)
    }

    /// Runs `body` within an NVTX range, and synchronises, so that queued work does not run outside the range.
    fn within(&self, name: &str, body: impl FnOnce() -> Result<()>) -> Result<()> {
        let _range = self.ranges.then(|| nvtx::range(name));
        body()?;
        Ok(self.device.synchronize()?)
    }
}

/// Times in milliseconds, at least one.
#[derive(Clone, Debug, PartialEq)]
pub struct Times(Vec<f64>);

impl Times {
    /// The times of some runs, in any order.
    ///
    /// # Errors
    /// No times, or a time that is not positive: the device's clock did not advance.
    pub fn new(mut times: Vec<f64>) -> Result<Self> {
        if times.is_empty() || !times.iter().all(|time| time.is_finite() && *time > 0.0) {
            return Err(Error::Request(format!("the device measured no times: {times:?}")));
        }
        times.sort_by(f64::total_cmp);
        Ok(Self(times))
    }

    /// The median.
    pub fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    /// The quantile of the times at `share`.
    pub fn quantile(&self, share: f64) -> f64 {
        self.0[((self.0.len() as f64 * share) as usize).min(self.0.len() - 1)]
    }

    /// Number of runs.
    pub fn runs(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_times_that_occurred() {
        let times = Times::new(vec![3.0, 1.0, 2.0, 5.0, 4.0]).unwrap();
        assert_eq!((times.median(), times.quantile(0.1), times.quantile(0.9)), (3.0, 1.0, 5.0));
        assert_eq!((times.quantile(1.0), times.runs()), (5.0, 5));
        let one = Times::new(vec![7.0]).unwrap();
        assert_eq!((one.median(), one.quantile(0.1), one.quantile(0.9)), (7.0, 7.0, 7.0));
    }

    #[test]
    fn times_that_are_none_are_refused() {
        assert!(Times::new(vec![]).is_err());
        assert!(Times::new(vec![1.0, f64::NAN]).is_err());
        assert!(Times::new(vec![1.0, 0.0]).is_err());
    }
}
