//! `eval`: the error of a checkpoint on a split.

use crate::{
    cli::{Eval, Settings},
    error::{Error, Result},
    output, run,
    tasks::{self, Forces, GptTask, Hulls, Lorentz, NBodyTask, O5, Task, TaskConfig, Volumes, number},
};
use gradewise_nn::{checkpoint::Checkpoint, data::Split, train::Samples};
use serde_json::json;
use std::path::Path;

pub fn run(arguments: &Eval) -> Result<()> {
    let checkpoint = Checkpoint::read(&arguments.checkpoint)?;
    match checkpoint.metadata.model.as_str() {
        NBodyTask::NAME => match &arguments.rollout {
            Some(folder) => follow(arguments, &checkpoint, folder),
            None => evaluate::<NBodyTask>(arguments, &checkpoint),
        },
        other if arguments.rollout.is_some() => Err(Error::Usage(format!(
            "--rollout is for models of `nbody`, and this is a checkpoint of `{other}`"
        ))),
        <Volumes as Task>::NAME => evaluate::<Volumes>(arguments, &checkpoint),
        <Hulls as Task>::NAME => evaluate::<Hulls>(arguments, &checkpoint),
        <O5 as Task>::NAME => evaluate::<O5>(arguments, &checkpoint),
        Lorentz::NAME => evaluate::<Lorentz>(arguments, &checkpoint),
        Forces::NAME => evaluate::<Forces>(arguments, &checkpoint),
        GptTask::NAME => evaluate::<GptTask>(arguments, &checkpoint),
        other => Err(Error::Usage(format!(
            "{} is a checkpoint of `{other}`, which this program has no task for",
            arguments.checkpoint.display()
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
    let config = settings::<NBodyTask>(&arguments.checkpoint, &arguments.settings)?;
    run::once(&config.runtime, |placement| {
        let model = tasks::load_model::<NBodyTask>(checkpoint, placement)?;
        output::print(&tasks::rollout(&model, &config, arguments.rollout_steps, folder)?)
    })
}

fn evaluate<T: Task>(arguments: &Eval, checkpoint: &Checkpoint) -> Result<()> {
    let config = settings::<T>(&arguments.checkpoint, &arguments.settings)?;
    let split: Split = arguments.split.parse()?;
    let (samples, measures, asymmetry) = run::once(&config.runtime, |placement| {
        let model = tasks::load_model::<T>(checkpoint, placement)?;
        let data = T::load(&config.data, split)?;
        let measures = T::measure(&model, &data, placement)?;
        Ok((data.len(), measures, tasks::asymmetry::<T>(&model, &data, placement)?))
    })?;
    let (first, step) = (measures.first(), checkpoint.metadata.step);
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
        let mut text = format!(
            "{split} {} {} on {samples} samples, weights of step {step}\n",
            first.label,
            number(first.value)
        );
        for other in measures.others() {
            text += &format!("{split} {} {}\n", other.label, number(other.value));
        }
        text += &format!("symmetry {asymmetry:.1e} relative change under {}\n", T::GROUP);
        let comparison = if split == Split::Test { T::comparison(&measures) } else { String::new() };
        if !comparison.is_empty() {
            text += &format!("\n{comparison}");
        }
        output::print(&text)?;
    }
    if first.value.is_finite() {
        Ok(())
    } else {
        Err(Error::Failed(format!("the {} is {}", first.label, first.value)))
    }
}
