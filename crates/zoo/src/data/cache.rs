//! A cache in the user's cache directory for data that take long to generate.
//!
//! A file's name contains a hash of everything that determines its data, this crate's version included. A damaged or foreign file is
//! generated again. If the directory is not writable, data are generated each time.

use gradewise_core::DType;
use gradewise_nn::{
    Error, Result,
    checkpoint::{StoredTensor, TensorFile, sha256},
};
use std::{
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

/// The environment variable that names another directory. If it is empty, nothing is cached.
pub const VARIABLE: &str = "GRADEWISE_DATA_CACHE";

const KEY: &str = "made_from";
const HASH: &str = "sha256";

/// The cache directory: the value of `GRADEWISE_DATA_CACHE`, else `gradewise/data` in the user's cache directory. `None` if there is none.
pub fn directory() -> Option<PathBuf> {
    if let Some(given) = std::env::var_os(VARIABLE) {
        return (!given.is_empty()).then(|| PathBuf::from(given));
    }
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let base = variable("XDG_CACHE_HOME")
        .or_else(|| variable("LOCALAPPDATA").filter(|_| cfg!(windows)))
        .or_else(|| variable("HOME").map(|home| home.join(".cache")))?;
    base.is_absolute().then(|| base.join("gradewise").join("data"))
}

/// Arrays in double precision from the cache; if they are missing, from `make`, whose result is then cached. `key` must name everything the
/// arrays depend on; `name` is the prefix of the file's name.
///
/// # Errors
/// Those of `make`.
pub fn arrays<const N: usize>(
    name: &str,
    key: &str,
    names: [&str; N],
    make: impl FnOnce() -> Result<[Vec<f64>; N]>,
) -> Result<[Vec<f64>; N]> {
    let Some(folder) = directory() else { return make() };
    arrays_in(&folder, name, key, names, make)
}

/// One array in single precision, as [`arrays`].
///
/// # Errors
/// Those of `make`.
pub fn single_array(name: &str, key: &str, make: impl FnOnce() -> Result<Vec<f32>>) -> Result<Vec<f32>> {
    let Some(folder) = directory() else { return make() };
    let wide = || Ok([make()?.into_iter().map(f64::from).collect()]);
    let [values] = arrays_in_as(&folder, (name, DType::F32), key, ["values"], wide)?;
    Ok(values.into_iter().map(|value: f64| value as f32).collect())
}

fn arrays_in<const N: usize>(
    folder: &Path,
    name: &str,
    key: &str,
    names: [&str; N],
    make: impl FnOnce() -> Result<[Vec<f64>; N]>,
) -> Result<[Vec<f64>; N]> {
    arrays_in_as(folder, (name, DType::F64), key, names, make)
}

fn arrays_in_as<const N: usize>(
    folder: &Path,
    (name, dtype): (&str, DType),
    key: &str,
    names: [&str; N],
    make: impl FnOnce() -> Result<[Vec<f64>; N]>,
) -> Result<[Vec<f64>; N]> {
    let key = format!("{key}, gradewise {}", env!("CARGO_PKG_VERSION"));
    // A build without the feature `files` caches nothing.
    let Some(hash) = sha256([&key]) else { return make() };
    let path = folder.join(format!("{name}-{}.safetensors", &hash[..16]));
    if path.exists() {
        match read(&path, &key, names) {
            Some(arrays) => return Ok(arrays),
            None => tracing::warn!("{} is damaged or foreign; generating its data again", path.display()),
        }
    }
    let arrays = make()?;
    if let Err(error) = keep((&path, dtype), &key, names, &arrays) {
        tracing::warn!("cannot cache the data: {error}");
    }
    Ok(arrays)
}

fn keep<const N: usize>(
    (path, dtype): (&Path, DType),
    key: &str,
    names: [&str; N],
    arrays: &[Vec<f64>; N],
) -> Result<()> {
    let mut file = TensorFile::new();
    file.metadata.insert(KEY.to_owned(), key.to_owned());
    for (name, values) in names.iter().zip(arrays) {
        file.insert(*name, StoredTensor::from_f64(&[values.len()], values, dtype)?);
    }
    file.metadata.extend(file.digest().map(|hash| (HASH.to_owned(), hash)));
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(|source| Error::io("make the cache", folder, source))?;
    }
    // Written under a unique name first: other threads or processes may be caching the same data.
    static WRITTEN: AtomicU64 = AtomicU64::new(0);
    let number = WRITTEN.fetch_add(1, Ordering::Relaxed);
    let own = path.with_extension(format!("{}-{number}", std::process::id()));
    file.write(&own)?;
    std::fs::rename(&own, path).map_err(|source| {
        // Removes the temporary file; only the error of the rename is reported.
        let _ = std::fs::remove_file(&own);
        Error::Write { path: path.to_owned(), source }
    })
}

/// The arrays of a file, unless it is damaged or holds something else.
fn read<const N: usize>(path: &Path, key: &str, names: [&str; N]) -> Option<[Vec<f64>; N]> {
    let file = TensorFile::read(path).ok()?;
    if file.metadata.get(KEY)? != key || file.metadata.get(HASH) != file.digest().as_ref() {
        return None;
    }
    let arrays: Vec<Vec<f64>> =
        names.iter().map(|name| file.get(name)?.to_f64_vec()).collect::<Option<_>>()?;
    arrays.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn data_are_made_once_and_again_if_the_file_is_damaged() {
        let folder = tempfile::tempdir().unwrap();
        let made = Cell::new(0);
        let get = |key: &str| {
            arrays_in(folder.path(), "test", key, ["a", "b"], || {
                made.set(made.get() + 1);
                Ok([vec![1.0, f64::MIN_POSITIVE], vec![-0.0; made.get()]])
            })
            .unwrap()
        };
        let first = get("one");
        assert_eq!((get("one"), made.get()), (first.clone(), 1));
        assert_eq!((get("two")[1].len(), made.get()), (2, 2));
        for entry in std::fs::read_dir(folder.path()).unwrap() {
            let path = entry.unwrap().path();
            let mut bytes = std::fs::read(&path).unwrap();
            let last = bytes.len() - 1;
            bytes[last] ^= 1;
            std::fs::write(&path, bytes).unwrap();
        }
        assert_eq!((get("one")[1].len(), made.get()), (3, 3), "a damaged file is not used");
        assert_eq!((get("one")[1].len(), made.get()), (3, 3));
    }

    #[test]
    fn many_may_keep_the_same_data_at_once() {
        let folder = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..20 {
                        let path = folder.path().join("same");
                        keep((&path, DType::F64), "key", ["a"], &[vec![1.0; 1000]]).unwrap();
                    }
                });
            }
        });
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_directory_that_cannot_be_written_is_no_error() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "no folder").unwrap();
        assert_eq!(arrays_in(&file, "test", "key", ["a"], || Ok([vec![2.0]])).unwrap(), [[2.0]]);
    }
}
