//! Errors that end a run, with advice on resuming.

use super::Session;
use crate::{error::Error, output, task::Task};
use gradewise_nn::checkpoint::Checkpoint;

impl<T: Task> Session<'_, T> {
    /// Saves the state of a run that ends by an error, and adds advice on resuming. Only the first error is reported; errors while saving
    /// are not.
    pub(super) fn stopped(&self, error: Error) -> Error {
        use gradewise_autograd::Error as Autograd;
        let Error::Nn(source) = error else { return error };
        let step = self.trainer.steps();
        let mut next = self.gradient_count();
        // Weights that give no finite results are saved for diagnosis, not for resuming.
        if matches!(
            source.cause(),
            gradewise_nn::Error::Diverged { .. } | gradewise_nn::Error::Autograd(Autograd::Anomaly(_))
        ) {
            if self.weights().and_then(|weights| Ok(weights.write(self.folder.failed())?)).is_ok() {
                next += &format!("the weights after step {step} are in {}\n", self.folder.failed().display());
            }
        } else {
            let _ = self.checkpoint_at_end();
        }
        let resume =
            format!("{} train {} --resume {}", output::program(), T::NAME, self.folder.path().display());
        let kept = Checkpoint::read(self.folder.checkpoint()).ok().map(|kept| kept.metadata.step);
        next += &match (&*source, kept) {
            (gradewise_nn::Error::Diverged { skipped, .. }, kept) => {
                let anomaly = "runtime.detect_anomaly=true";
                let again = match kept {
                    // Skipped steps do not change the weights.
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
                // With unchanged settings, the run would fail again.
                let flag = if source.is_out_of_memory() { " --fit-memory" } else { "" };
                format!("go on after step {kept} with: {resume}{flag}")
            }
            (_, None) => "there is no checkpoint yet to go on from".to_owned(),
        };
        Error::Stopped { source: Box::new(Error::Nn(source)), next }
    }

    /// An error about a lost process, with advice on resuming.
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
