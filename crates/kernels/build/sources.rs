//! The CUDA sources: files that are compiled and the headers they share.

use super::{Result, cache::Digest};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// Where the sources are for the crate in `manifest`: beside it in a published package, two levels up in the repository.
pub fn root(manifest: &Path) -> PathBuf {
    let own = manifest.join("csrc");
    if own.is_dir() { own } else { manifest.join("../../csrc") }
}

/// All of `csrc`, by path relative to it with forward slashes.
pub struct Sources {
    /// Where it is.
    pub root: PathBuf,
    files: BTreeMap<String, String>,
    directories: Vec<PathBuf>,
}

impl Sources {
    /// Reads every source below `root`.
    pub fn read(root: &Path) -> Result<Self> {
        if !root.is_dir() {
            return Err(format!("{} is not a directory; the CUDA sources are missing", root.display()));
        }
        let mut sources = Self { root: root.to_owned(), files: BTreeMap::new(), directories: Vec::new() };
        sources.visit(root, "")?;
        Ok(sources)
    }

    fn visit(&mut self, directory: &Path, prefix: &str) -> Result<()> {
        let explain = |error| format!("cannot read {}: {error}", directory.display());
        self.directories.push(directory.to_owned());
        for entry in fs::read_dir(directory).map_err(explain)? {
            let path = entry.map_err(explain)?.path();
            let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
            let relative = format!("{prefix}{name}");
            if path.is_dir() {
                self.visit(&path, &format!("{relative}/"))?;
            } else if matches!(path.extension().and_then(|extension| extension.to_str()), Some("cu" | "cuh"))
            {
                let text = fs::read_to_string(&path)
                    .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
                self.files.insert(relative, text);
            }
        }
        Ok(())
    }

    /// What the build depends on: every file, and every directory in which one may appear.
    pub fn watched(&self) -> impl Iterator<Item = PathBuf> {
        self.files.keys().map(|file| self.root.join(file)).chain(self.directories.iter().cloned())
    }

    /// The files to compile, every `*.cu`: their names without directory and extension, and their paths.
    pub fn kernels(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.keys().filter_map(|path| {
            let name = path.rsplit('/').next()?.strip_suffix(".cu")?;
            Some((name, path.as_str()))
        })
    }

    /// The headers.
    pub fn headers(&self) -> impl Iterator<Item = &str> {
        self.files.keys().filter(|path| path.ends_with(".cuh")).map(String::as_str)
    }

    /// The text of a file.
    pub fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(String::as_str)
    }

    /// Adds a file and all that it includes to a digest.
    ///
    /// # Errors
    /// If anything but a header of our own is included: NVRTC has no others.
    pub fn digest(&self, path: &str, digest: Digest) -> Result<Digest> {
        let mut seen = BTreeSet::new();
        self.collect(path, &mut seen)?;
        Ok(seen.iter().fold(digest, |digest, file| digest.with(file).with(&self.files[file.as_str()])))
    }

    fn collect(&self, path: &str, seen: &mut BTreeSet<String>) -> Result<()> {
        if !seen.insert(path.to_owned()) {
            return Ok(());
        }
        let Some(text) = self.files.get(path) else {
            return Err(format!("{path} is not in {}", self.root.display()));
        };
        for (number, line) in text.lines().enumerate() {
            let Some(included) = included(line) else { continue };
            let beside = path.rsplit_once('/').map(|(directory, _)| format!("{directory}/{included}"));
            let candidates = [beside.unwrap_or_default(), included.to_owned()];
            let Some(header) = candidates.iter().find(|candidate| self.files.contains_key(*candidate)) else {
                return Err(format!(
                    "csrc/{path}:{}: `{included}` is not a header in csrc; kernels include no others, so that NVRTC can \
                     compile them on machines without a toolkit",
                    number + 1
                ));
            };
            self.collect(header, seen)?;
        }
        Ok(())
    }
}

/// The name in an `#include` directive.
fn included(line: &str) -> Option<&str> {
    let name = line.trim_start().strip_prefix('#')?.trim_start().strip_prefix("include")?.trim_start();
    let end = match name.as_bytes().first()? {
        b'"' => '"',
        b'<' => '>',
        _ => return None,
    };
    name[1..].split_once(end).map(|(name, _)| name)
}
