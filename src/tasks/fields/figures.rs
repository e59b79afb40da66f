//! Maps of predictions and truth.

use super::BATCH;
use gradewise_runner::{output, plots, prelude::*, task::median};
use gradewise_zoo::{
    data::fields::{FieldWindows, TimeAxis},
    train::fields::{Predictor, RolloutErrors, most_steps, persistence, rollout, rollout_steps},
};
use serde::Serialize;
use std::path::Path;

/// Of maps.
const COLUMNS: [&str; 3] = ["truth", "prediction", "prediction − truth"];

/// Seconds per step in the animation of a rollout.
const PACE: f64 = 0.8;

/// Physical components of a plane of the last frame of a field: truth, prediction, and their difference, of each quantity.
struct Moment {
    truth: Vec<f64>,
    prediction: Vec<f64>,
}

/// Draws the first step and a rollout from the start of the first test trajectory.
pub fn draw(
    predict: Predictor<'_>,
    data: &FieldWindows,
    title: &str,
    placement: &Placement,
    folder: &RunFolder,
) -> Result<Vec<&'static str>> {
    let steps = rollout_steps(data);
    let moments = moments(predict, data, steps, placement)?;
    let one = rows(&moments[..1.min(moments.len())], data);
    let first = format!("{title}: one step on test data");
    plots::maps(&folder.file("fields.svg"), &one, &COLUMNS, &first, PACE)?;
    let mut files = vec!["fields.svg"];
    if steps > 1 {
        animate(&moments, data, title, &folder.file("rollout.svg"))?;
        files.push("rollout.svg");
    }
    Ok(files)
}

/// The steps of a rollout from the start of the first trajectory.
fn moments(
    predict: Predictor<'_>,
    data: &FieldWindows,
    steps: usize,
    placement: &Placement,
) -> Result<Vec<Moment>> {
    let start = data.fields(&[(0, 0..data.inputs())], placement)?;
    let mut moments = Vec::with_capacity(steps);
    for (step, prediction) in rollout(predict, data, &start, steps)?.iter().enumerate() {
        let from = data.inputs() + step * data.outputs();
        let truth = data.fields(&[(0, from..from + data.outputs())], placement)?;
        moments.push(Moment { truth: plane(&truth, data)?, prediction: plane(prediction, data)? });
    }
    Ok(moments)
}

fn animate(moments: &[Moment], data: &FieldWindows, title: &str, path: &Path) -> Result<()> {
    let title = format!("{title}: {} steps on its own predictions", moments.len());
    plots::maps(path, &rows(moments, data), &COLUMNS, &title, PACE)
}

/// Errors after a step of a rollout: mean squares over components and space.
#[derive(Clone, Copy, Debug, Serialize)]
struct Step {
    step: usize,
    /// The mean and the median over rollouts.
    mse: f64,
    median: f64,
    /// The mean for a prediction that repeats the last frame seen.
    last_frame_mse: f64,
}

/// The contents of rollout.json.
#[derive(Debug, Serialize)]
struct Record<'a> {
    rollouts: usize,
    frames_per_step: usize,
    steps: &'a [Step],
}

