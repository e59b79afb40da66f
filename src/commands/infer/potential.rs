//! Energies and forces of the potential task.

use super::{Infer, extension};
use crate::tasks::PotentialTask;
use gradewise_nn::{
    Ensemble,
    checkpoint::{Checkpoint, replace_file},
};
use gradewise_runner::{
    error::{Error, Result},
    output,
    run::{self, Target},
    task,
};
use gradewise_zoo::data::atoms::{AtomSet, Deviations, Labels, read, write_extended_xyz};
use std::path::Path;

/// Predicts energies, forces and stresses of frames.
///
/// # Errors
/// Settings, files or frames that cannot be used; from writing.
pub fn run(arguments: &Infer) -> Result<()> {
    let config = task::configure::<PotentialTask>(None, &arguments.settings)?;
    if !matches!(extension(&arguments.output).as_deref(), Some("xyz" | "extxyz")) {
        let path = arguments.output.display();
        return Err(Error::Usage(format!("--output {path}: the name must end in .xyz or .extxyz")));
    }
    let inputs = arguments.inputs();
    let target = Target::new("--output", &arguments.output, arguments.overwrite);
    target.require_free(&inputs, is_prediction)?;
    let frames = read(&arguments.input, &config.data.units())?;
    let (set, prediction) = run::once(&config.runtime, |placement| {
        let mut models = Vec::new();
        for path in &arguments.checkpoint {
            models.extend(task::load_models::<PotentialTask>(&Checkpoint::read(path)?, placement)?);
        }
        let dump = arguments.dump_request(models.len(), &inputs)?;
        let cutoff = models.iter().map(|model| model.config().cutoff).fold(0.0, f64::max);
        let set = AtomSet::new(frames, &[], cutoff, false)?;
        let prediction = Ensemble::new(models)?.predict(|model| {
            let work = || -> gradewise_nn::Result<Vec<f64>> {
                Ok(model.predict(&set, placement)?.iter().flat_map(Labels::numbers).collect())
            };
            run::dumped(dump, model, work)
        })?;
        Ok((set, prediction))
    })?;
    run::require_finite(&prediction)?;
    let mut text = String::new();
    let (mut mean, mut deviation) = (&prediction.mean[..], prediction.deviation.as_deref());
    for one in set.frames() {
        let labels = Labels::take(&one.frame, &mut mean);
        let deviations = deviation.as_mut().map(|rest| Deviations(Labels::take(&one.frame, rest)));
        write_extended_xyz(&one.frame.labelled(labels), deviations.as_ref(), MARK, &mut text);
    }
    // Again, because the work may have taken long.
    target.require_free(&inputs, is_prediction)?;
    replace_file(&arguments.output, |file| file.write_all(text.as_bytes()))?;
    output::print(&format!("{}: energies and forces of {}\n", arguments.output.display(), set.about()))
}

/// The pair by which an earlier result is recognised.
const MARK: &str = "predicted_by=gradewise";

/// Whether a file is an earlier result.
fn is_prediction(path: &Path) -> bool {
    std::fs::read_to_string(path)
        .is_ok_and(|text| text.lines().nth(1).is_some_and(|pairs| pairs.ends_with(MARK)))
}
