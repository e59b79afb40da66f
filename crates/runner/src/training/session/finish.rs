//! The end of a run: the measures on the test split, figures of the task, and the report.

use super::{End, Session};
use crate::{
    config::BudgetOf,
    error::{Error, Result},
    output,
    run::Interrupt,
    task::{self, Task, number},
    training::Outcome,
};
use gradewise_autograd::stoppable;
use gradewise_nn::{
    checkpoint::{Checkpoint, replace_file},
    train::Samples,
};
use serde_json::json;

impl<T: Task> Session<'_, T> {
    /// Draws the figures of the task and reports on the test split.
    pub fn finish(mut self, end: End, test: &T::Data, interrupt: &Interrupt) -> Result<Outcome> {
        let (folder, steps) = (self.folder.path().display().to_string(), self.trainer.steps());
        let (seconds, joules) = (self.seconds(), self.energy.joules());
        let utilization = self.sampler.total();
        let memory = self.team.memory(&self.memory)?;
        let interrupted = || {
            Error::Interrupted(format!(
                "interrupted after step {steps}; go on with: {} train {} --resume {folder}",
                output::program(),
                T::NAME
            ))
        };
        if end == End::Interrupted {
            return Err(interrupted());
        }
        let best = self.folder.kept_best(&self.config.train);
        let kept = best.is_some();
        if let Some(best) = best {
            task::load_weights(self.trainer.model(), &Checkpoint::read(best)?.tensors, self.placement)?;
        }
        let (placement, config) = (self.placement, self.config);
        let measure = |model: &T::Model| -> gradewise_nn::Result<_> {
            let asymmetry = task::asymmetry::<T>(model, test, placement)?;
            let measures = T::measure(&[model], test, placement)?;
            // Diverged weights have no figures: their predictions are not valid data.
            let figures = match measures.are_finite() {
                true => T::figures(model, &measures, config, placement, &self.folder),
                false => Ok(Vec::new()),
            };
            Ok((measures, asymmetry, figures))
        };
        // The saved best weights are already averaged, if there is an average.
        let measured = stoppable(interrupt.flag(), || {
            if kept { measure(self.trainer.model()) } else { self.trainer.evaluate(measure) }
        });
        let stopped = |error: Error| match error {
            Error::Nn(source) if source.is_stopped() => interrupted(),
            other => other,
        };
        let (measures, asymmetry, figures) = measured.map_err(|error| stopped(error.into()))?;
        let figures = figures.map_err(stopped)?;
        // The last steps may have been skipped: weights that predict are kept all the same.
        if end == End::Done && measures.are_finite() && !kept {
            self.checkpoint_if_newer()?;
        }
        let valid = Some(self.best).filter(|best| kept && best.is_finite());
        let mut record = measures.json("test_");
        record.extend(measures.tables().iter().map(|(key, table)| (format!("test_{key}"), table.clone())));
        for (key, value) in [
            ("step", json!(steps)),
            ("asymmetry", json!(asymmetry)),
            ("kept_valid", json!(valid)),
            ("seconds", json!(seconds)),
            ("joules", json!(joules)),
            ("utilization", json!(utilization)),
            ("memory", json!(memory[0].usage)),
            ("devices", json!(memory)),
        ] {
            record.insert(key.to_owned(), value);
        }
        self.metrics.write(&record)?;

        let first = measures.first();
        let mut text = format!(
            "\ntest {} {} on {} samples after {steps} steps, {seconds:.0} s of training\n",
            first.label,
            number(first.value),
            test.len(),
        );
        for other in measures.others() {
            text += &format!("test {} {}\n", other.label, other.text());
        }
        if let Some(valid) = valid {
            text += &format!("valid {} {} of the same weights, the best there\n", first.label, number(valid));
        }
        text += "\n";
        let comparison = if measures.are_finite() { T::comparison(&measures, config) } else { None };
        if let Some(comparison) = &comparison {
            text += &format!("{comparison}\n");
        }
        self.about.measured(&measures, test.len(), comparison);
        self.about.write(&self.folder)?;
        text += &self.gradient_count();
        text += &task::symmetry_line::<T>("symmetry   ", asymmetry);
        for member in &memory {
            let rank = if memory.len() > 1 { format!(" (rank {})", member.rank) } else { String::new() };
            text += &format!("memory      {} on {}{rank}\n", member.usage, member.device);
        }
        if let Some(joules) = joules {
            text += &format!("energy      {:.1} kJ of the device\n", joules / 1e3);
        }
        if let Some(busy) = utilization {
            text += &format!(
                "utilisation {:.0}% of the time a kernel ran, {:.0}% memory was busy\n",
                busy.gpu, busy.memory
            );
        }
        let kept = self.config.train.keeps_best().then_some("best.safetensors");
        let files = ["report.html", "result.txt", "config.toml", "metrics.jsonl", "checkpoint.safetensors"];
        let files = files.into_iter().chain(kept).chain(["loss.svg"]).chain(figures);
        text += &format!("run folder  {folder}\n            {}\n", files.collect::<Vec<_>>().join(" "));
        if end == End::Stalled {
            text += &format!(
                "stopped early: {} evaluations without a valid {} below {}; go on with  {} train {} --resume {folder} \
                 train.patience=0\n",
                self.stall.evaluations,
                first.label,
                number(self.stall.best),
                output::program(),
                T::NAME
            );
        }
        if end == End::OutOfTime {
            let more = match self.config.train.budget_of {
                BudgetOf::Run => format!(" train.time_budget={}", 2.0 * self.config.train.time_budget),
                BudgetOf::Process => String::new(),
            };
            text += &format!(
                "out of time; go on with  {} train {} --resume {folder}{more}\n",
                output::program(),
                T::NAME
            );
        }
        if let Some(full) = T::PRESETS.get(1) {
            text += &format!("full run    {} train {} --preset {}\n", output::program(), T::NAME, full.name);
        }
        replace_file(self.folder.result(), |file| file.write_all(text.trim_start().as_bytes()))?;
        output::print(&text)?;
        let skipped = self.trainer.skipped_steps();
        Ok(Outcome { test: measures, valid, asymmetry, steps, skipped, seconds, joules })
    }
}
