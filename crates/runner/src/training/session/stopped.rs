//! Errors that end a run, with what is kept and how to go on.

use super::Session;
use crate::{error::Error, output, task::Task};
use gradewise_nn::checkpoint::Checkpoint;

impl<T: Task> Session<'_, T> {
    /// Keeps what a run that breaks off has reached, and says how to go on. The first error is the one to report, so that those on
    /// the way out are not.
    pub(super) fn stopped(&self, error: Error) -> Error {
        use gradewise_autograd::Error as Autograd;
        let Error::Nn(source) = error else { return error };
        let step = self.trainer.steps();
        let mut next = self.gradient_count();
        // Weights that give no finite numbers are to be looked at, not to go on from.
        if matches!(
            &*source,
            gradewise_nn::Error::Diverged { .. } | gradewise_nn::Error::Autograd(Autograd::Anomaly(_))
        ) {
            if self.weights().and_then(|weights| Ok(weights.write(self.folder.failed())?)).is_ok() {
                next += &format!("the weights after step {step} are in {}\n", self.folder.failed().display());
            }
        } else {
            let _ = self.checkpoint();
        }
        let resume =
            format!("{} train {} --resume {}", output::program(), T::NAME, self.folder.path().display());
        let kept = Checkpoint::read(self.folder.checkpoint()).ok().map(|kept| kept.metadata.step);
        next += &match (&*source, kept) {
            (gradewise_nn::Error::Diverged { skipped, .. }, kept) => {
                let anomaly = "runtime.detect_anomaly=true";
                let again = match kept {
                    // No weight has changed since the first of the skipped steps.
                    Some(kept) if kept + skipped >= step => {
                        format!("the checkpoint of step {kept} holds the same weights: start again")
                    }
                    Some(kept) => {
                        let lr = self.config.train.trainer.lr / 10.0;
                        format!("go on after step {kept} with: {resume} train.lr={lr:e} {anomaly}")
                    }
                    None => "there is no checkpoint yet to go on from: start again".to_owned(),
                };
                format!("{again}\n{anomaly} names the operation that first gives no finite number")
            }
            (source, Some(kept)) => {
                // As it was, the run would fail again.
                let flag = if source.is_out_of_memory() { " --fit-memory" } else { "" };
                format!("go on after step {kept} with: {resume}{flag}")
            }
            (_, None) => "there is no checkpoint yet to go on from".to_owned(),
        };
        Error::Stopped { source: Box::new(Error::Nn(source)), next }
    }

    /// What to do about a process that is gone.
    pub(super) fn lost(&self, error: &dyn std::fmt::Display) -> Error {
        let (folder, name) = (self.folder.path().display(), T::NAME);
        let next = match Checkpoint::read(self.folder.checkpoint()) {
            Ok(Checkpoint { metadata, .. }) => format!(
                "go on after step {} with: {} train {name} --resume {folder}, on any number of devices",
                metadata.step,
                output::program()
            ),
            Err(_) => "there is no checkpoint yet to go on from".to_owned(),
        };
        Error::Failed(format!("after step {}: {error}; {next}", self.trainer.steps()))
    }
}