/// Follows the trajectories for `steps` steps, or for as many as they have. Writes rollout.svg, of the first one, rollout-error.svg and
/// rollout.json into `folder`, and returns a table.
pub fn follow(
    predict: Predictor<'_>,
    data: &FieldWindows,
    title: &str,
    steps: usize,
    placement: &Placement,
    folder: &Path,
) -> Result<String> {
    let most = most_steps(data);
    let (asked, steps) = (steps, steps.min(most));
    let errors = RolloutErrors::over(steps, predict, data, BATCH, placement)?.by_step();
    let stay = RolloutErrors::over(steps, &|x| persistence(data, x), data, BATCH, placement)?.steps();
    let rollouts = errors.first().map_or(0, Vec::len);
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let recorded: Vec<Step> = (1..)
        .zip(errors.iter().zip(&stay))
        .map(|(step, (errors, &last_frame_mse))| Step {
            step,
            mse: mean(errors),
            median: median(errors),
            last_frame_mse,
        })
        .collect();
    if let Some(Step { step, .. }) = recorded.iter().find(|step| !step.mse.is_finite()) {
        return Err(Error::Diverged {
            measured: format!("the fields have left the finite numbers in step {step} of {steps}"),
            weights: "the model's own predictions, from step to step,".to_owned(),
        });
    }
    std::fs::create_dir_all(folder)
        .map_err(|error| Error::Output { path: folder.to_owned(), reason: error.to_string() })?;
    animate(&moments(predict, data, steps, placement)?, data, title, &folder.join("rollout.svg"))?;
    let line = |label: &str, value: fn(&Step) -> f64| plots::Line {
        label: label.to_owned(),
        points: recorded.iter().map(|step| (step.step as f64, value(step).sqrt())).collect(),
    };
    let lines = [line("model", |step| step.mse), line("the last frame again", |step| step.last_frame_mse)];
    let about = format!("{title}: distance from the truth, mean of {rollouts} rollouts");
    let axes = ("step", "root mean squared error per component");
    plots::lines(&folder.join("rollout-error.svg"), &lines, &about, axes)?;
    let record = Record { rollouts, frames_per_step: data.outputs(), steps: &recorded };
    output::write_json(&folder.join("rollout.json"), &record)?;
    let mut text = String::from("  step         MSE      median  the last frame again\n");
    for Step { step, mse, median, last_frame_mse } in &recorded {
        text += &format!("{step:>6}  {mse:>10.4}  {median:>10.4}  {last_frame_mse:>20.4}\n");
    }
    if asked > steps {
        text += &format!("\nthe test trajectories have {} frames: {most} steps\n", data.set().frames());
    }
    Ok(text + &format!("\n{}: rollout.svg rollout-error.svg rollout.json\n", folder.display()))
}

/// `[x, y, components]` of the last frame; for fields in space, the middle plane along the third axis. Components are in the order and
/// units of the data.
fn plane(field: &Tensor, data: &FieldWindows) -> gradewise_nn::Result<Vec<f64>> {
    let (layout, space) = (data.set().layout(), data.set().space());
    let values = field.array().to_f64_vec()?;
    let points: usize = space.iter().product();
    let frames = data.outputs();
    let middle = space.get(2).map_or(0, |extent| extent / 2);
    let depth = space.get(2).copied().unwrap_or(1);
    let mut plane = vec![0.0; space[0] * space[1] * layout.components()];
    for (blade, &(component, sign)) in layout.blades.iter().enumerate() {
        for at in 0..space[0] * space[1] {
            let point = at * depth + middle;
            let place = match data.time() {
                TimeAxis::Channels => (blade * points + point) * frames + frames - 1,
                TimeAxis::Grid => (blade * frames + frames - 1) * points + point,
            };
            plane[at * layout.components() + component] = values[place] * sign / layout.scale;
        }
    }
    Ok(plane)
}

fn rows(moments: &[Moment], data: &FieldWindows) -> Vec<plots::MapRow> {
    let (layout, space) = (data.set().layout(), data.set().space());
    let width = layout.components();
    let row = |(key, _, components): &(&'static str, &'static str, std::ops::Range<usize>)| {
        // Arrows show the components in the plane.
        let count = components.len().min(2);
        let map = |values: &[f64]| plots::Map {
            size: [space[0], space[1]],
            values: values
                .chunks_exact(width)
                .flat_map(|point| point[components.start..][..count].to_vec())
                .collect(),
            components: count,
        };
        let maps = moments.iter().map(|Moment { truth, prediction }| {
            let error: Vec<f64> = prediction.iter().zip(truth).map(|(p, t)| p - t).collect();
            vec![map(truth), map(prediction), map(&error)]
        });
        plots::MapRow { title: (*key).to_owned(), maps: maps.collect() }
    };
    layout.quantities.iter().map(row).collect()
}
