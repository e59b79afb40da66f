//! Work that another thread may end before its time.

use crate::{Error, Result};
use std::{
    cell::RefCell,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

thread_local! {
    static STOP: RefCell<Option<Arc<AtomicBool>>> = const { RefCell::new(None) };
}

/// Runs `body`; once `stop` is true, the next operation of this thread, forward or backward, fails with
/// [`Error::Stopped`]. Operations that are under way are finished.
///
/// ```
/// use gradewise_autograd::{Error, Tensor, stoppable};
/// use gradewise_kernels::{DType, Device};
/// use std::sync::{Arc, atomic::{AtomicBool, Ordering}};
///
/// let stop = Arc::new(AtomicBool::new(false));
/// let x = Tensor::ones([2], DType::F64, &Device::Cpu)?;
/// let result = stoppable(&stop, || {
///     let y = x.square()?;
///     stop.store(true, Ordering::SeqCst);
///     y.square()
/// });
/// assert!(matches!(result, Err(Error::Stopped)));
/// assert!(x.square().is_ok());
/// # Ok::<(), Error>(())
/// ```
pub fn stoppable<R>(stop: &Arc<AtomicBool>, body: impl FnOnce() -> R) -> R {
    struct Restore(Option<Arc<AtomicBool>>);
    impl Drop for Restore {
        fn drop(&mut self) {
            STOP.set(self.0.take());
        }
    }
    let _restore = Restore(STOP.replace(Some(Arc::clone(stop))));
    body()
}

/// Called before every operation.
pub(crate) fn check() -> Result<()> {
    let stopped = STOP.with_borrow(|stop| stop.as_ref().is_some_and(|stop| stop.load(Ordering::Relaxed)));
    if stopped { Err(Error::Stopped) } else { Ok(()) }
}
