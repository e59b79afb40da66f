//! `memory`: what a training step takes, by the batch, by operation, and by name.

use super::train::fit;
use crate::{
    cli::Memory,
    error::Result,
    output, run,
    tasks::{self, Task, with_task},
};
use gradewise_autograd::footprint;
use gradewise_kernels::memory::{Bytes, census};
use gradewise_nn::{
    data::Split,
    train::{Part, Samples},
};

pub fn run(arguments: &Memory) -> Result<()> {
    with_task!(&arguments.task, T => show::<T>(arguments))
}

fn show<T: Task>(arguments: &Memory) -> Result<()> {
    let config = tasks::configure::<T>(arguments.preset.as_deref(), &arguments.settings)?;
    let placement = run::placement(&config.runtime)?;
    let data = T::load(&config.data, Split::Train)?;
    let batch = config.train.batch_size;
    let mut text = format!("on {}: {}\n\n", placement.device, fit::advice::<T>(&config, &data, &placement)?);

    // One step, eagerly, for its operations and for what is alive after it.
    run::census(&config.runtime, census::Detail::Operations);
    let mut eager = config.clone();
    eager.train.capture = false;
    let (mut trainer, mut steps) = fit::start::<T>(&eager, &placement)?;
    let indices: Vec<usize> = (0..batch).map(|index| index % data.len()).collect();
    let mut batches = std::iter::repeat_with(|| -> gradewise_nn::Result<_> {
        Ok(Part::whole(data.batch(&indices, &placement)?))
    });
    steps.take(&mut trainer, &mut batches)?;
    let (report, mut found) = footprint(&placement.device, || steps.take(&mut trainer, &mut batches))
        .map_err(gradewise_nn::Error::from)?;
    report?;
    trainer.name_arrays();
    found.operations.truncate(arguments.limit);
    text += &format!("a step with {batch} samples, by operation:\n\n{found}\n\n");
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
    census::stop();
    output::print(&text)
}
