//! The threads that compute on the CPU.

use std::{cell::Cell, num::NonZero, thread};

thread_local! {
    static MAIN: Cell<bool> = const { Cell::new(false) };
}

/// Notes that this thread is the main thread of a program of its own, which may join the pool for the rest of the process.
pub(crate) fn mark_main_thread() {
    MAIN.set(true);
}

/// Who asks for parallel work on the CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Caller {
    /// The thread that sets up the pool.
    This,
    /// Threads that it starts and waits for, such as those of runs at once.
    Others,
}

/// Sets up the pool of so many threads; 0 for `RAYON_NUM_THREADS` or, without that, all cores.
///
/// The main thread of a program becomes a thread of the pool if it asks for the work: it then takes part, and need not wake another thread
/// and sleep meanwhile. It stays the main thread, so that whatever belongs to it (scopes, contexts of devices) stays in force, and the
/// pool only ever gives it pieces of operators, never another run. It cannot take up work while it waits for another thread by other means
/// than the pool's, such as for the next batch. Hence it joins no pool of one thread, in which that other thread's work would never be
/// done, and none that works for runs at once, to whose end it sleeps. Threads of libraries do not join, because how they go on is not
/// known here.
pub(super) fn set_up(threads: usize, caller: Caller) {
    let joins = caller == Caller::This && MAIN.get();
    if threads == 0 && !joins {
        // The pool comes into being when it is first used.
        return;
    }
    let count = if threads > 0 { threads } else { default_threads() };
    let builder = rayon::ThreadPoolBuilder::new().num_threads(count).thread_name(name);
    let builder = if joins && count > 1 { builder.use_current_thread() } else { builder };
    // Fails if the pool exists already, as for a second placement. That is harmless: results do not depend on the number of threads.
    if let Err(error) = builder.build_global()
        && threads > 0
        && threads != rayon::current_num_threads()
    {
        tracing::warn!("runtime.threads has no effect: {error}");
    }
}

/// What tools of the system show, which cut it after 15 characters.
fn name(index: usize) -> String {
    format!("gradewise-cpu-{index}")
}

/// As many as rayon chooses.
fn default_threads() -> usize {
    let named = std::env::var("RAYON_NUM_THREADS").ok().and_then(|text| text.parse().ok());
    named
        .filter(|&count| count > 0)
        .unwrap_or_else(|| thread::available_parallelism().map_or(1, NonZero::get))
}
