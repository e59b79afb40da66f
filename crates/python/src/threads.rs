//! The threads of operators on the CPU.
//!
//! Operators use the global pool of rayon where its number of threads is the one that is asked for, at no cost. Where it is another
//! (`gradewise.set_num_threads`, `torch.set_num_threads`), or in the child of a fork, which has the parent's memory but none of its threads,
//! they run in a pool of that size, made when it is first needed.

use gradewise_kernels::{Error, Result};
use pyo3::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};
use std::{
    collections::HashMap,
    ptr,
    sync::{
        Arc, Mutex, Once, PoisonError,
        atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering},
    },
};

type Pools = Mutex<HashMap<usize, Arc<ThreadPool>>>;

/// What `gradewise.set_num_threads` was given; 0 before it was called.
static ASKED: AtomicUsize = AtomicUsize::new(0);
/// The threads of the global pool; 0 before it was asked for.
static GLOBAL: AtomicUsize = AtomicUsize::new(0);
/// Whether this process is the child of a fork after the library was loaded.
static IS_FORKED: AtomicBool = AtomicBool::new(false);
/// The pools beside the global one, by their numbers of threads. In the child of a fork another list, which leaves the parent's as it was
/// when the child was made: perhaps locked by a thread that the child does not have.
static POOLS: AtomicPtr<Pools> = AtomicPtr::new(ptr::null_mut());

/// The most threads that may be asked for.
const MOST: usize = 1024;

/// Runs in the child after a fork.
extern "C" fn forked() {
    IS_FORKED.store(true, Ordering::SeqCst);
    POOLS.store(ptr::null_mut(), Ordering::SeqCst);
}

/// Lets the library know of forks.
pub fn watch_forks() {
    static WATCH: Once = Once::new();
    WATCH.call_once(|| {
        #[cfg(unix)]
        // SAFETY: a function that stores two values, which is allowed in the child of a process with several threads.
        unsafe {
            libc::pthread_atfork(None, None, Some(forked))
        };
    });
}

fn pools() -> &'static Pools {
    let known = POOLS.load(Ordering::Acquire);
    // SAFETY: never freed once it is stored.
    if let Some(known) = unsafe { known.as_ref() } {
        return known;
    }
    let made = Box::into_raw(Box::new(Pools::default()));
    match POOLS.compare_exchange(ptr::null_mut(), made, Ordering::AcqRel, Ordering::Acquire) {
        // SAFETY: made above, and never freed.
        Ok(_) => unsafe { &*made },
        Err(first) => {
            // SAFETY: made above, and stored nowhere.
            drop(unsafe { Box::from_raw(made) });
            // SAFETY: stored by another thread, and never freed.
            unsafe { &*first }
        }
    }
}

fn pool(count: usize) -> Result<Arc<ThreadPool>> {
    let mut pools = pools().lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(pool) = pools.get(&count) {
        return Ok(Arc::clone(pool));
    }
    let name = |index| format!("gradewise-{index}");
    let pool = ThreadPoolBuilder::new().num_threads(count).thread_name(name).build().map_err(|_| {
        Error::NoBackend {
            device: "cpu".into(),
            reason: "the system starts no more threads; ask for fewer with gradewise.set_num_threads",
        }
    })?;
    let pool = Arc::new(pool);
    pools.insert(count, Arc::clone(&pool));
    Ok(pool)
}

/// The number that the environment or the machine says.
fn by_default() -> usize {
    let told = std::env::var("RAYON_NUM_THREADS").ok().and_then(|count| count.parse().ok());
    let count = told.filter(|&count: &usize| count > 0);
    count.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from)).min(MOST)
}

/// The threads of the global pool. Whoever needs it first decides how many it has, unless the environment does.
fn global(wanted: usize) -> usize {
    let known = GLOBAL.load(Ordering::Acquire);
    if known > 0 {
        return known;
    }
    if std::env::var_os("RAYON_NUM_THREADS").is_none() {
        // An error says that there is one already.
        let _ = ThreadPoolBuilder::new().num_threads(wanted).build_global();
    }
    let count = rayon::current_num_threads();
    GLOBAL.store(count, Ordering::Release);
    count
}

/// Runs work on as many threads as were asked for: by `set_num_threads`, else by the caller, else as the machine has. 0 is no wish.
///
/// # Errors
/// Those of the work; [`Error::NoBackend`] if the system starts no thread.
pub fn within<R: Send, E: From<Error> + Send>(
    wanted: usize,
    work: impl FnOnce() -> Result<R, E> + Send,
) -> Result<R, E> {
    let asked = ASKED.load(Ordering::Relaxed);
    let is_forked = IS_FORKED.load(Ordering::Relaxed);
    if asked == 0 && wanted == 0 && !is_forked {
        return work();
    }
    let count = match (asked, wanted) {
        (0, 0) => by_default(),
        (0, wanted) => wanted,
        (asked, _) => asked,
    }
    .min(MOST);
    if !is_forked && global(count) == count {
        return work();
    }
    pool(count)?.install(work)
}

/// Lets operators on the CPU use so many threads from now on: those on NumPy and JAX arrays and on `gradewise.Array`, and those on tensors
/// of PyTorch, which otherwise follow `torch.set_num_threads`. Results do not depend on it.
///
/// Args:
///     count: from 1 to 1024, or None for what the machine and the libraries say.
#[pyfunction]
#[pyo3(signature = (count))]
pub fn set_num_threads(py: Python<'_>, count: Option<i64>) -> PyResult<()> {
    let count = match count {
        None => 0,
        Some(count @ 1..=1024) => count as usize,
        Some(count) => {
            let message = format!("set_num_threads: {count} threads, expected 1 to {MOST}, or None");
            return Err(crate::errors::Class::Argument.exception(py, &message));
        }
    };
    ASKED.store(count, Ordering::Relaxed);
    Ok(())
}

/// The number of threads that operators on NumPy arrays use; those on tensors of PyTorch use `torch.get_num_threads()` unless
/// `set_num_threads` was called.
#[pyfunction]
pub fn get_num_threads() -> usize {
    match (ASKED.load(Ordering::Relaxed), GLOBAL.load(Ordering::Relaxed)) {
        (0, 0) => by_default(),
        (0, global) if !IS_FORKED.load(Ordering::Relaxed) => global,
        (0, _) => by_default(),
        (asked, _) => asked,
    }
}
