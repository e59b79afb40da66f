//! Errors of predicted fields, for single steps and rollouts.

use crate::{
    data::fields::{FieldLayout, FieldWindows},
    models::FieldModel,
};
use gradewise_autograd::{Tensor, concat, no_grad};
use gradewise_nn::{Error, Placement, Result, data::Samples, layers::Layer};
use std::ops::Range;

/// Steps of a rollout, at most.
pub const ROLLOUT_STEPS: usize = 5;
/// The most rollouts per trajectory: starts 0 to 5.
pub const ROLLOUT_STARTS: usize = 6;

/// Predicts the next frames from past ones: a network, or a baseline.
pub type Predictor<'a> = &'a dyn Fn(&Tensor) -> Result<Tensor>;

/// The mean prediction of several models.
///
/// # Errors
/// From the operators; [`Error::Argument`] for no models.
pub fn mean_of(models: &[&FieldModel], x: &Tensor) -> Result<Tensor> {
    let mut sum: Option<Tensor> = None;
    for model in models {
        let y = no_grad(|| model.forward(x))?;
        sum = Some(match sum {
            None => y,
            Some(sum) => sum.add(&y)?,
        });
    }
    match sum {
        Some(sum) if models.len() > 1 => Ok(sum.mul_scalar(1.0 / models.len() as f64)?),
        Some(sum) => Ok(sum),
        None => Err(Error::Argument {
            operation: "mean of predictions",
            argument: "models",
            actual: "none".to_owned(),
            expected: "at least one".to_owned(),
        }),
    }
}

/// The persistence baseline: repeats the last frame for each frame to predict.
///
/// # Errors
/// From the operators.
pub fn persistence(data: &FieldWindows, x: &Tensor) -> Result<Tensor> {
    data.time().last_frame(x, data.outputs())
}

/// Mean squared errors of the components of some windows, each over space and frames: `[windows][components]`, in the order of the layout's
/// components.
fn squares(prediction: &Tensor, target: &Tensor, layout: &FieldLayout) -> Result<Vec<Vec<f64>>> {
    let (count, windows) = (layout.components(), target.shape()[1]);
    let (prediction, target) = (prediction.array().to_f64_vec()?, target.array().to_f64_vec()?);
    let width = target.len() / (count * windows).max(1);
    let mut errors = vec![vec![0.0; count]; windows];
    let rows = prediction.chunks_exact(width.max(1)).zip(target.chunks_exact(width.max(1)));
    for (at, (prediction, target)) in rows.enumerate() {
        let sum: f64 = prediction.iter().zip(target).map(|(p, t)| (p - t).powi(2)).sum();
        // Ordered by blade, then by window.
        errors[at % windows][layout.blades[at / windows].0] = sum / width as f64;
    }
    Ok(errors)
}

/// Mean squared errors of one step, for each window and component.
#[derive(Clone, Debug, PartialEq)]
pub struct StepErrors {
    layout: &'static FieldLayout,
    windows: Vec<Vec<f64>>,
}

impl StepErrors {
    /// The errors of a predictor.
    ///
    /// # Errors
    /// From the operators.
    pub fn of(
        predict: Predictor<'_>,
        data: &FieldWindows,
        batch_size: usize,
        placement: &Placement,
    ) -> Result<Self> {
        let (layout, mut windows) = (data.set().layout(), Vec::with_capacity(data.len()));
        gradewise_nn::data::for_each_batch(data, batch_size, placement, |(inputs, targets)| {
            windows.extend(squares(&predict(inputs)?, targets, layout)?);
            Ok(())
        })?;
        Ok(Self { layout, windows })
    }

    /// The mean squared error of each window, over components and space.
    pub fn each(&self) -> Vec<f64> {
        self.windows.iter().map(|window| mean(window)).collect()
    }

    /// The mean over windows of the mean over some components.
    pub fn mean(&self, components: Range<usize>) -> f64 {
        mean(&self.windows.iter().map(|window| mean(&window[components.clone()])).collect::<Vec<_>>())
    }

