//! `bisect`: finds the first operation that exceeds its tolerance on its own.

use crate::{
    TaskCommand,
    error::{Error, Result},
    options::Settings,
    output,
    run::{self, Target},
    task::{self, Task},
};
use clap::Args;
use gradewise_autograd::{autocast_with, observe::observe};
use gradewise_nn::{Module, checkpoint::TensorFile, data::Split, train::Samples};
use gradewise_verify::bisect::{Bisection, Deviant, replay};
use std::path::{Path, PathBuf};

/// Find the operation that is wrong: the first whose result or gradient leaves the tolerance.
///
/// Runs the loss of a task on a batch, forward and backward. Every operation is compared with the CPU in double precision, on the same
/// inputs; the first that exceeds its tolerance is named, and written with its inputs to a file for --replay. Exits with 1 if one is found,
/// and also if all agree on a loss or on gradients that are not finite.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gradewise bisect nbody --device cuda
  gradewise bisect gpt --device cuda --dtype bf16 --checkpoint runs/gpt-1/checkpoint.safetensors
  gradewise bisect nbody --device cuda --precision bf16 train.batch_size=4
  gradewise bisect --replay bisect.safetensors --device cuda")]
pub struct Bisect {
    /// The experiment: one that `train --help` lists.
    #[arg(required_unless_present = "replay")]
    pub task: Option<String>,
    /// Rerun the operation of a file that an earlier bisect wrote, instead of a task.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["task", "checkpoint"])]
    pub replay: Option<PathBuf>,
    /// Weights to use instead of fresh ones.
    #[arg(long, value_name = "FILE")]
    pub checkpoint: Option<PathBuf>,
    /// File for the operation that is found.
    #[arg(long, value_name = "FILE", default_value = "bisect.safetensors")]
    pub out: PathBuf,
    /// Replace whatever file --out names, not only an earlier operation.
    #[arg(long)]
    pub overwrite: bool,
    #[command(flatten)]
    pub settings: Settings,
}

impl TaskCommand for Bisect {
    const NAME: &'static str = "bisect";
    type Input = ();

    fn start(&self) -> Result<Option<(String, ())>> {
        match &self.replay {
            Some(file) => again(self, file).map(|()| None),
            None => Ok(Some((self.task.clone().unwrap_or_default(), ()))),
        }
    }

    fn run<T: Task>(&self, (): ()) -> Result<()> {
        search::<T>(self)
    }
}

fn again(arguments: &Bisect, file: &Path) -> Result<()> {
    let placement = run::placement(&arguments.settings.runtime()?)?;
    let replayed = replay(file, &placement.device)?;
    output::print(&format!("{replayed}\n"))?;
    if replayed.distance.passes() {
        Ok(())
    } else {
        Err(Error::Failed(format!("`{}` is past its tolerance", replayed.operation)))
    }
}

fn search<T: Task>(arguments: &Bisect) -> Result<()> {
    let config = task::configure::<T>(None, &arguments.settings)?;
    let placement = run::placement(&config.runtime)?;
    let mixed = run::mixed_precision(&config.runtime)?;
    let data = T::load(&config.data, Split::Train)?;
    let model = task::model_of::<T>(arguments.checkpoint.as_deref(), &config, &data, &placement)?;
    let indices: Vec<usize> = (0..config.train.batch_size.min(data.len())).collect();
    let batch = data.batch(&indices, &placement)?;
    let pass = || -> gradewise_nn::Result<(f64, usize)> {
        let loss = match &mixed {
            Some(mixed) => autocast_with(&mixed.policy, || T::loss(&model, &batch)),
            None => T::loss(&model, &batch),
        }?;
        let gradients = loss.backward()?;
        let mut not_finite = 0;
        for (_, parameter) in model.named_parameters() {
            let leaf = parameter.tensor();
            if gradients.contains(&leaf) {
                let found = gradients.get(&leaf)?.array().summary()?;
                not_finite += usize::from(found.nan + found.infinite > 0);
            }
        }
        Ok((loss.item()?, not_finite))
    };
    let (result, bisection) = observe(Bisection::default(), pass);
    match (&bisection.found, result) {
        (Some(found), _) => report(found, arguments),
        (None, Err(error)) => Err(error.into()),
        (None, Ok((loss, not_finite))) => {
            let mut text = format!(
                "{} results of one step agree with the reference; the loss is {loss}\n",
                bisection.agreed
            );
            if let Some((operation, pass, distance)) = &bisection.nearest {
                text += &format!(
                    "nearest to its tolerance: `{operation}` {pass}, {:.1e} of {:.1e}\n",
                    distance.error, distance.tolerance
                );
            }
            output::print(&text)?;
            if loss.is_finite() && not_finite == 0 {
                return Ok(());
            }
            let weights = match &arguments.checkpoint {
                Some(path) => {
                    format!("every operation computes what it should, and the weights in {}", path.display())
                }
                None => "every operation computes what it should, and fresh weights".to_owned(),
            };
            let measured = match not_finite {
                0 => format!("the loss is {loss}"),
                some => format!("the loss is {loss}, and {some} gradients are not finite"),
            };
            Err(Error::Diverged { measured, weights })
        }
    }
}

fn report(found: &Deviant, arguments: &Bisect) -> Result<()> {
    let replaced = Target::new("--out", &arguments.out, arguments.overwrite).require_free(&[], |path| {
        TensorFile::read(path).is_ok_and(|file| file.metadata.contains_key("bisect"))
    });
    if let Err(error) = replaced {
        return Err(Error::Failed(format!("{found}\n\nits inputs are not kept: {error}")));
    }
    found.write(&arguments.out)?;
    let file = arguments.out.display();
    output::print(&format!(
        "{found}\n\nrun it again: {} bisect --replay {file} --device {}\n",
        output::program(),
        found.device
    ))?;
    Err(Error::Failed(format!("`{}` {} is past its tolerance", found.operation, found.pass)))
}
