//! Debug mode: every launch is waited for and named, the last launches of every thread are kept, new memory is poisoned.
//!
//! `GRADEWISE_DEBUG_CUDA=1` switches it on from the start, [`set`] at any time. An error that a kernel caused then names that kernel
//! ([`Fault`](crate::Fault)) and the launches before it. Off, it costs a relaxed load of a byte per launch and allocation.

use std::{
    cell::OnceCell,
    collections::VecDeque,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU8, AtomicU64, Ordering},
    },
    thread,
};

/// Launches that are kept of each thread.
pub const KEPT: usize = 12;
/// Threads whose launches are kept after they ended.
const ENDED: usize = 16;

/// The environment has been read.
const READ: u8 = 1;
const DEBUG: u8 = 2;
const WAIT: u8 = 4;
const POISON: u8 = 8;

static MODE: AtomicU8 = AtomicU8::new(0);

#[inline]
fn mode() -> u8 {
    let mode = MODE.load(Ordering::Relaxed);
    if mode == 0 { read() } else { mode }
}

#[cold]
fn read() -> u8 {
    let mode = said(|name| std::env::var_os(name).is_some_and(|value| value == "1"));
    MODE.fetch_or(mode, Ordering::Relaxed) | mode
}

/// The variables of this mode, each 0 or 1; [`Options`](crate::Options) checks them when a device is opened.
pub(crate) const VARIABLES: [&str; 3] =
    ["GRADEWISE_DEBUG_CUDA", "GRADEWISE_LAUNCH_BLOCKING", "GRADEWISE_POISON"];

/// The mode that variables set; `given` says whether a variable is 1.
fn said(given: impl Fn(&str) -> bool) -> u8 {
    let mut mode = READ;
    let [debug, wait, poison] = VARIABLES;
    // The third is the CUDA driver's name for the second; its other values are not checked here.
    for (name, bit) in [(debug, DEBUG), (wait, WAIT), ("CUDA_LAUNCH_BLOCKING", WAIT), (poison, POISON)] {
        mode |= if given(name) { bit } else { 0 };
    }
    if cfg!(debug_assertions) {
        mode |= POISON;
    }
    mode
}

/// Whether debug mode is on.
pub fn is_on() -> bool {
    mode() & DEBUG != 0
}

/// Switches debug mode on or off for all threads, whatever the environment says.
pub fn set(on: bool) {
    mode();
    if on {
        MODE.fetch_or(DEBUG, Ordering::Relaxed)
    } else {
        MODE.fetch_and(!DEBUG, Ordering::Relaxed)
    };
}

/// Whether every launch is waited for: in debug mode, or with `GRADEWISE_LAUNCH_BLOCKING=1` or `CUDA_LAUNCH_BLOCKING=1`.
#[inline]
pub fn waits() -> bool {
    mode() & (DEBUG | WAIT) != 0
}

/// Whether new memory is filled with NaN: in debug mode, with `GRADEWISE_POISON=1`, and in builds with debug assertions.
#[inline]
pub(crate) fn poisons() -> bool {
    mode() & (DEBUG | POISON) != 0
}

/// The state of a launch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Queued: part of a capture, or not waited for yet.
    Queued,
    /// Waited for, without an error.
    Done,
    /// The driver refused it, or waiting for it gave an error.
    Failed,
}

/// Work that was queued on a device in debug mode.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Launch {
    /// Its number among those of all threads.
    pub number: u64,
    /// The thread that queued it: its name, or its number.
    pub thread: Arc<str>,
    /// The operation that it is part of.
    pub operation: &'static str,
    /// The kernel with its grid, or the copy.
    pub work: String,
    /// What became of it.
    pub outcome: Outcome,
}

impl fmt::Display for Launch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { number, thread, operation, work, outcome } = self;
        let outcome = match outcome {
            Outcome::Queued => "queued",
            Outcome::Done => "done",
            Outcome::Failed => "FAILED",
        };
        write!(f, "{outcome:6} #{number} {operation}: {work} (thread {thread})")
    }
}

/// The launches that an error carries; none outside of debug mode. Small, because every result has room for an error.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Launches(Option<Arc<Vec<Launch>>>);

impl Launches {
    /// The launches kept at this moment.
    pub(crate) fn now() -> Self {
        Self(Some(Arc::new(launches())))
    }
}