    /// The mean over windows and all components.
    pub fn total(&self) -> f64 {
        self.mean(0..self.layout.components())
    }

    /// The sum over components of the mean over space (SMSE of PDEArena).
    pub fn summed(&self) -> f64 {
        self.total() * self.layout.components() as f64
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The steps of a rollout over a whole trajectory.
pub fn most_steps(data: &FieldWindows) -> usize {
    (data.set().frames() - data.inputs()) / data.outputs()
}

/// The length of the rollouts of measures: [`ROLLOUT_STEPS`], or fewer if trajectories are shorter.
pub fn rollout_steps(data: &FieldWindows) -> usize {
    most_steps(data).min(ROLLOUT_STEPS)
}

/// An autoregressive rollout from a tensor of frames: the predicted frames of each step.
///
/// # Errors
/// From the operators.
pub fn rollout(
    predict: Predictor<'_>,
    data: &FieldWindows,
    start: &Tensor,
    steps: usize,
) -> Result<Vec<Tensor>> {
    let axis = data.time().axis(start);
    let (mut seen, mut predictions) = (start.clone(), Vec::with_capacity(steps));
    for _ in 0..steps {
        let next = predict(&seen)?;
        let all = concat(&[&seen, &next], axis)?;
        let frames = all.shape()[axis];
        seen = all.slice(axis, frames - data.inputs()..frames)?;
        predictions.push(next);
    }
    Ok(predictions)
}

/// Mean squared errors, over components and space, of each step of rollouts: `[rollouts][steps]`.
#[derive(Clone, Debug, PartialEq)]
pub struct RolloutErrors(Vec<Vec<f64>>);

impl RolloutErrors {
    /// Rollouts of [`rollout_steps`] steps from the first starts of all trajectories (0 to 5 if trajectories are long enough, as in
    /// PDEArena).
    ///
    /// # Errors
    /// From the operators.
    pub fn of(
        predict: Predictor<'_>,
        data: &FieldWindows,
        batch_size: usize,
        placement: &Placement,
    ) -> Result<Self> {
        Self::over(rollout_steps(data), predict, data, batch_size, placement)
    }

    /// The same, of as many steps.
    ///
    /// # Errors
    /// From the operators; [`Error::Argument`] if there are no steps, or if trajectories are shorter.
    pub fn over(
        steps: usize,
        predict: Predictor<'_>,
        data: &FieldWindows,
        batch_size: usize,
        placement: &Placement,
    ) -> Result<Self> {
        let most = most_steps(data);
        if !(1..=most).contains(&steps) {
            return Err(Error::Argument {
                operation: "rollout of fields",
                argument: "steps",
                actual: steps.to_string(),
                expected: format!("1 to {most}, for trajectories of {} frames", data.set().frames()),
            });
        }
        let length = data.inputs() + steps * data.outputs();
        let starts = (data.set().frames() + 1 - length).min(ROLLOUT_STARTS);
        let of_trajectory = |trajectory| (0..starts).map(move |start| (trajectory, start));
        let places: Vec<(usize, usize)> = (0..data.set().trajectories()).flat_map(of_trajectory).collect();
        let mut errors = vec![Vec::with_capacity(steps); places.len()];
        for (places, errors) in places.chunks(batch_size.max(1)).zip(errors.chunks_mut(batch_size.max(1))) {
            let frames = |from: usize, count: usize| -> Vec<(usize, Range<usize>)> {
                let place =
                    |&(trajectory, start): &(usize, usize)| (trajectory, start + from..start + from + count);
                places.iter().map(place).collect()
            };
            let start = data.fields(&frames(0, data.inputs()), placement)?;
            for (step, prediction) in rollout(predict, data, &start, steps)?.iter().enumerate() {
                let truth = frames(data.inputs() + step * data.outputs(), data.outputs());
                let truth = data.fields(&truth, placement)?;
                let squares = squares(prediction, &truth, data.set().layout())?;
                errors.iter_mut().zip(&squares).for_each(|(errors, window)| errors.push(mean(window)));
            }
        }
        Ok(Self(errors))
    }

    /// For each step, the mean over rollouts.
    pub fn steps(&self) -> Vec<f64> {
        self.by_step().iter().map(|errors| mean(errors)).collect()
    }

    /// For each step, the error of each rollout.
    pub fn by_step(&self) -> Vec<Vec<f64>> {
        let steps = self.0.first().map_or(0, Vec::len);
        (0..steps).map(|step| self.0.iter().map(|errors| errors[step]).collect()).collect()
    }

    /// For each rollout, the sum over steps; its mean is PDEArena's rollout error.
    pub fn each(&self) -> Vec<f64> {
        self.0.iter().map(|errors| errors.iter().sum()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::fields::{FieldSet, TimeAxis};
    use gradewise_kernels::Device;
    use std::sync::Arc;

    static LAYOUT: FieldLayout = FieldLayout {
        name: "test",
        files: &[("a", 0..2)],
        quantities: &[("a", "a", 0..1), ("b", "b", 1..2)],
        space_axes: 2,
        metric: &[1, 1],
        first_blade: 1,
        blades: &[(1, -1.0), (0, 1.0)],
        scale: 1.0,
    };

    /// Component 0 grows by 1 from frame to frame, component 1 by 3.
    fn growing(frames: usize) -> Arc<FieldSet> {
        let values = (0..2 * frames).flat_map(|at| {
            let time = (at % frames) as f32;
            (0..4).flat_map(move |_| [time, 3.0 * time])
        });
        Arc::new(FieldSet::new(&LAYOUT, (2, frames), &[2, 2], values.collect()).unwrap())
    }

    #[test]
    fn persistence_is_as_wrong_as_fields_change() {
        let place = Placement::from(&Device::Cpu);
        for time in [TimeAxis::Channels, TimeAxis::Grid] {
            let data = FieldWindows::new(growing(8), (2, 1), time).unwrap();
            let stay = |x: &Tensor| persistence(&data, x);
            let errors = StepErrors::of(&stay, &data, 3, &place).unwrap();
            assert_eq!((errors.mean(0..1), errors.mean(1..2)), (1.0, 9.0));
            assert_eq!((errors.total(), errors.summed(), errors.each().len()), (5.0, 10.0, 12));
            // The distance grows linearly: the error after k steps is k²·(1 + 9)/2.
            let errors = RolloutErrors::of(&stay, &data, 4, &place).unwrap();
            assert_eq!(errors.steps(), [5.0, 20.0, 45.0, 80.0, 125.0]);
            assert_eq!(errors.each(), [275.0; 4], "of each start");
        }
        let data = FieldWindows::new(growing(8), (2, 2), TimeAxis::Grid).unwrap();
        let stay = |x: &Tensor| persistence(&data, x);
        assert_eq!(rollout_steps(&data), 3);
        let over = |steps| RolloutErrors::over(steps, &stay, &data, 4, &place);
        assert_eq!(over(2).unwrap().by_step(), [[12.5; 6], [62.5; 6]], "three starts of two trajectories");
        assert!(over(4).unwrap_err().to_string().contains("1 to 3") && over(0).is_err());
        // One and two frames on, then three and four, five and six.
        assert_eq!(RolloutErrors::of(&stay, &data, 4, &place).unwrap().steps(), [12.5, 62.5, 152.5]);
    }

    #[test]
    fn a_rollout_sees_its_own_predictions() {
        let place = Placement::from(&Device::Cpu);
        let data = FieldWindows::new(growing(8), (2, 1), TimeAxis::Channels).unwrap();
        // 2·(last frame) − (the one before) is exact on lines.
        let line = |x: &Tensor| {
            let (before, last) = (x.slice(4, 0..1)?, x.slice(4, 1..2)?);
            Ok(last.mul_scalar(2.0)?.sub(&before)?)
        };
        assert_eq!(RolloutErrors::of(&line, &data, 5, &place).unwrap().steps(), [0.0; 5]);
    }
}
