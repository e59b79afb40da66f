//! The record of a run: one JSON object per line.

use crate::checkpoint::replace_file;
use crate::{Error, Result};
use serde::Serialize;
use serde_json::Value;
use std::{
    fs::{File, OpenOptions},
    io::Write,
    path::{Path, PathBuf},
};

/// Appends records to a `.jsonl` file; each is flushed to the operating system before the next step.
#[derive(Debug)]
pub struct MetricsLog {
    path: PathBuf,
    file: File,
}

impl MetricsLog {
    /// Starts an empty record, replacing an earlier one.
    ///
    /// # Errors
    /// [`Error::Write`].
    pub fn create(path: impl Into<PathBuf>) -> Result<Self> {
        let path = path.into();
        match File::create(&path) {
            Ok(file) => Ok(Self { path, file }),
            Err(source) => Err(Error::Write { path, source }),
        }
    }

    /// Continues the record of a run that is resumed after `step` steps. Later records, which the run will write again,
    /// and a line truncated by a crash are dropped. If there is no file, starts an empty record.
    ///
    /// # Errors
    /// [`Error::Io`] or [`Error::Write`].
    pub fn resume(path: impl Into<PathBuf>, step: u64) -> Result<Self> {
        Self::resumed(path.into(), step, |_| true)
    }

    /// As [`resume`](Self::resume), without the records that have a value under `key`, such as those of an end that is no longer one.
    ///
    /// # Errors
    /// As [`resume`](Self::resume).
    pub fn resume_without(path: impl Into<PathBuf>, step: u64, key: &str) -> Result<Self> {
        Self::resumed(path.into(), step, |record| record.get(key).is_none())
    }

    fn resumed(path: PathBuf, step: u64, stays: impl Fn(&Value) -> bool) -> Result<Self> {
        if !path.exists() {
            return Self::create(path);
        }
        let is_before = |record: &Value| record["step"].as_u64().is_some_and(|of| of <= step);
        let kept: Vec<Value> =
            Self::read(&path)?.into_iter().filter(|record| is_before(record) && stays(record)).collect();
        replace_file(&path, |file| kept.iter().try_for_each(|record| writeln!(file, "{record}")))?;
        match OpenOptions::new().append(true).open(&path) {
            Ok(file) => Ok(Self { path, file }),
            Err(source) => Err(Error::Write { path, source }),
        }
    }

    /// Appends one record.
    ///
    /// # Errors
    /// [`Error::Write`].
    pub fn write(&mut self, record: &impl Serialize) -> Result<()> {
        let line = serde_json::to_string(record).map_err(std::io::Error::from);
        line.and_then(|line| self.file.write_all((line + "\n").as_bytes()).and_then(|()| self.file.flush()))
            .map_err(|source| Error::Write { path: self.path.clone(), source })
    }

    /// The records of a file. Lines that are not JSON objects, such as one truncated by a crash, are skipped.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn read(path: impl AsRef<Path>) -> Result<Vec<Value>> {
        let path = path.as_ref();
        let bytes = crate::checkpoint::read_file("read metrics", path)?;
        let lines = bytes.split(|&byte| byte == b'\n');
        Ok(lines.filter_map(|line| serde_json::from_slice(line).ok()).filter(Value::is_object).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_resumed_record_drops_what_will_be_written_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.jsonl");
        let mut log = MetricsLog::create(&path).unwrap();
        for step in [10, 20, 30] {
            log.write(&json!({"step": step, "loss": 0.5})).unwrap();
        }
        drop(log);
        let mut cut = OpenOptions::new().append(true).open(&path).unwrap();
        cut.write_all(b"{\"step\": 1, \"lo").unwrap();
        let mut log = MetricsLog::resume(&path, 20).unwrap();
        log.write(&json!({"step": 30, "loss": 0.25})).unwrap();
        let records = MetricsLog::read(&path).unwrap();
        assert_eq!(records.iter().map(|r| r["step"].as_u64().unwrap()).collect::<Vec<_>>(), [10, 20, 30]);
        assert_eq!(records[2]["loss"], 0.25);
        log.write(&json!({"step": 30, "test_mse": 1.0})).unwrap();
        drop(MetricsLog::resume_without(&path, 30, "test_mse").unwrap());
        assert_eq!(MetricsLog::read(&path).unwrap(), records);
        assert!(MetricsLog::resume(folder.path().join("none.jsonl"), 5).is_ok());
        assert!(matches!(MetricsLog::create("/nonexistent/m.jsonl"), Err(Error::Write { .. })));
    }
}
