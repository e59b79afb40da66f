//! Progress of long work: a bar on a terminal, lines elsewhere.

use crate::output;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;

/// Shows the progress of the steps of a run.
#[derive(Debug)]
pub struct Progress {
    /// `None` without a terminal, or if several runs share it.
    bar: Option<ProgressBar>,
}

impl Progress {
    /// Progress towards `total` steps, `done` of them taken.
    pub fn new(total: u64, done: u64) -> Self {
        let bar = (std::io::stderr().is_terminal() && !output::is_named()).then(|| {
            let style = ProgressStyle::with_template("{bar:30} {pos}/{len}  {msg}  {elapsed}, {eta} left")
                .unwrap_or_else(|_| ProgressStyle::default_bar());
            let bar = ProgressBar::new(total).with_style(style).with_position(done);
            bar.reset_eta();
            bar
        });
        Self { bar }
    }

    /// One more step is done.
    pub fn step(&self, message: impl FnOnce() -> String) {
        if let Some(bar) = &self.bar {
            bar.inc(1);
            if bar.position().is_multiple_of(10) {
                bar.set_message(message());
            }
        }
    }

    /// Prints a permanent line.
    pub fn line(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| output::note(text)),
            None => output::note(text),
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
