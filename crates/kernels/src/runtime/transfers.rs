//! Copies between the host and devices, as a profiler sees them.
//!
//! [`watched`] lists those of this thread. Outside of it the overhead of a copy is the load of a byte.

use crate::Result;
use std::{
    cell::{Cell, RefCell},
    fmt,
    time::Instant,
};

/// Which way a copy goes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Direction {
    /// From the host to a device.
    ToDevice,
    /// From a device to the host.
    ToHost,
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::ToDevice => "to device",
            Self::ToHost => "to host",
        })
    }
}

/// A copy that was made.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Transfer {
    /// The operation that asked for it.
    pub operation: &'static str,
    /// Which way it went.
    pub direction: Direction,
    /// Its size in bytes.
    pub bytes: usize,
    /// The duration in seconds, measured from an idle device to the end of the copy.
    pub seconds: f64,
}

thread_local! {
    static WATCHED: Cell<bool> = const { Cell::new(false) };
    static SEEN: RefCell<Vec<Transfer>> = const { RefCell::new(Vec::new()) };
}

/// Runs `work` and lists the copies that this thread made meanwhile, in their order. Waits for the device before and after each, so that
/// the duration is the copy's alone, without work queued before. In nested calls the copies belong to the innermost.
pub fn watched<R>(work: impl FnOnce() -> R) -> (R, Vec<Transfer>) {
    /// Restores the enclosing list, also after a panic.
    struct Leave(bool, Vec<Transfer>);
    impl Drop for Leave {
        fn drop(&mut self) {
            WATCHED.set(self.0);
            SEEN.set(std::mem::take(&mut self.1));
        }
    }
    let leave = Leave(WATCHED.replace(true), SEEN.take());
    let result = work();
    let seen = SEEN.take();
    drop(leave);
    (result, seen)
}

/// Makes a copy, and lists it if this thread is watched. `wait` waits for the device.
///
/// # Errors
/// Those of `copy`; while watched, also errors of work queued before.
pub(crate) fn timed(
    operation: &'static str,
    (direction, bytes): (Direction, usize),
    wait: impl Fn() -> Result<()>,
    copy: impl FnOnce() -> Result<()>,
) -> Result<()> {
    if !WATCHED.get() {
        return copy();
    }
    wait()?;
    let began = Instant::now();
    copy()?;
    wait()?;
    let seconds = began.elapsed().as_secs_f64();
    SEEN.with_borrow_mut(|seen| seen.push(Transfer { operation, direction, bytes, seconds }));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Array, CudaDevice, Device};
    use gradewise_fake_driver::Fake;
    use gradewise_ffi::Driver;

    #[test]
    fn copies_are_listed_with_their_sizes_while_they_are_watched() {
        let fake = Fake::new();
        let device = CudaDevice::with_driver(&Driver::open(fake.path()).unwrap(), 0).unwrap();
        let device = Device::Cuda(device);
        let there = || Array::from_slice(&[1f32, 2.0, 3.0], [3], &device).unwrap();
        let before = there();
        let (values, seen) = watched(|| {
            let inner = watched(|| drop(there())).1;
            assert_eq!(inner.len(), 1, "{inner:?}");
            let array = there();
            before.to_vec::<f32>().unwrap();
            array.to_vec::<f32>().unwrap()
        });
        assert_eq!(values, [1.0, 2.0, 3.0]);
        let found: Vec<_> = seen.iter().map(|copy| (copy.direction, copy.bytes)).collect();
        assert_eq!(found, [(Direction::ToDevice, 12), (Direction::ToHost, 12), (Direction::ToHost, 12)]);
        assert!(seen.iter().all(|copy| copy.seconds > 0.0 && !copy.operation.is_empty()), "{seen:?}");
        there();
        assert_eq!(watched(|| ()).1, []);
    }
}
