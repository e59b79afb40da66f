//! `eval`: the error of a checkpoint on a split.

use super::worst;
use crate::{
    TaskCommand,
    error::{Error, Result},
    options::{Settings, one_of},
    output,
    run::{self, DumpRequest, Target},
    task::{self, Interval, ROLLOUT_FILES, Task, number},
};
use clap::Args;
use gradewise_nn::{checkpoint::Checkpoint, data::Split, train::Samples};
use serde_json::json;
use std::path::{Path, PathBuf};

/// Measure the error of a checkpoint.
///
/// For several checkpoints, or an ensemble (written by `train --seeds`), it is the error of their mean prediction. It comes with a 95%
/// confidence interval of the mean error for the choice of samples. The data are those of the config.toml beside the (first) checkpoint, if
/// there is one.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gradewise eval --checkpoint runs/nbody-1/checkpoint.safetensors
  gradewise eval --checkpoint c.safetensors --split valid data.source=path/to/npy
  gradewise eval --checkpoint c.safetensors --dump layers.1.edge.0    what that layer computes, as dump/layers.1.edge.0.npy
  gradewise eval --checkpoint runs/nbody-2/checkpoint.safetensors --rollout motion --rollout-steps 30
  gradewise eval --checkpoint runs/nbody-3/ensemble.safetensors       what train --seeds 4 wrote
  gradewise eval --checkpoint seed-0/best.safetensors --checkpoint seed-1/best.safetensors")]
pub struct Eval {
    /// The checkpoint; several times for an ensemble.
    #[arg(long, value_name = "FILE", required = true)]
    pub checkpoint: Vec<PathBuf>,
    /// train, valid or test.
    #[arg(long, default_value = "test", value_parser = one_of::<Split>(), hide_possible_values = true)]
    pub split: Split,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
    /// Write what layers compute for the first samples into dump/LAYER.npy: names such as layers.1.edge.0, separated by commas. Only for
    /// one checkpoint.
    #[arg(long, value_name = "LAYERS", conflicts_with = "rollout")]
    pub dump: Option<String>,
    /// Follow a model on its own predictions over the test data, and write an animation, the error over time, and a table into this
    /// folder: an n-body model that predicts velocities (model.velocities=true), or a model of fields.
    #[arg(long, value_name = "DIR", conflicts_with = "json")]
    pub rollout: Option<PathBuf>,
    /// Steps of the rollout: of an n-body model 10 frames or one unit of time each; of fields the frames that the model predicts at a
    /// time, at most as many as the trajectories have.
    #[arg(long, value_name = "N", default_value_t = 20, requires = "rollout")]
    pub rollout_steps: usize,
    /// Replace whatever files --dump and --rollout name.
    #[arg(long)]
    pub overwrite: bool,
    #[command(flatten)]
    pub settings: Settings,
}

impl TaskCommand for Eval {
    const NAME: &'static str = "eval";
    type Input = Vec<Checkpoint>;

    fn start(&self) -> Result<Option<(String, Vec<Checkpoint>)>> {
        let checkpoints =
            self.checkpoint.iter().map(Checkpoint::read).collect::<gradewise_nn::Result<Vec<_>>>()?;
        let Some(first) = checkpoints.first() else {
            return Err(Error::Usage("--checkpoint FILE is missing".to_owned()));
        };
        let several = checkpoints.len() > 1 || first.metadata.members.len() > 1;
        if self.dump.is_some() && several {
            return Err(Error::Usage(
                "--dump shows one model; leave out all but one --checkpoint".to_owned(),
            ));
        }
        if self.rollout.is_some() && several {
            return Err(Error::Usage(
                "--rollout follows one model; leave out all but one --checkpoint".to_owned(),
            ));
        }
        Ok(Some((first.metadata.model.clone(), checkpoints)))
    }

    fn run<T: Task>(&self, checkpoints: Vec<Checkpoint>) -> Result<()> {
        match &self.rollout {
            None => evaluate::<T>(self, &checkpoints),
            Some(folder) => follow::<T>(self, &checkpoints, folder),
        }
    }
}

