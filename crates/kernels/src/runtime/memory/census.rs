//! A census of the arrays that are alive: what each is called, which operation made it, and where. Taken only when asked for; until
//! then it costs a load for each block of memory.

use super::Bytes;
use std::{
    backtrace::Backtrace,
    cell::RefCell,
    collections::BTreeMap,
    fmt,
    num::NonZeroU64,
    path::{Path, PathBuf},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU8, AtomicU64, Ordering},
    },
};

/// How much is written down of each array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// The operation and the scope.
    Operations,
    /// Also the line of the caller, which takes a backtrace for each array: some tenths of a millisecond.
    Sites,
}

const OFF: u8 = 0;
static LEVEL: AtomicU8 = AtomicU8::new(OFF);
static NUMBER: AtomicU64 = AtomicU64::new(1);
static TABLE: Mutex<BTreeMap<NonZeroU64, Entry>> = Mutex::new(BTreeMap::new());

thread_local! {
    static SCOPES: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// An array's memory that is alive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Ascending in the order in which they were made.
    pub number: u64,
    /// What it was called by [`Array::name`](crate::Array::name).
    pub name: Option<String>,
    /// The operation that made it.
    pub operation: &'static str,
    /// The scopes it was made in, the innermost last.
    pub scope: String,
    /// The first caller outside of the crates of arrays and gradients, with [`Detail::Sites`]: function and line.
    pub site: Option<String>,
    /// Its size.
    pub bytes: usize,
    /// `cpu` or `cuda:N`.
    pub device: String,
}

/// An entry of a block of memory, taken out when the block is dropped.
pub(crate) struct Ticket(Option<NonZeroU64>);

fn table() -> MutexGuard<'static, BTreeMap<NonZeroU64, Entry>> {
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes down every array from now on.
pub fn start(detail: Detail) {
    let level = match detail {
        Detail::Operations => 1,
        Detail::Sites => 2,
    };
    LEVEL.store(level, Ordering::Relaxed);
}

/// Writes down no more arrays; those that were stay in the list as long as they live.
pub fn stop() {
    LEVEL.store(OFF, Ordering::Relaxed);
}

/// Whether arrays are written down.
pub fn is_on() -> bool {
    LEVEL.load(Ordering::Relaxed) != OFF
}

/// The arrays that are alive, of those made while the census was on; the largest first.
pub fn live() -> Vec<Entry> {
    let mut entries: Vec<Entry> = table().values().cloned().collect();
    entries.sort_by(|a, b| b.bytes.cmp(&a.bytes).then(a.number.cmp(&b.number)));
    entries
}

/// The number of the next array: those with this number or a greater one are made after this call.
pub fn mark() -> u64 {
    NUMBER.load(Ordering::Relaxed)
}

/// While this lives, arrays that this thread makes are in a scope.
#[derive(Debug)]
pub struct Scope(());

/// Lets the arrays that this thread makes until the guard is dropped be in a scope of this name.
pub fn scope(name: impl Into<String>) -> Scope {
    SCOPES.with_borrow_mut(|scopes| scopes.push(name.into()));
    Scope(())
}

impl Drop for Scope {
    fn drop(&mut self) {
        SCOPES.with_borrow_mut(Vec::pop);
    }
}

impl Ticket {
    pub fn new(operation: &'static str, bytes: usize, device: impl FnOnce() -> String) -> Self {
        match LEVEL.load(Ordering::Relaxed) {
            OFF => Self(None),
            level => Self::write(operation, bytes, device(), level > 1),
        }
    }

    #[cold]
    fn write(operation: &'static str, bytes: usize, device: String, with_site: bool) -> Self {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let site = with_site.then(|| site(&Backtrace::force_capture().to_string())).flatten();
        let scope = SCOPES.with_borrow(|scopes| scopes.join(" > "));
        let entry = Entry { number, name: None, operation, scope, site, bytes, device };
        let number = NonZeroU64::new(number);
        if let Some(number) = number {
            table().insert(number, entry);
        }
        Self(number)
    }

