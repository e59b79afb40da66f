//! The n-body experiment: its data, its model, and what others have reached.

use crate::{
    config::{Data, NBody as Config},
    error::{Error, Result},
    output, plots,
};
use gradewise_nn::{
    Module, Placement,
    checkpoint::Checkpoint,
    data::{
        Split,
        nbody::{INPUT_FRAME, NBodyData, TARGET_FRAME, Trajectories},
    },
    models::{NBody, NBodyConfig},
    optim::MovingAverage,
    train::nbody::{mean_squared_error, predict},
};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use std::fmt::Write;

/// Name of the model family in checkpoints and run folders.
pub const NAME: &str = "nbody";
/// Samples evaluated at once.
pub const EVALUATION_BATCH: usize = 500;
/// Samples shown in `trajectories.svg`.
const PANELS: usize = 6;

/// Mean squared error on the test split, as published.
const PUBLISHED: [(&str, f64); 8] = [
    ("SE(3)-Transformer", 0.0244),
    ("TFN", 0.0155),
    ("NMP", 0.0107),
    ("Radial Field", 0.0104),
    ("EGNN", 0.0070),
    ("SEGNN", 0.0043),
    ("CGENN", 0.0039),
    ("Multivector Neurons", 0.0035),
];

/// The trajectories of one split: simulated, or read from the published files.
///
/// # Errors
/// Files that are missing or unusable.
pub fn trajectories(config: &Data, split: Split) -> Result<Trajectories> {
    let wanted = match split {
        Split::Train => config.train,
        Split::Valid => config.valid,
        Split::Test => config.test,
    };
    if config.source == "simulate" {
        return Ok(Trajectories::simulate(config.particles, wanted, TARGET_FRAME + 1, config.seed, split)?);
    }
    let suffix = (!config.suffix.is_empty()).then_some(config.suffix.as_str());
    let all = Trajectories::load(&config.source, split, suffix)?;
    if all.systems() < wanted {
        output::note(&format!(
            "data: {} has {} of the {wanted} {split} samples asked for",
            config.source,
            all.systems()
        ));
    }
    let count = wanted.min(all.systems());
    Ok(all.take(count)?)
}

/// A new model with weights drawn from the configured seed.
///
/// # Errors
/// A dtype the device does not serve, or no memory.
pub fn new_model(config: &Config, placement: &Placement) -> Result<NBody> {
    let sizes = NBodyConfig { hidden: config.model.hidden, layers: config.model.layers };
    Ok(NBody::init(&sizes, placement, &mut ChaCha8Rng::seed_from_u64(config.train.seed))?)
}

/// The model of a checkpoint, with the moving average of its weights if one was kept.
///
/// # Errors
/// A checkpoint of another model, or weights that do not fit.
pub fn load_model(checkpoint: &Checkpoint, placement: &Placement) -> Result<NBody> {
    let path = checkpoint.tensors.path().display();
    let metadata = &checkpoint.metadata;
    if metadata.model != NAME {
        return Err(Error::Usage(format!(
            "{path} is a checkpoint of `{}`, expected `{NAME}`",
            metadata.model
        )));
    }
    let sizes: NBodyConfig = serde_json::from_value(metadata.model_config.clone())
        .map_err(|error| Error::Usage(format!("{path}: the model configuration is malformed: {error}")))?;
    let tensors = &checkpoint.tensors;
    // The sizes come from a file: before memory is asked for, the file must hold weights of that size.
    let width = tensors.get("embedding.weight").and_then(|weight| weight.shape().last().copied());
    let deepest = sizes.layers.checked_sub(1).map(|last| format!("layers.{last}."));
    let has_layers = deepest.is_none_or(|prefix| tensors.iter().any(|(name, _)| name.starts_with(&prefix)));
    if width != Some(sizes.hidden) || !has_layers {
        return Err(Error::Usage(format!(
            "{path}: the model configuration (hidden {}, layers {}) does not fit the weights in the file",
            sizes.hidden, sizes.layers
        )));
    }
    let model = NBody::init(&sizes, placement, &mut ChaCha8Rng::seed_from_u64(0))?;
    let averaged = MovingAverage::is_in(tensors);
    model.load(&|name| {
        let name = if averaged { format!("ema::{name}") } else { name.to_owned() };
        tensors.array(&name, placement.dtype, &placement.device).ok()
    })?;
    Ok(model)
}

/// Mean squared error of a model on samples.
///
/// # Errors
/// From the device.
pub fn evaluate(model: &NBody, data: &NBodyData) -> gradewise_nn::Result<f64> {
    mean_squared_error(&predict(model, data, EVALUATION_BATCH)?, data)
}

/// The published table with `ours` in its place.
pub fn table(ours: f64) -> String {
    let mut rows: Vec<(&str, f64)> = PUBLISHED.to_vec();
    let place = rows.iter().position(|(_, error)| *error < ours).unwrap_or(rows.len());
    rows.insert(place, ("this run", ours));
    let mut text = String::from("  test MSE\n");
    for (index, (name, error)) in rows.iter().enumerate() {
        let mark = if index == place { '>' } else { ' ' };
        let spread = if *name == "CGENN" { " ± 0.0001" } else { "" };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{mark} {name:<20} {error:.4}{spread}");
    }
    text
}

/// Panels of predicted and true motion of the first samples of a split.
///
/// # Errors
/// Trajectories that lack the frames of the task; from the device.
pub fn panels(model: &NBody, trajectories: &Trajectories) -> gradewise_nn::Result<Vec<plots::Panel>> {
    let shown = trajectories.clone().take(PANELS.min(trajectories.systems()))?;
    let data = NBodyData::from_trajectories(&shown)?;
    let predictions = predict(model, &data, EVALUATION_BATCH)?;
    let frames =
        (INPUT_FRAME..=TARGET_FRAME).map(|frame| shown.loc_at(frame)).collect::<Result<Vec<_>, _>>()?;
    let particles = data.particles();
    let width = 3 * particles;
    let at = |values: &[f64], system: usize, particle: usize| -> [f64; 3] {
        std::array::from_fn(|axis| values[system * width + axis * particles + particle])
    };
    let panel = |system: usize| {
        let range = system * width..(system + 1) * width;
        let squares =
            predictions[range.clone()].iter().zip(&data.target()[range]).map(|(p, t)| (p - t).powi(2));
        plots::Panel {
            title: format!("test sample {system}: MSE {:.4}", squares.sum::<f64>() / width as f64),
            particles: (0..particles)
                .map(|particle| plots::Particle {
                    charge: data.charges()[system * particles + particle],
                    path: frames.iter().map(|frame| at(frame, system, particle)).collect(),
                    predicted: at(&predictions, system, particle),
                })
                .collect(),
        }
    };
    Ok((0..data.len()).map(panel).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_this_run_in_its_place() {
        for (ours, before, after) in [(0.5, 0, 8), (0.0080, 4, 4), (0.0001, 8, 0)] {
            let table = table(ours);
            let rows: Vec<&str> = table.lines().skip(1).collect();
            assert_eq!(rows.len(), 9);
            assert_eq!(rows.iter().position(|row| row.starts_with('>')), Some(before));
            assert_eq!(rows.len() - 1 - before, after);
        }
        assert!(table(f64::NAN).contains("this run"));
    }
}
