//! The folder of a run.

use super::FolderLock;
use crate::{
    config::{self, Train},
    error::{Error, Result},
};
use gradewise_nn::checkpoint::replace_file;
use serde::Serialize;
use std::{
    io::ErrorKind,
    path::{Path, PathBuf},
};

/// The folder of a run's files.
#[derive(Debug)]
pub struct RunFolder {
    path: PathBuf,
    /// Held by the process that writes there.
    lock: Option<FolderLock>,
}

impl RunFolder {
    /// A new folder, locked: `out` if given, else `runs/<name>-<number>` with the first free number.
    ///
    /// # Errors
    /// `out` holds a run already, or another process writes there; the folder cannot be made.
    pub fn create(out: Option<&Path>, name: &str) -> Result<Self> {
        let failed = |path: &Path, error: std::io::Error| Error::Output {
            path: path.to_owned(),
            reason: error.to_string(),
        };
        if let Some(out) = out {
            std::fs::create_dir_all(out).map_err(|error| failed(out, error))?;
            let folder = Self::at(out).locked()?;
            let (path, begun) = (out.display(), folder.has_begun());
            return match (folder.config().exists(), begun) {
                (_, true) => Err(Error::Usage(format!(
                    "{path} holds a run already; go on with it by --resume {path}, or choose another folder"
                ))),
                (true, false) => Err(Error::Usage(format!(
                    "{path} holds a run that ended before its first checkpoint; begin it again by --resume {path}, or choose another \
                     folder"
                ))),
                (false, false) => Ok(folder),
            };
        }
        let runs = Path::new("runs");
        std::fs::create_dir_all(runs).map_err(|error| failed(runs, error))?;
        let mut number = 1u64;
        loop {
            let path = runs.join(format!("{name}-{number}"));
            match std::fs::create_dir(&path) {
                Ok(()) => return Self::at(&path).locked(),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => number += 1,
                Err(error) => return Err(failed(&path, error)),
            }
        }
    }

    /// A folder to read from, without checks of its contents.
    pub fn at(path: &Path) -> Self {
        Self { path: path.to_owned(), lock: None }
    }

    /// The folder of an earlier run, which may have ended before its first checkpoint.
    ///
    /// # Errors
    /// It holds no run.
    pub fn open(path: &Path) -> Result<Self> {
        let folder = Self::at(path);
        if folder.config().is_file() {
            return Ok(folder);
        }
        Err(Error::Usage(format!(
            "{} is not the folder of a run that can go on: {} is missing",
            path.display(),
            folder.config().display()
        )))
    }

    /// Locks the folder, so that this process alone writes there.
    ///
    /// # Errors
    /// As [`FolderLock::take`].
    pub fn locked(mut self) -> Result<Self> {
        if self.lock.is_none() {
            self.lock = Some(FolderLock::take(&self.path)?);
        }
        Ok(self)
    }

    /// Whether there is a checkpoint to go on from.
    pub fn has_begun(&self) -> bool {
        self.checkpoint().exists()
    }

    /// The folder itself.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The resolved configuration.
    pub fn config(&self) -> PathBuf {
        self.path.join("config.toml")
    }

    /// Weights and training state.
    pub fn checkpoint(&self) -> PathBuf {
        self.path.join("checkpoint.safetensors")
    }

    /// The record of the run.
    pub fn metrics(&self) -> PathBuf {
        self.path.join("metrics.jsonl")
    }

    /// What the run is, where it was made and what came out: [`About`](crate::page::About).
    pub fn about(&self) -> PathBuf {
        self.path.join("run.json")
    }

    /// The machine, for people.
    pub fn environment(&self) -> PathBuf {
        self.path.join("environment.txt")
    }

    /// The report that the run printed at its end.
    pub fn result(&self) -> PathBuf {
        self.path.join("result.txt")
    }

    /// The page about the run.
    pub fn page(&self) -> PathBuf {
        self.path.join("report.html")
    }

    /// The figure of loss over steps.
    pub fn loss(&self) -> PathBuf {
        self.path.join("loss.svg")
    }

    /// The best weights on the valid split, if they are kept.
    pub fn best(&self) -> PathBuf {
        self.path.join("best.safetensors")
    }

    /// The [best](Self::best) weights, if the run reports on these and has saved any.
    pub fn kept_best(&self, train: &Train) -> Option<PathBuf> {
        Some(self.best()).filter(|best| train.keeps_best() && best.exists())
    }

    /// The weights of a step whose results were not finite.
    pub fn failed(&self) -> PathBuf {
        self.path.join("failed.safetensors")
    }

    /// A file of the task.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Writes the resolved configuration.
    ///
    /// # Errors
    /// From writing.
    pub fn write_config(&self, config: &impl Serialize) -> Result<()> {
        let text = config::text(config)?;
        Ok(replace_file(self.config(), |file| file.write_all(text.as_bytes()))?)
    }
}
