//! The lock of a run folder: one process at a time writes the files of a run.

use crate::error::{Error, Result};
use gradewise_bench::date;
use serde::{Deserialize, Serialize};
use std::{
    fs::{File, OpenOptions, TryLockError},
    io::{self, Read, Seek, Write},
    path::{Path, PathBuf},
    thread,
    time::{Duration, SystemTime},
};

/// The locked file of a folder.
const FILE: &str = ".lock";
/// The file that holds a [`Holder`] as JSON: the locked one, except on Windows, where no other process can read a locked file.
const DETAILS: &str = if cfg!(windows) { ".lock-holder" } else { FILE };
/// Attempts to take a lock whose holder has not written its details yet: it has just started, or only asks whether the lock is held.
const ATTEMPTS: u32 = 10;
const PAUSE: Duration = Duration::from_millis(50);

/// The process that holds a lock, for the messages of other processes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Holder {
    process: u32,
    host: String,
    /// UTC.
    since: String,
    command: String,
}

impl Holder {
    fn this_process() -> Self {
        let words: Vec<String> =
            std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
        Self {
            process: std::process::id(),
            host: gradewise_distributed::this_process().host,
            since: date(SystemTime::now()),
            command: words.join(" "),
        }
    }

    /// The details of a folder's holder, if it has written them.
    fn read(folder: &Path) -> Option<Self> {
        let mut text = String::new();
        File::open(folder.join(DETAILS)).ok()?.take(1 << 16).read_to_string(&mut text).ok()?;
        serde_json::from_str(&text).ok()
    }

    /// Writes the details, on behalf of the process that has `lock`.
    fn write(&self, folder: &Path, lock: &mut File) -> io::Result<()> {
        let details = serde_json::to_string(self).unwrap_or_default();
        if DETAILS != FILE {
            return std::fs::write(folder.join(DETAILS), details);
        }
        lock.set_len(0)?;
        lock.rewind()?;
        lock.write_all(details.as_bytes())?;
        lock.flush()
    }

    /// Whether the process runs on this host. Without `/proc`, it may.
    fn may_run_here(&self) -> bool {
        !has_proc() || Path::new("/proc").join(self.process.to_string()).exists()
    }

    fn describe(&self) -> String {
        let Self { process, host, since, command } = self;
        format!("process {process} on the host {host} has been writing there since {since}: {command}")
    }
}

/// Whether the system lists its processes in `/proc`. Under wine the folder is there, with numbers of other processes.
fn has_proc() -> bool {
    cfg!(unix) && Path::new("/proc/self").exists()
}

/// The right to write into a run folder. The operating system releases it when the process ends, however it ends.
#[derive(Debug)]
pub struct FolderLock {
    file: File,
    path: PathBuf,
}

impl FolderLock {
    /// Locks a folder, which must exist.
    ///
    /// # Errors
    /// [`Error::Usage`] if another process holds the lock, with its number, host and command; [`Error::Output`] if no file can be written
    /// there.
    pub fn take(folder: &Path) -> Result<Self> {
        let path = folder.join(FILE);
        let failed = |error: io::Error| Error::Output { path: path.clone(), reason: error.to_string() };
        let mut attempt = 0;
        let mut file = loop {
            attempt += 1;
            let file = open(&path).map_err(failed)?;
            match file.try_lock() {
                // The previous holder removes the file at its end: a lock on a removed file excludes nobody.
                Ok(()) if !is_at(&file, &path) => {}
                Ok(()) => break file,
                Err(TryLockError::WouldBlock) => match Holder::read(folder) {
                    None if attempt < ATTEMPTS => thread::sleep(PAUSE),
                    holder => return Err(held(folder, holder.as_ref())),
                },
                Err(TryLockError::Error(error)) => {
                    without_locks(folder, &path, Holder::read(folder).as_ref(), &error)?;
                    break file;
                }
            }
        };
        let own = Holder::this_process();
        if let Some(earlier) = Holder::read(folder).filter(|earlier| earlier.host != own.host) {
            // Some network file systems keep locks within a host.
            tracing::warn!(
                "{}: {}; it has not reported its end, so make sure that it runs no more",
                folder.display(),
                earlier.describe()
            );
        }
        own.write(folder, &mut file).map_err(failed)?;
        Ok(Self { file, path })
    }

    /// Refuses to write into a folder into which a running process writes.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub fn require_free(folder: &Path) -> Result<()> {
        // A folder without the file is not locked; one that cannot be locked by this process is not its own to judge.
        let Ok(file) = File::open(folder.join(FILE)) else { return Ok(()) };
        match file.try_lock_shared() {
            Err(TryLockError::WouldBlock) => Err(held(folder, Holder::read(folder).as_ref())),
            Ok(()) | Err(TryLockError::Error(_)) => Ok(()),
        }
    }
}

