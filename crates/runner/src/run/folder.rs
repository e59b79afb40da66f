//! The folder of a run.

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
pub struct RunFolder(PathBuf);

impl RunFolder {
    /// A new folder: `out` if given, else `runs/<name>-<number>` with the first free number.
    ///
    /// # Errors
    /// `out` holds a run already; the folder cannot be made.
    pub fn create(out: Option<&Path>, name: &str) -> Result<Self> {
        let failed = |path: &Path, error: std::io::Error| Error::Output {
            path: path.to_owned(),
            reason: error.to_string(),
        };
        if let Some(out) = out {
            std::fs::create_dir_all(out).map_err(|error| failed(out, error))?;
            let folder = Self(out.to_owned());
            if folder.config().exists() || folder.checkpoint().exists() {
                return Err(Error::Usage(format!(
                    "{} holds a run already; go on with it by --resume {}, or choose another folder",
                    out.display(),
                    out.display()
                )));
            }
            return Ok(folder);
        }
        let runs = Path::new("runs");
        std::fs::create_dir_all(runs).map_err(|error| failed(runs, error))?;
        let mut number = 1u64;
        loop {
            let path = runs.join(format!("{name}-{number}"));
            match std::fs::create_dir(&path) {
                Ok(()) => return Ok(Self(path)),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => number += 1,
                Err(error) => return Err(failed(&path, error)),
            }
        }
    }

    /// A folder to read from, without checks of its contents.
    pub fn at(path: &Path) -> Self {
        Self(path.to_owned())
    }

    /// The folder of an earlier run.
    ///
    /// # Errors
    /// It holds no run.
    pub fn open(path: &Path) -> Result<Self> {
        let folder = Self(path.to_owned());
        for file in [folder.config(), folder.checkpoint()] {
            if !file.is_file() {
                return Err(Error::Usage(format!(
                    "{} is not the folder of a run that can go on: {} is missing",
                    path.display(),
                    file.display()
                )));
            }
        }
        Ok(folder)
    }

    /// The folder itself.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The resolved configuration.
    pub fn config(&self) -> PathBuf {
        self.0.join("config.toml")
    }

    /// Weights and training state.
    pub fn checkpoint(&self) -> PathBuf {
        self.0.join("checkpoint.safetensors")
    }

    /// The record of the run.
    pub fn metrics(&self) -> PathBuf {
        self.0.join("metrics.jsonl")
    }

    /// The figure of loss over steps.
    pub fn loss(&self) -> PathBuf {
        self.0.join("loss.svg")
    }

    /// The best weights on the valid split, if they are kept.
    pub fn best(&self) -> PathBuf {
        self.0.join("best.safetensors")
    }

    /// The [best](Self::best) weights, if the run reports on these and has saved any.
    pub fn kept_best(&self, train: &Train) -> Option<PathBuf> {
        Some(self.best()).filter(|best| train.keeps_best() && best.exists())
    }

    /// The weights of a step whose results were not finite.
    pub fn failed(&self) -> PathBuf {
        self.0.join("failed.safetensors")
    }

    /// A file of the task.
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
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
