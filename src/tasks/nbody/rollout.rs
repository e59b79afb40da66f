//! Long autoregressive rollouts of the n-body model, compared with the simulator.

use super::NBodyTask;
use gradewise_runner::{output, plots, prelude::*};
use gradewise_zoo::{
    data::nbody::{INPUT_FRAME, NBodyData, STEPS_PER_FRAME, Simulation, TARGET_FRAME, TIME_STEP},
    models::NBody,
    train::nbody::predict_states,
};
use serde::Serialize;
use std::path::Path;

/// Frames from the model's input to its prediction.
const FRAMES: usize = TARGET_FRAME - INPUT_FRAME;
/// Recorded states of the simulator for each step of the model.
const FINE: usize = 5;
/// Systems that the animation shows.
const SCENES: usize = 3;
/// Seconds that a step of the model takes in the animation.
const PACE: f64 = 0.5;

/// Errors after a step.
#[derive(Clone, Copy, Debug, Serialize)]
struct Step {
    /// Time, in units of the simulator.
    time: f64,
    /// Mean squared error of positions, per coordinate.
    mse: f64,
    /// Median of that error over systems.
    median: f64,
    /// Median error of uniform motion without forces.
    median_without_forces: f64,
}

/// The contents of rollout.json.
#[derive(Debug, Serialize)]
struct Record<'a> {
    systems: usize,
    frames_per_step: usize,
    steps: &'a [Step],
}

/// Rolls the model out on the test systems for `steps` steps, and writes rollout.svg, rollout-error.svg and rollout.json into `folder`.
/// Returns a table. For accurate long rollouts, train the model on later frames, too (`data.moments`).
///
/// # Errors
/// A model that predicts no velocities; from the operators or from writing.
pub fn rollout(
    model: &NBody,
    config: &TaskConfig<NBodyTask>,
    _placement: &Placement,
    steps: usize,
    folder: &Path,
) -> Result<String> {
    if !model.predicts_velocities() {
        return Err(Error::Usage(
            "--rollout needs a model that predicts velocities too; train one with: gradewise train nbody model.velocities=true"
                .to_owned(),
        ));
    }
    std::fs::create_dir_all(folder)
        .map_err(|error| Error::Output { path: folder.to_owned(), reason: error.to_string() })?;
    let start = <NBodyTask as Task>::load(&config.data, Split::Test)?;
    let (systems, particles) = (start.len(), start.particles());
    let mut simulation = Simulation::new(particles, start.loc(), start.vel(), start.charges())?;
    let (mut loc, mut vel) = (start.loc().to_vec(), start.vel().to_vec());
    let mut scenes = Scenes::new(&start, systems.min(SCENES));
    let mut recorded = Vec::with_capacity(steps);
    for step in 1..=steps {
        for _ in 0..FINE {
            simulation.advance(FRAMES / FINE);
            scenes.truth(&simulation.loc());
        }
        // Predictions are not validated as data, so check that they are finite.
        if loc.iter().chain(&vel).any(|value| !value.is_finite()) {
            return Err(Error::Diverged {
                measured: format!("the motion has left the finite numbers in step {} of {steps}", step - 1),
                weights: "the model's own predictions, from step to step,".to_owned(),
            });
        }
        let state = NBodyData::new(particles, loc.clone(), vel, start.charges().to_vec(), loc)?;
        (loc, vel) = predict_states(model, &state, EVALUATION_BATCH)?;
        scenes.learned(&loc);
        let time = (step * FRAMES * STEPS_PER_FRAME) as f64 * TIME_STEP;
        let free: Vec<f64> = start.loc().iter().zip(start.vel()).map(|(x, v)| x + v * time).collect();
        let truth = simulation.loc();
        let (errors, without) = (by_system(&loc, &truth, particles), by_system(&free, &truth, particles));
        recorded.push(Step {
            time,
            mse: errors.iter().sum::<f64>() / systems as f64,
            median: median(errors),
            median_without_forces: median(without),
        });
    }
    let line = |label: &str, value: fn(&Step) -> f64| plots::Line {
        label: label.to_owned(),
        points: std::iter::once((0.0, 0.0))
            .chain(recorded.iter().map(|step| (step.time, value(step).sqrt())))
            .collect(),
    };
    let lines = [line("model", |step| step.median), line("no forces", |step| step.median_without_forces)];
    let title = format!("distance from the simulator, median of {systems} systems");
    let axes = ("time since frame 30", "root mean squared error per coordinate");
    plots::lines(&folder.join("rollout-error.svg"), &lines, &title, axes)?;
    let title = format!("{} units of time from frame 30, {FRAMES} frames at a step", steps * FRAMES / 10);
    plots::animation(&folder.join("rollout.svg"), &scenes.0, &title, PACE * steps as f64)?;
    let record = Record { systems, frames_per_step: FRAMES, steps: &recorded };
    output::write_json(&folder.join("rollout.json"), &record)?;
    Ok(table(&recorded) + &format!("\n{}: rollout.svg rollout-error.svg rollout.json\n", folder.display()))
}

fn table(steps: &[Step]) -> String {
    let mut text = String::from("    time         MSE  median MSE  without forces\n");
    for Step { time, mse, median, median_without_forces } in steps {
        text += &format!("{time:>8.1}  {mse:>10.4}  {median:>10.4}  {median_without_forces:>14.4}\n");
    }
    text
}

/// Mean squared error of each system.
fn by_system(positions: &[f64], truth: &[f64], particles: usize) -> Vec<f64> {
    let width = (3 * particles).max(1);
    let system =
        |(a, b): (&[f64], &[f64])| a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum::<f64>() / width as f64;
    positions.chunks_exact(width).zip(truth.chunks_exact(width)).map(system).collect()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => f64::NAN,
        count if count % 2 == 1 => values[middle],
        _ => (values[middle - 1] + values[middle]) / 2.0,
    }
}

/// The first systems, for the animation.
struct Scenes(Vec<plots::Scene>);

impl Scenes {
    fn new(start: &NBodyData, count: usize) -> Self {
        let particles = start.particles();
        let scene = |system: usize| plots::Scene {
            title: format!("test sample {system}"),
            tracks: (0..particles)
                .map(|particle| plots::Track {
                    charge: start.charges()[system * particles + particle],
                    truth: vec![super::position(start.loc(), particles, system, particle)],
                    learned: vec![super::position(start.loc(), particles, system, particle)],
                })
                .collect(),
        };
        Self((0..count).map(scene).collect())
    }

    fn truth(&mut self, loc: &[f64]) {
        self.extend(loc, |track| &mut track.truth);
    }

    fn learned(&mut self, loc: &[f64]) {
        self.extend(loc, |track| &mut track.learned);
    }

    fn extend(&mut self, loc: &[f64], path: impl Fn(&mut plots::Track) -> &mut Vec<[f64; 3]>) {
        for (system, scene) in self.0.iter_mut().enumerate() {
            let particles = scene.tracks.len();
            for (particle, track) in scene.tracks.iter_mut().enumerate() {
                path(track).push(super::position(loc, particles, system, particle));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_errors_of_systems() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0]), 2.5);
        assert!(median(Vec::new()).is_nan());
        assert_eq!(
            by_system(&[1.0; 12], &[0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0, 3.0], 2),
            [1.0, 4.0 / 6.0]
        );
    }
}
