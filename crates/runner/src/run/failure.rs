//! The error that ended a run, saved in its folder for diagnosis.

use super::RunFolder;
use crate::{
    error::{Error, Result},
    output,
};
use serde_json::json;
use std::{
    any::Any,
    collections::VecDeque,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    path::PathBuf,
    sync::{Mutex, PoisonError},
    time::{SystemTime, UNIX_EPOCH},
};

/// The messages and locations of the last panics. A run may end by the panic of a thread that it joins, and concurrent runs may panic, too.
static PANICS: Mutex<VecDeque<String>> = Mutex::new(VecDeque::new());
const KEPT: usize = 16;

/// Installs a panic hook that records panics, in addition to the previous hook, so that a run can save the one that ends it.
pub fn remember_panics() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let mut panics = PANICS.lock().unwrap_or_else(PoisonError::into_inner);
        panics.truncate(KEPT - 1);
        panics.push_front(panic.to_string());
        drop(panics);
        before(panic);
    }));
}

/// The message of the panic with this payload, with its location if it was recorded.
fn said(payload: &(dyn Any + Send)) -> String {
    let words = payload.downcast_ref::<&str>().copied();
    let words = words.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("a panic");
    let panics = PANICS.lock().unwrap_or_else(PoisonError::into_inner);
    panics.iter().find(|said| said.ends_with(words)).cloned().unwrap_or_else(|| words.to_owned())
}

impl RunFolder {
    /// The file of the last error, if the run ended with one.
    pub fn error(&self) -> PathBuf {
        self.file("error.json")
    }

    /// Saves the error that ended the run after `step`; on success, removes the error of an earlier attempt. An interrupt is not an error.
    pub fn keep_error<T>(&self, step: u64, result: &Result<T>) {
        let error = match result {
            Err(Error::Interrupted(_)) => return,
            Ok(_) => {
                // The file may not exist.
                let _ = std::fs::remove_file(self.error());
                return;
            }
            Err(error) => error,
        };
        let causes = std::iter::successors(std::error::Error::source(error), |cause| cause.source());
        let causes = causes.map(ToString::to_string).collect();
        // Restores the line breaks that the `Debug` form escapes inside strings.
        let details = format!("{error:?}").replace("\\n", "\n").replace("\\\"", "\"");
        self.write_error(&error.to_string(), causes, &details, Some(step));
    }

    /// Runs `work`; if it panics, saves the panic as the error of the run and resumes it.
    pub fn keeping_panics<R>(&self, work: impl FnOnce() -> R) -> R {
        // Unwind safe: the panic ends the thread, so no inconsistent state is used.
        catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|payload| {
            self.write_error(&said(&*payload), Vec::new(), "a panic: a bug of the program", None);
            resume_unwind(payload)
        })
    }

    fn write_error(&self, error: &str, causes: Vec<String>, details: &str, step: Option<u64>) {
        let record = json!({
            "error": error,
            "causes": causes,
            "details": details,
            "step": step,
            "command": std::env::args().collect::<Vec<_>>(),
            "version": env!("CARGO_PKG_VERSION"),
            "time": SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
        });
        if let Err(worse) = output::write_json(&self.error(), &record) {
            tracing::warn!("the error is not kept in the run folder: {worse}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_kept_with_its_place_and_goes_on() {
        let folder = tempfile::tempdir().unwrap();
        let run = RunFolder::at(folder.path());
        remember_panics();
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            run.keeping_panics(|| {
                let other = std::thread::spawn(|| panic!("of another run"));
                // The panic that ends a run is not necessarily the last one.
                std::panic::catch_unwind(|| panic!("seven is not a shape")).unwrap_or_else(|payload| {
                    assert!(other.join().is_err());
                    resume_unwind(payload)
                })
            })
        }));
        assert!(outcome.is_err(), "it goes on");
        let kept: serde_json::Value = serde_json::from_slice(&std::fs::read(run.error()).unwrap()).unwrap();
        let error = kept["error"].as_str().unwrap();
        assert!(error.contains("seven is not a shape") && error.contains("failure.rs:"), "{error}");
        assert_eq!(run.keeping_panics(|| 3), 3);
        // A later success removes the file.
        run.keep_error(1, &Ok(()));
        assert!(!run.error().exists());
    }
}
