//! Ctrl-C and termination signals.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

/// Whether the user has asked the program to stop. The first request stops it within the current step, of which nothing is kept; where
/// several processes take a step together, after it. A second request ends it immediately.
#[derive(Clone, Debug, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Starts listening.
    pub fn listen() -> Self {
        let interrupt = Self::default();
        let flag = interrupt.clone();
        let handler = move || {
            if flag.0.swap(true, Ordering::SeqCst) {
                std::process::exit(1);
            }
            crate::output::note("stopping (once more to stop at once, without a checkpoint)");
        };
        if let Err(error) = ctrlc::set_handler(handler) {
            tracing::warn!("Ctrl-C will end the program without a checkpoint: {error}");
        }
        interrupt
    }

    /// Requests a stop, as Ctrl-C does.
    pub fn request(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    /// The flag that a request sets.
    pub fn flag(&self) -> &Arc<AtomicBool> {
        &self.0
    }

    /// Whether a stop was requested.
    pub fn requested(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}