fn follow<T: Task>(arguments: &Eval, checkpoints: &[Checkpoint], folder: &Path) -> Result<()> {
    let Some(rollout) = T::ROLLOUT else {
        return Err(Error::Usage(format!(
            "--rollout is for models that go on from their own predictions, and this is a checkpoint of `{}`",
            T::NAME
        )));
    };
    require_free(arguments, folder)?;
    let checkpoint = &checkpoints[0];
    let config = task::settings::<T>(checkpoint.tensors.path(), &arguments.settings)?;
    run::once(&config.runtime, |placement| {
        let model = task::load_model::<T>(checkpoint, placement)?;
        output::print(&rollout(&model, &config, placement, arguments.rollout_steps, folder)?)
    })
}

/// Refuses to write over anything but an earlier rollout.
fn require_free(arguments: &Eval, folder: &Path) -> Result<()> {
    let inputs: Vec<&Path> = arguments.checkpoint.iter().map(PathBuf::as_path).collect();
    // The table of an earlier one tells that the figures beside it are its own.
    let is_rollout = std::fs::read(folder.join("rollout.json"))
        .ok()
        .and_then(|text| serde_json::from_slice::<serde_json::Value>(&text).ok())
        .is_some_and(|table| table["frames_per_step"].is_u64() && table["steps"].is_array());
    for file in ROLLOUT_FILES {
        Target::new("--rollout", &folder.join(file), arguments.overwrite)
            .require_free(&inputs, |_| is_rollout)?;
    }
    Ok(())
}

/// Uses the settings of the first checkpoint's run.
fn evaluate<T: Task>(arguments: &Eval, checkpoints: &[Checkpoint]) -> Result<()> {
    let config = task::settings::<T>(checkpoints[0].tensors.path(), &arguments.settings)?;
    let split = arguments.split;
    let models =
        checkpoints.iter().map(Checkpoint::models).collect::<gradewise_nn::Result<Vec<_>>>()?.concat();
    let inputs: Vec<&Path> = arguments.checkpoint.iter().map(PathBuf::as_path).collect();
    let dump = arguments.dump.as_deref().map(|layers| DumpRequest {
        layers,
        folder: Path::new(""),
        inputs: &inputs,
        overwrite: arguments.overwrite,
    });
    let steps: Vec<u64> = models.iter().map(|model| model.metadata.step).collect();
    let (samples, measures, asymmetry) = run::once(&config.runtime, |placement| {
        let models =
            models.iter().map(|model| task::load_model::<T>(model, placement)).collect::<Result<Vec<_>>>()?;
        let models: Vec<&T::Model> = models.iter().collect();
        let data = T::load(&config.data, split)?;
        let measure = || T::measure(&models, &data, placement);
        let measures = match models.as_slice() {
            [model] => run::dumped(dump, *model, measure)?,
            _ => measure()?,
        };
        let asymmetries = models
            .into_iter()
            .map(|model| Ok(task::asymmetry::<T>(model, &data, placement)?))
            .collect::<Result<Vec<Option<f64>>>>()?;
        let asymmetry = asymmetries.into_iter().collect::<Option<Vec<f64>>>();
        Ok((data.len(), measures, asymmetry.map(|changes| worst(changes.into_iter()))))
    })?;
    let (first, interval) = (measures.first(), measures.interval());
    let (step, of) = match steps[..] {
        [step] => (json!(step), format!("weights of step {step}")),
        _ => (json!(steps), format!("the mean of the predictions of {} models", steps.len())),
    };
    if arguments.json {
        let mut record = measures.json("");
        record.extend(measures.tables().clone());
        for (key, value) in [
            ("split", json!(split.name())),
            ("samples", json!(samples)),
            ("step", json!(step)),
            ("asymmetry", json!(asymmetry)),
        ] {
            record.insert(key.to_owned(), value);
        }
        if let Some(interval) = interval {
            record.insert(format!("{}_interval", first.key), json!([interval.low, interval.high]));
        }
        output::print(&format!("{}\n", serde_json::Value::Object(record)))?;
    } else {
        let mut text =
            format!("{split} {} {} on {samples} samples, {of}\n", first.label, number(first.value));
        if let Some(Interval { low, high }) = interval {
            text += &format!(
                "{split} {} of other such samples: {} to {} (95%, bootstrap)\n",
                first.label,
                number(low),
                number(high)
            );
        }
        for other in measures.others() {
            text += &format!("{split} {} {}\n", other.label, other.text());
        }
        text += &task::symmetry_line::<T>("symmetry", asymmetry);
        if split == Split::Test
            && let Some(comparison) = T::comparison(&measures, &config)
        {
            text += &format!("\n{comparison}");
        }
        output::print(&text)?;
    }
    measures.verdict(split.name(), &task::weights_of(checkpoints))
}
