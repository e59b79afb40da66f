//! `sample`: text that a trained transformer goes on with.

use super::eval::weights_of;
use crate::{
    cli::Sample,
    error::{Error, Result},
    output, run,
    tasks::{self, GptTask, TaskConfig},
};
use gradewise_nn::{
    checkpoint::Checkpoint,
    models::{Gpt, Sampling},
};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

pub fn run(arguments: &Sample) -> Result<()> {
    let mut resolver = tasks::resolver::<GptTask>(None)?;
    let beside = arguments.checkpoint.with_file_name("config.toml");
    if beside.is_file() {
        resolver.file(&beside)?;
    }
    let config = TaskConfig::<GptTask>::resolve(arguments.runtime.apply(&mut resolver)?)?;
    run::once(&config.runtime, |placement| {
        let checkpoint = Checkpoint::read(&arguments.checkpoint)?;
        let model = tasks::load_model::<GptTask>(&checkpoint, placement)?;
        write(&model, arguments).map_err(|error| match error {
            Error::Nn(gradewise_nn::Error::Kernels(gradewise_kernels::Error::NotFinite { .. })) => {
                Error::Diverged {
                    measured: "no byte is likelier than another: the logits are not finite".to_owned(),
                    weights: weights_of(&[checkpoint]),
                }
            }
            other => other,
        })
    })
}

/// Writes the text as it comes.
fn write(model: &Gpt, arguments: &Sample) -> Result<()> {
    let sampling = Sampling { temperature: arguments.temperature, top_k: arguments.top_k };
    let mut rng = ChaCha8Rng::seed_from_u64(arguments.seed);
    let prompt = arguments.prompt.as_bytes();
    output::print(&arguments.prompt)?;
    // Bytes are shown as soon as they make characters; a failure to show them is reported once, at the end.
    let (mut pending, mut shown) = (Vec::new(), Ok(()));
    let text = model.generate(prompt, arguments.bytes, &sampling, &mut rng, |byte| {
        pending.push(byte);
        if std::str::from_utf8(&pending).is_ok() || pending.len() == 4 {
            let characters = String::from_utf8_lossy(&pending).into_owned();
            if shown.is_ok() {
                shown = output::print(&characters);
            }
            pending.clear();
        }
    })?;
    shown?;
    output::print("\n")?;
    if text.len() == arguments.bytes { Ok(()) } else { Err(Error::Failed("the text ended early".to_owned())) }
}