impl Drop for FolderLock {
    fn drop(&mut self) {
        // Removed while it is locked. A process that has opened it in the meantime finds that out by `is_at`. Elsewhere the file stays,
        // without details.
        let removed = cfg!(unix) && std::fs::remove_file(&self.path).is_ok();
        if !removed {
            let _ = self.file.set_len(0);
        }
        if DETAILS != FILE {
            let _ = std::fs::remove_file(self.path.with_file_name(DETAILS));
        }
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)
}

/// Whether `path` still names this file.
#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let identity = |found: io::Result<std::fs::Metadata>| found.ok().map(|found| (found.dev(), found.ino()));
    let own = identity(file.metadata());
    own.is_some() && own == identity(std::fs::metadata(path))
}

#[cfg(not(unix))]
fn is_at(_: &File, _: &Path) -> bool {
    true
}

fn held(folder: &Path, holder: Option<&Holder>) -> Error {
    let who = holder.map_or_else(|| "another process writes there".to_owned(), Holder::describe);
    Error::Usage(format!(
        "{} is in use: {who}\na run folder has one writer: wait until that process has ended, or stop it; or choose another folder",
        folder.display()
    ))
}

/// Decides by the details alone, on a file system without locks.
fn without_locks(folder: &Path, path: &Path, holder: Option<&Holder>, error: &io::Error) -> Result<()> {
    let own = Holder::this_process();
    if let Some(holder) = holder.filter(|holder| holder.host != own.host || holder.may_run_here()) {
        return Err(Error::Usage(format!(
            "{} may be in use: {}\nthis file system has no locks ({error}); if that process has ended, delete {}",
            folder.display(),
            holder.describe(),
            path.display()
        )));
    }
    tracing::warn!(
        "{}: this file system has no locks ({error}); start no second process there",
        folder.display()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_has_one_writer_and_the_second_is_told_who_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let lock = FolderLock::take(folder.path()).unwrap();
        let own = std::process::id().to_string();
        for refused in [FolderLock::take(folder.path()).map(drop), FolderLock::require_free(folder.path())] {
            let message = refused.unwrap_err().to_string();
            for part in ["is in use", own.as_str(), &Holder::this_process().host, "since 20", "Z: "] {
                assert!(message.contains(part), "`{part}` is not in: {message}");
            }
        }
        drop(lock);
        let left = usize::from(cfg!(not(unix)));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), left, "no lock is left behind");
        FolderLock::require_free(folder.path()).unwrap();
        drop(FolderLock::take(folder.path()).unwrap());
    }

    #[test]
    fn the_lock_of_a_process_that_has_died_is_taken() {
        let folder = tempfile::tempdir().unwrap();
        // A process that is killed leaves its details.
        let dead = Holder { process: u32::MAX, ..Holder::this_process() };
        std::fs::write(folder.path().join(DETAILS), serde_json::to_string(&dead).unwrap()).unwrap();
        let lock = FolderLock::take(folder.path()).unwrap();
        let text = std::fs::read_to_string(folder.path().join(DETAILS)).unwrap();
        assert_eq!(serde_json::from_str::<Holder>(&text).unwrap().process, std::process::id());
        drop(lock);
    }

    #[test]
    fn without_locks_the_details_decide() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE);
        let unsupported = io::Error::from(io::ErrorKind::Unsupported);
        let decide = |holder: Option<&Holder>| without_locks(folder.path(), &path, holder, &unsupported);
        let own = Holder::this_process();
        let message = decide(Some(&own)).unwrap_err().to_string();
        assert!(message.contains("delete ") && message.contains(&own.host), "{message}");
        let elsewhere = Holder { host: "elsewhere".to_owned(), ..own.clone() };
        assert!(decide(Some(&elsewhere)).is_err());
        decide(None).unwrap();
        let dead = Holder { process: u32::MAX, ..own };
        if has_proc() {
            decide(Some(&dead)).unwrap();
        }
    }

    #[test]
    fn threads_that_take_and_release_a_lock_never_hold_it_together() {
        use std::sync::atomic::{AtomicU32, Ordering};
        let folder = tempfile::tempdir().unwrap();
        let (inside, taken) = (AtomicU32::new(0), AtomicU32::new(0));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let Ok(lock) = FolderLock::take(folder.path()) else { continue };
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                        taken.fetch_add(1, Ordering::SeqCst);
                        inside.fetch_sub(1, Ordering::SeqCst);
                        drop(lock);
                    }
                });
            }
        });
        assert!(taken.load(Ordering::SeqCst) >= 4);
    }
}
