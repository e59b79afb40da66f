//! The error that ended a run, kept in its folder for whoever looks into it.

use super::RunFolder;
use crate::error::{Error, Result};
use gradewise_nn::checkpoint::replace_file;
use serde_json::json;
use std::{
    path::PathBuf,
    time::{SystemTime, UNIX_EPOCH},
};

impl RunFolder {
    /// The last error, if the run ended with one.
    pub fn error(&self) -> PathBuf {
        self.file("error.json")
    }

    /// Keeps what ended the run after `step`, or clears what an earlier end left if all went well. A stop that was asked for is no error.
    pub fn keep_error<T>(&self, step: u64, result: &Result<T>) {
        let error = match result {
            Err(Error::Interrupted(_)) => return,
            Ok(_) => {
                // There may be none.
                let _ = std::fs::remove_file(self.error());
                return;
            }
            Err(error) => error,
        };
        let causes = std::iter::successors(std::error::Error::source(error), |cause| cause.source());
        let record = json!({
            "error": error.to_string(),
            "causes": causes.map(ToString::to_string).collect::<Vec<_>>(),
            "details": format!("{error:?}"),
            "step": step,
            "command": std::env::args().collect::<Vec<_>>(),
            "version": env!("CARGO_PKG_VERSION"),
            "time": SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
        });
        let text = serde_json::to_string_pretty(&record).unwrap_or_default() + "\n";
        if let Err(worse) = replace_file(self.error(), |file| file.write_all(text.as_bytes())) {
            tracing::warn!("the error is not kept in the run folder: {worse}");
        }
    }
}