impl std::ops::Deref for Launches {
    type Target = [Launch];

    fn deref(&self) -> &[Launch] {
        self.0.as_ref().map_or(&[], |launches| launches.as_slice())
    }
}

type Ring = Arc<Mutex<VecDeque<Launch>>>;

static RINGS: Mutex<Vec<Ring>> = Mutex::new(Vec::new());
static NUMBER: AtomicU64 = AtomicU64::new(1);

struct Own {
    ring: Ring,
    thread: Arc<str>,
}

thread_local! {
    static OWN: OnceCell<Own> = const { OnceCell::new() };
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn own() -> Own {
    let current = thread::current();
    let number = format!("{:?}", current.id());
    let name = current.name().map_or(number, ToOwned::to_owned);
    let ring = Ring::default();
    let mut rings = lock(&RINGS);
    // Rings of threads that ended: only the list still holds them.
    let ended = rings.iter().filter(|ring| Arc::strong_count(ring) == 1).count();
    if ended > ENDED
        && let Some(oldest) = rings.iter().position(|ring| Arc::strong_count(ring) == 1)
    {
        rings.remove(oldest);
    }
    rings.push(Arc::clone(&ring));
    Own { ring, thread: name.into() }
}

/// Keeps `work` of `operation` in the list of this thread.
pub(crate) fn keep(operation: &'static str, work: String) {
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    // A thread that is ending may have dropped its list already.
    let _ = OWN.try_with(|cell| {
        let Own { ring, thread } = cell.get_or_init(own);
        let mut launches = lock(ring);
        if launches.len() == KEPT {
            launches.pop_front();
        }
        let thread = Arc::clone(thread);
        launches.push_back(Launch { number, thread, operation, work, outcome: Outcome::Queued });
    });
}

/// Sets the outcome of this thread's latest launch.
pub(crate) fn settle(outcome: Outcome) {
    let _ = OWN.try_with(|cell| {
        if let Some(own) = cell.get()
            && let Some(latest) = lock(&own.ring).back_mut()
        {
            latest.outcome = outcome;
        }
    });
}

/// The last launches of every thread in debug mode, at most [`KEPT`] each, in the order in which they were queued.
pub fn launches() -> Vec<Launch> {
    let rings = lock(&RINGS).clone();
    let mut all: Vec<Launch> = rings.iter().flat_map(|ring| lock(ring).clone()).collect();
    all.sort_by_key(|launch| launch.number);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launches_are_waited_for_by_our_variable_and_by_that_of_cuda() {
        for name in ["GRADEWISE_LAUNCH_BLOCKING", "CUDA_LAUNCH_BLOCKING"] {
            let mode = said(|given| given == name);
            assert_eq!(mode & (WAIT | DEBUG), WAIT, "{name}");
        }
        assert_eq!(said(|_| false) & (WAIT | DEBUG), 0);
        assert_eq!(said(|given| given == "GRADEWISE_DEBUG_CUDA") & (WAIT | DEBUG), DEBUG);
    }

    #[test]
    fn the_last_launches_of_every_thread_are_kept_in_order() {
        let other =
            thread::Builder::new().name("loader".to_owned()).spawn(|| keep("upload", "8 bytes".to_owned()));
        other.unwrap().join().unwrap();
        for index in 0..2 * KEPT {
            keep("test", format!("kernel {index}"));
            settle(if index % 2 == 0 { Outcome::Done } else { Outcome::Failed });
        }
        let all = launches();
        assert!(all.windows(2).all(|pair| pair[0].number < pair[1].number));
        let mine: Vec<&Launch> = all.iter().filter(|launch| launch.operation == "test").collect();
        assert_eq!(mine.len(), KEPT);
        assert_eq!(
            (mine[0].work.as_str(), mine[0].outcome),
            (format!("kernel {KEPT}").as_str(), Outcome::Done)
        );
        assert_eq!(mine[KEPT - 1].outcome, Outcome::Failed);
        let ended = all.iter().find(|launch| launch.operation == "upload").unwrap();
        assert_eq!((&*ended.thread, ended.outcome), ("loader", Outcome::Queued));
        assert!(ended.to_string().ends_with("upload: 8 bytes (thread loader)"), "{ended}");
    }
}
