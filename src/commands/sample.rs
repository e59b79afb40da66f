//! `sample`: generates text with a trained transformer.

use crate::tasks::GptTask;
use clap::Args;
use gradewise_nn::checkpoint::Checkpoint;
use gradewise_runner::{
    Command, Program,
    error::{Error, Result},
    options::RuntimeOptions,
    output, run, task,
};
use gradewise_zoo::models::{Gpt, Sampling};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use std::path::PathBuf;

/// Write text with a trained transformer.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gradewise sample --checkpoint runs/gpt-1/checkpoint.safetensors
  gradewise sample --checkpoint c.safetensors --prompt \"The product of\" --bytes 1000 --temperature 0.5
  gradewise sample --checkpoint c.safetensors --temperature 0          the likeliest byte each time")]
#[command(display_order = 1)] // In help, beside `eval`.
pub struct Sample {
    /// The checkpoint.
    #[arg(long, value_name = "FILE")]
    pub checkpoint: PathBuf,
    /// The beginning of the text.
    #[arg(long, default_value = "\n")]
    pub prompt: String,
    /// How many bytes to write.
    #[arg(long, default_value_t = 500)]
    pub bytes: usize,
    /// Sampling temperature: below 1 prefers likely bytes; 0 always takes the likeliest byte.
    #[arg(long, default_value_t = 0.8)]
    pub temperature: f64,
    /// Sample only from this many of the likeliest bytes; 0 for all.
    #[arg(long, default_value_t = 40)]
    pub top_k: usize,
    /// Seed of the sampling.
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    #[command(flatten)]
    pub runtime: RuntimeOptions,
}

impl Command for Sample {
    const NAME: &'static str = "sample";

    fn run(&self, _: &Program) -> Result<()> {
        run(self)
    }
}

fn run(arguments: &Sample) -> Result<()> {
    let mut resolver = task::resolver::<GptTask>(None)?;
    let beside = arguments.checkpoint.with_file_name("config.toml");
    if beside.is_file() {
        resolver.file(&beside)?;
    }
    let config = task::resolve::<GptTask>(arguments.runtime.apply(&mut resolver)?)?;
    run::once(&config.runtime, |placement| {
        let checkpoint = Checkpoint::read(&arguments.checkpoint)?;
        let model = task::load_model::<GptTask>(&checkpoint, placement)?;
        write(&model, arguments).map_err(|error| match error {
            Error::Nn(found)
                if matches!(
                    *found,
                    gradewise_nn::Error::Kernels(gradewise_kernels::Error::NotFinite { .. })
                ) =>
            {
                Error::Diverged {
                    measured: "no byte is likelier than another: the logits are not finite".to_owned(),
                    weights: task::weights_of(&[checkpoint]),
                }
            }
            other => other,
        })
    })
}

/// Writes the text while it is generated.
fn write(model: &Gpt, arguments: &Sample) -> Result<()> {
    let sampling = Sampling { temperature: arguments.temperature, top_k: arguments.top_k };
    let mut rng = ChaCha8Rng::seed_from_u64(arguments.seed);
    let prompt = arguments.prompt.as_bytes();
    output::print(&arguments.prompt)?;
    // Bytes are printed as soon as they form complete characters; an output error is reported once, at the end.
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
