//! `memory`: memory usage of a training step, by batch size, operation and array name.

use crate::{
    TaskCommand,
    error::Result,
    options::Settings,
    output, run,
    task::{self, Task, TaskConfig},
    training::fit::{self, Needs},
};
use clap::Args;
use gradewise_autograd::footprint;
use gradewise_kernels::memory::{Bytes, census};
use gradewise_nn::{
    Placement,
    data::{Split, longest},
    train::{Part, Samples},
};

/// Explains the columns of the table of operations.
const LEGEND: &str = "kept: left allocated, less what was let go of; negative where the backward pass frees what the forward pass kept\n\
                      forward: also the operations that backward rules call";

/// Measure the memory of a training step: what it takes by the batch, by operation, and what stays.
///
/// Takes a few steps with a temporary model. Memory as a function of the batch size is a line through two measurements. Operations are
/// listed with their peak allocation, and arrays that are alive after a step by name.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gradewise memory nbody
  gradewise memory gpt --preset small --device cuda --precision bf16
  gradewise memory nbody runtime.census=sites            with the lines of code that made what is alive")]
pub struct Memory {
    /// The experiment: one that `train --help` lists.
    pub task: String,
    /// Settings under a name, as of train.
    #[arg(long, value_name = "NAME")]
    pub preset: Option<String>,
    /// Number of operations and groups of arrays to list.
    #[arg(long, value_name = "N", default_value_t = 15)]
    pub limit: usize,
    #[command(flatten)]
    pub settings: Settings,
}

impl TaskCommand for Memory {
    const NAME: &'static str = "memory";
    type Input = ();

    fn start(&self) -> Result<Option<(String, ())>> {
        Ok(Some((self.task.clone(), ())))
    }

    fn run<T: Task>(&self, (): ()) -> Result<()> {
        show::<T>(self)
    }
}

fn show<T: Task>(arguments: &Memory) -> Result<()> {
    let config = task::configure::<T>(arguments.preset.as_deref(), &arguments.settings)?;
    let placement = run::placement(&config.runtime)?;
    let data = T::load(&config.data, Split::Train)?;
    let batch = config.train.batch_size;
    let advice = fit::advice::<T>(&config, &data, &placement, 1)?;
    let mut text = format!("on {}: {}\n\n", placement.device, advice.text);
    // If the batch does not fit, a smaller one that does is analysed instead.
    let smaller = advice.needs.as_ref().map(Needs::largest).filter(|samples| *samples < batch);
    let found = match detail::<T>(arguments, &config, &data, &placement, batch) {
        Err(error) if error.is_out_of_memory() => {
            placement.device.trim_memory()?;
            text += &format!("a step with {batch} samples does not fit: {error}\n\n");
            match smaller {
                Some(samples) => detail::<T>(arguments, &config, &data, &placement, samples),
                None => {
                    output::print(&text)?;
                    return Err(error);
                }
            }
        }
        found => found,
    };
    output::print(&(text + &found?))
}

/// Takes one eager step; lists its operations and the arrays alive after it.
fn detail<T: Task>(
    arguments: &Memory,
    config: &TaskConfig<T>,
    data: &T::Data,
    placement: &Placement,
    batch: usize,
) -> Result<String> {
    run::census(&config.runtime, census::Detail::Operations);
    let stop = Stop;
    let mut eager = config.clone();
    eager.train.capture = false;
    let (mut trainer, mut steps) = fit::start::<T>(&eager, data, placement)?;
    let indices = longest(data, batch);
    let mut batches = std::iter::repeat_with(|| -> gradewise_nn::Result<_> {
        Ok(Part::whole(data.batch(&indices, placement)?))
    });
    steps.take(&mut trainer, &mut batches)?;
    let (report, mut found) = footprint(&placement.device, || steps.take(&mut trainer, &mut batches))
        .map_err(gradewise_nn::Error::from)?;
    report?;
    trainer.name_arrays();
    found.operations.truncate(arguments.limit);
    let samples = if batch == 1 { "sample" } else { "samples" };
    let mut text = format!("a step with {batch} {samples}, by operation:\n\n{found}\n{LEGEND}\n\n");
    text += &format!("alive after it:\n\n{:>10}  {:>6}  what\n", "bytes", "arrays");
    let live = census::live();
    let groups = census::grouped(&live);
    for group in groups.iter().take(arguments.limit) {
        text += &format!("{group}\n");
    }
    let rest: usize = groups.iter().skip(arguments.limit).map(|group| group.bytes).sum();
    if rest > 0 {
        text +=
            &format!("{:>10}          {} more\n", Bytes(rest).to_string(), groups.len() - arguments.limit);
    }
    drop(stop);
    Ok(text)
}

/// Ends the census, also where a step fails.
struct Stop;

impl Drop for Stop {
    fn drop(&mut self) {
        census::stop();
    }
}
