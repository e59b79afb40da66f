//! `eval`: the error of a checkpoint on a split.

use crate::{
    cli::Eval,
    config::{NBody as Config, Resolver},
    error::{Error, Result},
    nbody, output, run,
};
use gradewise_nn::{
    checkpoint::Checkpoint,
    data::{Split, nbody::NBodyData},
};

pub fn run(arguments: &Eval) -> Result<()> {
    let mut resolver = Resolver::new::<Config>()?;
    let beside = arguments.checkpoint.with_file_name("config.toml");
    if beside.is_file() {
        resolver.file(&beside)?;
    }
    let config = Config::resolve(arguments.settings.apply(&mut resolver)?)?;
    let split: Split = arguments.split.parse()?;
    let placement = run::placement(&config.runtime)?;
    let checkpoint = Checkpoint::read(&arguments.checkpoint)?;
    let model = nbody::load_model(&checkpoint, &placement)?;
    let data = NBodyData::from_trajectories(&nbody::trajectories(&config.data, split)?)?;
    let error = nbody::evaluate(&model, &data)?;
    if arguments.json {
        let record = serde_json::json!({
            "split": split.name(), "samples": data.len(), "mse": error, "step": checkpoint.metadata.step,
        });
        output::print(&format!("{record}\n"))?;
    } else {
        let step = checkpoint.metadata.step;
        let table = if split == Split::Test { format!("\n{}", nbody::table(error)) } else { String::new() };
        output::print(&format!(
            "{split} MSE {error:.6} on {} samples, weights of step {step}\n{table}",
            data.len()
        ))?;
    }
    if error.is_finite() { Ok(()) } else { Err(Error::Failed(format!("the error is {error}"))) }
}
