//! Replacing a file as a whole.

use crate::{Error, Result};
use std::{
    fs::File,
    io::{self, BufWriter, Write},
    path::Path,
};

/// The bytes of a file, on behalf of `operation`. Devices, pipes and sockets are refused: reading them may block or never end.
///
/// # Errors
/// [`Error::Io`].
pub fn read_file(operation: &'static str, path: impl AsRef<Path>) -> Result<Vec<u8>> {
    let path = path.as_ref();
    require_regular(operation, path)?;
    std::fs::read(path).map_err(|source| Error::io(operation, path, source))
}

/// Refuses a path that is neither a file nor a folder, without opening it.
///
/// # Errors
/// [`Error::Io`].
pub fn require_regular(operation: &'static str, path: &Path) -> Result<()> {
    let kind = std::fs::metadata(path).map_err(|source| Error::io(operation, path, source))?.file_type();
    if kind.is_file() || kind.is_dir() {
        return Ok(());
    }
    let reason = "it is a device, a pipe or a socket; write its contents to a file first";
    Err(Error::io(operation, path, io::Error::new(io::ErrorKind::InvalidInput, reason)))
}

/// Writes a file atomically: the contents go to `<name>.partial` in the same folder, are synced to the disk, and then
/// replace `path` by a rename. If anything fails, or the process is killed, a previous file at `path` stays as it was.
///
/// # Errors
/// [`Error::Write`] from creating, writing (a full disk) or renaming; the partial file is removed.
pub fn replace_file(
    path: impl AsRef<Path>,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<()> {
    let path = path.as_ref();
    let failed = |source| Error::Write { path: path.to_owned(), source };
    let name = path.file_name().ok_or_else(|| {
        failed(io::Error::new(io::ErrorKind::InvalidInput, "the path does not name a file"))
    })?;
    let mut partial_name = name.to_owned();
    partial_name.push(".partial");
    let partial = path.with_file_name(partial_name);
    let result = write_and_sync(&partial, write).and_then(|()| std::fs::rename(&partial, path));
    if let Err(source) = result {
        // The error that matters is the first one; the partial file may not even exist.
        let _ = std::fs::remove_file(&partial);
        return Err(failed(source));
    }
    sync_folder(path);
    Ok(())
}

fn write_and_sync(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    write(&mut file)?;
    file.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()
}

/// Syncs the folder, so that the rename itself is durable. Does nothing on systems where folders cannot be synced.
fn sync_folder(path: &Path) {
    let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if let Ok(folder) = File::open(folder) {
        let _ = folder.sync_all();
    }
}
