//! `bisect`: the first operation that is past its tolerance, by itself.

use crate::{
    cli::Bisect,
    config::{Resolver, Runtime},
    error::{Error, Result},
    output, run,
    tasks::{self, Task, with_task},
};
use gradewise::verify::bisect::{Bisection, Deviant, replay};
use gradewise_autograd::{autocast_with, observe::observe};
use gradewise_nn::{Module, checkpoint::Checkpoint, data::Split, train::Samples};
use serde::Serialize;
use std::path::Path;

pub fn run(arguments: &Bisect) -> Result<()> {
    if let Some(file) = &arguments.replay {
        return again(arguments, file);
    }
    with_task!(arguments.task.as_deref().unwrap_or_default(), T => search::<T>(arguments))
}

/// The settings of a file that is run again: where, and nothing else.
#[derive(Serialize, serde::Deserialize)]
struct Place {
    runtime: Runtime,
}

fn again(arguments: &Bisect, file: &Path) -> Result<()> {
    let mut resolver = Resolver::new(&Place { runtime: Runtime::default() })?;
    let Place { runtime } = arguments.settings.apply(&mut resolver)?.finish()?;
    let placement = run::placement(&runtime)?;
    let replayed = replay(file, &placement.device)?;
    output::print(&format!("{replayed}\n"))?;
    if replayed.distance.passes() {
        Ok(())
    } else {
        Err(Error::Failed(format!("`{}` is past its tolerance", replayed.operation)))
    }
}

fn search<T: Task>(arguments: &Bisect) -> Result<()> {
    let config = tasks::configure::<T>(None, &arguments.settings)?;
    let placement = run::placement(&config.runtime)?;
    let mixed = run::mixed_precision(&config.runtime)?;
    let model = match &arguments.checkpoint {
        Some(path) => tasks::load_model::<T>(&Checkpoint::read(path)?, &placement)?,
        None => tasks::new_model::<T>(&config.model, &placement, config.train.seed)?,
    };
    let data = T::load(&config.data, Split::Train)?;
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
    found.write(&arguments.out)?;
    let file = arguments.out.display();
    output::print(&format!(
        "{found}\n\nrun it again: gradewise bisect --replay {file} --device {}\n",
        found.device
    ))?;
    Err(Error::Failed(format!("`{}` {} is past its tolerance", found.operation, found.pass)))
}
