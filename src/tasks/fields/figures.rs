//! Maps of predictions and truth.

use gradewise_nn::{
    data::fields::{FieldWindows, TimeAxis},
    train::fields::{Predictor, rollout, rollout_steps},
};
use gradewise_runner::{plots, prelude::*};

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
    let start = data.fields(&[(0, 0..data.inputs())], placement)?;
    let mut moments = Vec::with_capacity(steps);
    for (step, prediction) in rollout(predict, data, &start, steps)?.iter().enumerate() {
        let from = data.inputs() + step * data.outputs();
        let truth = data.fields(&[(0, from..from + data.outputs())], placement)?;
        moments.push(Moment { truth: plane(&truth, data)?, prediction: plane(prediction, data)? });
    }
    let columns = ["truth", "prediction", "prediction − truth"];
    let one = rows(&moments[..1.min(moments.len())], data);
    let first = format!("{title}: one step on test data");
    plots::maps(&folder.file("fields.svg"), &one, &columns, &first, PACE)?;
    let mut files = vec!["fields.svg"];
    if steps > 1 {
        let title = format!("{title}: {steps} steps on its own predictions");
        plots::maps(&folder.file("rollout.svg"), &rows(&moments, data), &columns, &title, PACE)?;
        files.push("rollout.svg");
    }
    Ok(files)
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
