//! Whether operations record history, per thread.

use std::cell::Cell;

thread_local! {
    static ENABLED: Cell<bool> = const { Cell::new(true) };
}

/// Whether operations on this thread record history.
pub fn is_grad_enabled() -> bool {
    ENABLED.get()
}

/// Runs `body` without recording history: its results require no gradients. Applies to this thread only.
pub fn no_grad<R>(body: impl FnOnce() -> R) -> R {
    with_mode(false, body)
}

/// Runs `body` with recording on or off; the previous mode returns even if `body` panics.
pub(crate) fn with_mode<R>(enabled: bool, body: impl FnOnce() -> R) -> R {
    struct Restore(bool);
    impl Drop for Restore {
        fn drop(&mut self) {
            ENABLED.set(self.0);
        }
    }
    let _restore = Restore(ENABLED.replace(enabled));
    body()
}