    /// Calls the entry something.
    pub fn name(&self, name: &str) {
        if let Some(number) = self.0
            && let Some(entry) = table().get_mut(&number)
        {
            entry.name = Some(name.to_owned());
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if let Some(number) = self.0 {
            table().remove(&number);
        }
    }
}

/// The first function of a backtrace that belongs to whoever uses arrays, with its line. A program without symbols has no names for its
/// own functions, only for those of shared libraries: nothing in its traces is a site.
fn site(trace: &str) -> Option<String> {
    let mut lines = trace.lines().peekable();
    let mut has_symbols = false;
    while let Some(line) = lines.next() {
        let Some((number, function)) = line.trim_start().split_once(": ") else { continue };
        if number.parse::<usize>().is_err() {
            continue;
        }
        let place = lines.peek().and_then(|next| next.trim_start().strip_prefix("at "));
        if is_ours(function, place) {
            has_symbols = true;
            continue;
        }
        // Functions of C, such as libc's that start threads, have no path; those of Rust that were inlined have none either, but a place.
        let is_rust = function.contains("::") || place.is_some_and(|place| place.contains(".rs:"));
        if !has_symbols || !is_rust {
            continue;
        }
        // The path as the compiler saw it says where on its machine; the last three parts say where in the source.
        let place = place.map(|place| place.rsplit(['/', '\\']).take(3).collect::<Vec<_>>());
        let place = place.map(|parts| parts.into_iter().rev().collect::<Vec<_>>().join("/"));
        return Some(place.map_or_else(|| function.to_owned(), |place| format!("{function} ({place})")));
    }
    None
}

/// Whether a function is of the crates below the user's, or of the standard library: by its path, or, where it was inlined and a
/// release build tells its bare name only, by the file it is in.
fn is_ours(function: &str, place: Option<&str>) -> bool {
    const PATHS: [&str; 6] =
        ["gradewise_kernels::", "gradewise_autograd::", "std::", "core::", "alloc::", "__rust"];
    const KERNELS: &str = env!("CARGO_MANIFEST_DIR");
    let bare = function.trim_start_matches(['<', '&', '(']);
    if PATHS.iter().any(|path| bare.starts_with(path)) {
        return true;
    }
    let Some(place) = place else { return false };
    if place.starts_with("/rustc/") {
        return true;
    }
    // A trace tells files relative to the directory of the process.
    let file = match place.strip_prefix("./") {
        Some(relative) => std::env::current_dir().unwrap_or_default().join(relative),
        None => PathBuf::from(place),
    };
    // The crates lie side by side, in a registry under names with versions.
    let Some(inside) = Path::new(KERNELS).parent().and_then(|folder| file.strip_prefix(folder).ok()) else {
        return false;
    };
    let mut parts = inside.components().map(|part| part.as_os_str().to_string_lossy().into_owned());
    let name = parts.next().unwrap_or_default();
    let is_below = ["kernels", "autograd"]
        .iter()
        .any(|below| name == *below || name.starts_with(&format!("gradewise-{below}-")));
    is_below && parts.next().as_deref() == Some("src")
}

/// Arrays that came to be in the same way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Their name, or the operation with scope and site.
    pub label: String,
    /// Their number.
    pub arrays: usize,
    /// Their size.
    pub bytes: usize,
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>10}  {:>6}  {}", Bytes(self.bytes).to_string(), self.arrays, self.label)
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => f.write_str(name)?,
            None => write!(f, "`{}`", self.operation)?,
        }
        if self.name.is_none() && !self.scope.is_empty() {
            write!(f, " in {}", self.scope)?;
        }
        match &self.site {
            Some(site) if self.name.is_none() => write!(f, ", by {site}"),
            _ => Ok(()),
        }
    }
}

/// Entries with the same label together, the largest first.
pub fn grouped<'a>(entries: impl IntoIterator<Item = &'a Entry>) -> Vec<Group> {
    let mut groups: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    for entry in entries {
        let group = groups.entry(entry.to_string()).or_default();
        *group = (group.0 + 1, group.1 + entry.bytes);
    }
    let group = |(label, (arrays, bytes))| Group { label, arrays, bytes };
    let mut groups: Vec<Group> = groups.into_iter().map(group).collect();
    groups.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.label.cmp(&b.label)));
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_site_is_the_first_caller_outside() {
        let trace = "   0: std::backtrace::Backtrace::force_capture\n             at /rustc/0/library/std/src/backtrace.rs:1:1\n   \
                     1: gradewise_kernels::memory::Block::new\n             at ./crates/kernels/src/memory.rs:150:9\n   \
                     2: <gradewise_autograd::tensor::Tensor>::relu\n             at ./crates/autograd/src/ops/unary.rs:3:9\n   \
                     3: my_model::Layer::forward\n             at /home/someone/model/src/layer.rs:12:34\n   4: main\n";
        assert_eq!(site(trace).unwrap(), "my_model::Layer::forward (model/src/layer.rs:12:34)");
        assert_eq!(site("   0: std::x\n"), None);
        assert_eq!(site("   0: std::x\n   1: user::f\n").unwrap(), "user::f");
        assert_eq!(site("disabled backtrace"), None);
        assert_eq!(site("   0: <unknown>\n   1: <unknown>\n"), None);
        let stripped = "   0: <unknown>\n   1: <unknown>\n   2: start_thread\n   3: __clone3\n";
        assert_eq!(site(stripped), None);
        let foreign =
            "   0: <unknown>\n   1: <unknown>\n   2: some_library::callback\n   3: __libc_start_main\n";
        assert_eq!(site(foreign), None, "not the program's own");
        let thread =
            "   0: std::x\n   1: gradewise_kernels::y\n   2: std::z\n   3: start_thread\n   4: __clone3\n";
        assert_eq!(site(thread), None);
        let inlined =
            "   0: std::x\n   1: array\n             at ./tests/memory.rs:26:5\n   2: start_thread\n";
        assert_eq!(site(inlined).unwrap(), "array (./tests/memory.rs:26:5)");
    }
}
