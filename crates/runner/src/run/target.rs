//! The files that commands write where the user says.

use super::lock::FolderLock;
use crate::error::{Error, Result};
use gradewise_nn::checkpoint::{Checkpoint, TensorFile};
use std::path::Path;

/// A file that a command is to write.
///
/// A file that is there already is replaced if it is empty or an earlier result of the same command; every other one only with
/// `--overwrite`.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    path: &'a Path,
    /// The option that names the file.
    option: &'static str,
    overwrite: bool,
}

impl<'a> Target<'a> {
    /// The file that `option` names, with the flag `--overwrite` of the command.
    pub fn new(option: &'static str, path: &'a Path, overwrite: bool) -> Self {
        Self { path, option, overwrite }
    }

    /// Whether the file may be written: `is_own` says whether a file that is there is an earlier result of this command. Call this before
    /// the work, and before writing.
    ///
    /// # Errors
    /// [`Error::Usage`] if the file is one of the `inputs` or a foreign file, or if a run writes into its folder at this moment.
    pub fn require_free(&self, inputs: &[&Path], is_own: impl FnOnce(&Path) -> bool) -> Result<()> {
        let (path, option) = (self.path.display(), self.option);
        let parent =
            self.path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        FolderLock::require_free(parent)?;
        let Ok(found) = std::fs::metadata(self.path) else { return Ok(()) };
        if !found.is_file() {
            let kind = if found.is_dir() { "a folder" } else { "a device, a pipe or a socket" };
            return Err(Error::Usage(format!("{option} {path}: it is {kind}; name a file")));
        }
        if self.overwrite {
            return Ok(());
        }
        let replace = "write to another file, or replace this one by --overwrite";
        if inputs.iter().any(|input| is_same_file(input, self.path)) {
            return Err(Error::Usage(format!("{option} {path}: it is an input of this command; {replace}")));
        }
        if found.len() == 0 || is_own(self.path) {
            return Ok(());
        }
        Err(Error::Usage(format!("{option} {path}: {}; {replace}", what(self.path))))
    }
}

/// Describes a file that would be lost.
fn what(path: &Path) -> String {
    match Checkpoint::read(path) {
        Ok(Checkpoint { metadata, .. }) if !metadata.training.is_null() => format!(
            "it is a checkpoint of `{}` that training can go on from, after step {}",
            metadata.model, metadata.step
        ),
        Ok(Checkpoint { metadata, .. }) => format!("it is a checkpoint of `{}`", metadata.model),
        Err(_) if TensorFile::read(path).is_ok() => "there are other tensors in it".to_owned(),
        Err(_) => "it is a file that this command has not written".to_owned(),
    }
}

/// Whether two paths name the same file, by links, too.
pub(crate) fn is_same_file(first: &Path, second: &Path) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        let identity = |path: &Path| std::fs::metadata(path).ok().map(|found| (found.dev(), found.ino()));
        identity(first).is_some() && identity(first) == identity(second)
    }
    #[cfg(not(unix))]
    {
        let whole = |path: &Path| path.canonicalize().ok();
        whole(first).is_some() && whole(first) == whole(second)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_foreign_files_and_folders_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let target = |file: &'static str, overwrite, inputs: &[&Path], own: bool| {
            Target::new("--out", &path(file), overwrite)
                .require_free(inputs, |_| own)
                .map_err(|e| e.to_string())
        };
        target("new", false, &[], false).unwrap();
        std::fs::write(path("empty"), "").unwrap();
        target("empty", false, &[], false).unwrap();
        std::fs::write(path("notes.txt"), "of years").unwrap();
        for refused in [
            target("notes.txt", false, &[], false),
            // An input is kept even if it looks like a result.
            target("notes.txt", false, &[&folder.path().join("./notes.txt")], true),
        ] {
            let message = refused.unwrap_err();
            assert!(message.contains("--out") && message.contains("--overwrite"), "{message}");
        }
        target("notes.txt", false, &[&path("empty")], true).unwrap();
        target("notes.txt", true, &[&path("notes.txt")], false).unwrap();
        assert!(target(".", true, &[], true).unwrap_err().contains("a folder"));
        #[cfg(unix)]
        {
            std::fs::hard_link(path("notes.txt"), path("link")).unwrap();
            assert!(target("link", false, &[&path("notes.txt")], true).unwrap_err().contains("an input"));
            let null = Target::new("--out", Path::new("/dev/null"), true).require_free(&[], |_| true);
            assert!(null.unwrap_err().to_string().contains("a device"));
        }
    }

    #[test]
    fn nothing_is_written_into_the_folder_of_a_run_that_is_under_way() {
        let folder = tempfile::tempdir().unwrap();
        let lock = FolderLock::take(folder.path()).unwrap();
        let file = folder.path().join("checkpoint.safetensors");
        let asked = || Target::new("--out", &file, true).require_free(&[], |_| true);
        assert!(asked().unwrap_err().to_string().contains("in use"));
        drop(lock);
        asked().unwrap();
    }
}
