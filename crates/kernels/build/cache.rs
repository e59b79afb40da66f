//! Compiled kernels in the user's cache directory, shared by all profiles and checkouts.

use super::variable;
use std::{
    fs, io,
    path::{Path, PathBuf},
    process,
    time::SystemTime,
};

/// Bytes of compiled kernels to keep; the least recently used go first.
const LIMIT: u64 = 512 << 20;

/// A directory of ours in the user's cache directory, by the rules of the system. `None` if there is no home.
pub fn directory(name: &str) -> Option<PathBuf> {
    let base = variable("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| variable("LOCALAPPDATA").filter(|_| cfg!(windows)).map(PathBuf::from))
        .or_else(|| variable("HOME").map(|home| PathBuf::from(home).join(".cache")))?;
    base.is_absolute().then(|| base.join("gradewise").join(name))
}

/// FNV-1a of 128 bits over byte strings, each followed by its length, so that no two lists look alike.
pub struct Digest(u128);

impl Default for Digest {
    fn default() -> Self {
        Self(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d)
    }
}

impl Digest {
    const PRIME: u128 = (1 << 88) + 0x13b;

    /// The digest of the strings so far and this one.
    #[must_use]
    pub fn with(mut self, bytes: impl AsRef<[u8]>) -> Self {
        let bytes = bytes.as_ref();
        for &byte in bytes.iter().chain(&(bytes.len() as u64).to_le_bytes()) {
            self.0 = (self.0 ^ u128::from(byte)).wrapping_mul(Self::PRIME);
        }
        self
    }

    /// In hexadecimal digits.
    pub fn text(&self) -> String {
        format!("{:032x}", self.0)
    }
}

/// Calls `make` to write a file unless it is there, and gives its contents. The file appears whole or not at all, and
/// several processes may want it at once.
pub fn file(
    directory: &Path,
    name: &str,
    make: impl FnOnce(&Path) -> Result<(), String>,
) -> Result<Vec<u8>, String> {
    let path = directory.join(name);
    let explain = |error: io::Error| {
        format!("cannot use the kernel cache {}: {error}; set XDG_CACHE_HOME", path.display())
    };
    if let Ok(bytes) = fs::read(&path) {
        // Marks it as used; a cache that is read-only works just as well.
        let _ = fs::File::options()
            .append(true)
            .open(&path)
            .and_then(|file| file.set_modified(SystemTime::now()));
        return Ok(bytes);
    }
    fs::create_dir_all(directory).map_err(explain)?;
    let part = directory.join(format!(".part.{}.{name}", process::id()));
    let made = make(&part).and_then(|()| {
        let bytes = fs::read(&part).map_err(explain)?;
        fs::rename(&part, &path).map_err(explain)?;
        Ok(bytes)
    });
    if made.is_err() {
        let _ = fs::remove_file(&part);
    }
    made
}

/// Removes the least recently used files beyond the size limit. A file that another process removes first is fine.
pub fn shrink(directory: &Path) {
    shrink_to(directory, LIMIT);
}

/// [`shrink`] to a given number of bytes.
pub fn shrink_to(directory: &Path, limit: u64) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    let file = |entry: fs::DirEntry| {
        let meta = entry.metadata().ok().filter(fs::Metadata::is_file)?;
        Some((meta.modified().ok()?, meta.len(), entry.path()))
    };
    let mut files: Vec<_> = entries.flatten().filter_map(file).collect();
    files.sort();
    let mut total: u64 = files.iter().map(|(_, size, _)| size).sum();
    for (_, size, path) in files {
        if total <= limit {
            break;
        }
        if fs::remove_file(path).is_ok() {
            total -= size;
        }
    }
}
