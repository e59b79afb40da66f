//! `eval`: the error of a checkpoint on a split.

use super::worst;
use crate::{
    cli::{Eval, Settings},
    error::{Error, Result},
    output, run,
    tasks::{self, NBodyTask, Task, TaskConfig, number, with_task},
};
use gradewise_nn::{checkpoint::Checkpoint, data::Split, train::Samples};
use serde_json::json;
use std::path::Path;

pub fn run(arguments: &Eval) -> Result<()> {
    let checkpoints =
        arguments.checkpoint.iter().map(Checkpoint::read).collect::<gradewise_nn::Result<Vec<_>>>()?;
    let [first, others @ ..] = checkpoints.as_slice() else {
        return Err(Error::Usage("--checkpoint FILE is missing".to_owned()));
    };
    let (model, path) = (&first.metadata.model, first.tensors.path());
    if arguments.dump.is_some() && !others.is_empty() {
        return Err(Error::Usage("--dump shows one model; leave out all but one --checkpoint".to_owned()));
    }
    match &arguments.rollout {
        None => with_task!(model, T => evaluate::<T>(arguments, path, &checkpoints)),
        Some(_) if !others.is_empty() => {
            Err(Error::Usage("--rollout follows one model; leave out all but one --checkpoint".to_owned()))
        }
        Some(folder) if model == NBodyTask::NAME => follow(arguments, first, folder),
        Some(_) => Err(Error::Usage(format!(
            "--rollout is for models of `nbody`, and this is a checkpoint of `{model}`"
        ))),
    }
}

/// The settings of the run that the checkpoint came from, if they are beside it, with those of the command line.
pub fn settings<T: Task>(checkpoint: &Path, given: &Settings) -> Result<TaskConfig<T>> {
    let mut resolver = tasks::resolver::<T>(None)?;
    let beside = checkpoint.with_file_name("config.toml");
    if beside.is_file() {
        resolver.file(&beside)?;
    }
    Ok(TaskConfig::<T>::resolve(given.apply(&mut resolver)?)?)
}

fn follow(arguments: &Eval, checkpoint: &Checkpoint, folder: &Path) -> Result<()> {
    let config = settings::<NBodyTask>(checkpoint.tensors.path(), &arguments.settings)?;
    run::once(&config.runtime, |placement| {
        let model = tasks::load_model::<NBodyTask>(checkpoint, placement)?;
        output::print(&tasks::rollout(&model, &config, arguments.rollout_steps, folder)?)
    })
}

/// The weights of checkpoints, for readers of a verdict.
pub fn weights_of(checkpoints: &[Checkpoint]) -> String {
    match checkpoints {
        [one] => format!("the weights in {} (step {})", one.tensors.path().display(), one.metadata.step),
        several => format!("weights of the {} checkpoints", several.len()),
    }
}

/// `path` is that of the checkpoint whose settings count.
fn evaluate<T: Task>(arguments: &Eval, path: &Path, checkpoints: &[Checkpoint]) -> Result<()> {
    let config = settings::<T>(path, &arguments.settings)?;
    let split: Split = arguments.split.parse()?;
    let (samples, measures, asymmetry) = run::once(&config.runtime, |placement| {
        let models = checkpoints
            .iter()
            .map(|checkpoint| tasks::load_model::<T>(checkpoint, placement))
            .collect::<Result<Vec<_>>>()?;
        let models: Vec<&T::Model> = models.iter().collect();
        let data = T::load(&config.data, split)?;
        let measure = || T::measure(&models, &data, placement);
        let measures = match models.as_slice() {
            [model] => run::dumped(arguments.dump.as_deref(), Path::new(""), *model, measure)?,
            _ => measure()?,
        };
        let asymmetries = models
            .into_iter()
            .map(|model| Ok(tasks::asymmetry::<T>(model, &data, placement)?))
            .collect::<Result<Vec<_>>>()?;
        Ok((data.len(), measures, worst(asymmetries.into_iter())))
    })?;
    let first = measures.first();
    let steps: Vec<u64> = checkpoints.iter().map(|checkpoint| checkpoint.metadata.step).collect();
    let (step, of) = match steps[..] {
        [step] => (json!(step), format!("weights of step {step}")),
        _ => (json!(steps), format!("the mean of the predictions of {} checkpoints", steps.len())),
    };
    if arguments.json {
        let mut record = measures.json("");
        for (key, value) in [
            ("split", json!(split.name())),
            ("samples", json!(samples)),
            ("step", json!(step)),
            ("asymmetry", json!(asymmetry)),
        ] {
            record.insert(key.to_owned(), value);
        }
        output::print(&format!("{}\n", serde_json::Value::Object(record)))?;
    } else {
        let mut text =
            format!("{split} {} {} on {samples} samples, {of}\n", first.label, number(first.value));
        for other in measures.others() {
            text += &format!("{split} {} {}\n", other.label, number(other.value));
        }
        text += &format!("symmetry {asymmetry:.1e} relative change under {}\n", T::GROUP);
        let comparison = if split == Split::Test { T::comparison(&measures, &config) } else { String::new() };
        if !comparison.is_empty() {
            text += &format!("\n{comparison}");
        }
        output::print(&text)?;
    }
    measures.verdict(split.name(), &weights_of(checkpoints))
}
