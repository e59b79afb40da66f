//! Samples of recorded fields: input frames, and the target frames after them.

use super::FieldSet;
use gradewise_autograd::{Tensor, concat};
use gradewise_kernels::Array;
use gradewise_nn::{Error, Placement, Result, data::Samples};
use std::{ops::Range, sync::Arc};

/// The axis of time in the fields that models see.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TimeAxis {
    /// Frames are channels: `[blades, batch, *space, frames]`.
    Channels,
    /// Time is the first axis of the grid: `[blades, batch, frames, *space, 1]`.
    Grid,
}

impl TimeAxis {
    /// The axis of frames of a field that models see.
    pub(crate) fn axis(self, x: &Tensor) -> usize {
        match self {
            Self::Channels => x.shape().rank() - 1,
            Self::Grid => 2,
        }
    }

    /// The last frame of `x`, `count` times.
    pub(crate) fn last_frame(self, x: &Tensor, count: usize) -> Result<Tensor> {
        let axis = self.axis(x);
        let frames = x.shape()[axis];
        let last = x.slice(axis, frames - 1..frames)?;
        Ok(concat(&vec![&last; count], axis)?)
    }
}

/// Windows of recorded fields: `inputs` frames and the `outputs` frames after them. A window starts at every frame, or at every few frames
/// (see [`every`](Self::every)). Window `i` is number `i % starts` of trajectory `i / starts`.
///
/// Fields have only the blades of the data, in the order and with the signs of the set's [`FieldLayout`](super::FieldLayout), and are
/// multiplied by its scale.
#[derive(Clone, Debug)]
pub struct FieldWindows {
    set: Arc<FieldSet>,
    inputs: usize,
    outputs: usize,
    time: TimeAxis,
    every: usize,
}

impl FieldWindows {
    /// Windows of a set.
    ///
    /// # Errors
    /// [`Error::Argument`] if a trajectory is shorter than a window, or a window without inputs or outputs.
    pub fn new(set: Arc<FieldSet>, (inputs, outputs): (usize, usize), time: TimeAxis) -> Result<Self> {
        if inputs == 0 || outputs == 0 || inputs + outputs > set.frames() {
            return Err(Error::Argument {
                operation: "FieldWindows",
                argument: "frames",
                actual: format!("{inputs} to {outputs}"),
                expected: format!("at least one of each, at most {} in all", set.frames()),
            });
        }
        Ok(Self { set, inputs, outputs, time, every: 1 })
    }

    /// Sets the distance between the starts of successive windows to `frames` frames.
    #[must_use]
    pub fn every(self, frames: usize) -> Self {
        Self { every: frames.max(1), ..self }
    }

    /// The recorded fields.
    pub fn set(&self) -> &FieldSet {
        &self.set
    }

    /// Frames that models see.
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// Frames that models predict.
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// Windows of each trajectory.
    pub fn starts(&self) -> usize {
        (self.set.frames() - self.inputs - self.outputs) / self.every + 1
    }

    /// The axis of time.
    pub fn time(&self) -> TimeAxis {
        self.time
    }

    /// Frames of trajectories in the layout that models see. `of` holds the trajectory and the frames of each field.
    ///
    /// # Errors
    /// A dtype the device does not serve, or no memory.
    pub fn fields(&self, of: &[(usize, Range<usize>)], placement: &Placement) -> Result<Tensor> {
        let (layout, space) = (self.set.layout(), self.set.space());
        let (points, width) = (space.iter().product::<usize>(), layout.components());
        let frames = of.first().map_or(0, |(_, frames)| frames.len());
        let mut values = Vec::with_capacity(width * of.len() * points * frames);
        for &(component, sign) in layout.blades {
            let factor = sign * layout.scale;
            for (trajectory, frames) in of {
                let value = |frame: usize, point: usize| {
                    factor * f64::from(self.set.frame(*trajectory, frame)[point * width + component])
                };
                match self.time {
                    TimeAxis::Channels => {
                        values.extend(
                            (0..points)
                                .flat_map(|point| frames.clone().map(move |frame| value(frame, point))),
                        );
                    }
                    TimeAxis::Grid => {
                        values.extend(
                            frames
                                .clone()
                                .flat_map(|frame| (0..points).map(move |point| value(frame, point))),
                        );
                    }
                }
            }
        }
        let shape = match self.time {
            TimeAxis::Channels => [&[width, of.len()], space, &[frames]].concat(),
            TimeAxis::Grid => [&[width, of.len(), frames], space, &[1]].concat(),
        };
        Ok(Tensor::new(Array::from_f64(&values, shape, placement.dtype, &placement.device)?))
    }

    /// Trajectory and first frame of a window.
    pub fn place(&self, window: usize) -> (usize, usize) {
        (window / self.starts(), window % self.starts() * self.every)
    }
}

impl Samples for FieldWindows {
    type Batch = (Tensor, Tensor);

    fn len(&self) -> usize {
        self.set.trajectories() * self.starts()
    }

    fn batch(&self, indices: &[usize], placement: &Placement) -> Result<(Tensor, Tensor)> {
        let frames = |from: usize, count: usize| -> Vec<(usize, Range<usize>)> {
            let place = |&window: &usize| {
                let (trajectory, start) = self.place(window);
                (trajectory, start + from..start + from + count)
            };
            indices.iter().map(place).collect()
        };
        let inputs = self.fields(&frames(0, self.inputs), placement)?;
        Ok((inputs, self.fields(&frames(self.inputs, self.outputs), placement)?))
    }
}

#[cfg(test)]
mod tests {
    use super::{super::FieldLayout, *};
    use gradewise_kernels::Device;

    static LAYOUT: FieldLayout = FieldLayout {
        name: "test",
        files: &[("a", 0..2)],
        quantities: &[("a", "a", 0..2)],
        space_axes: 2,
        metric: &[1, 1],
        first_blade: 1,
        blades: &[(1, -1.0), (0, 1.0)],
        scale: 10.0,
    };

    #[test]
    fn windows_have_their_frames_with_signs_and_scale() {
        // Each value encodes its position: trajectory, frame, point, component.
        let values = (0..2 * 4 * 3 * 2).map(|at| at as f32).collect();
        let set = Arc::new(FieldSet::new(&LAYOUT, (2, 4), &[3, 1], values).unwrap());
        let place = Placement::from(&Device::Cpu);
        let windows = FieldWindows::new(set.clone(), (2, 1), TimeAxis::Channels).unwrap();
        assert_eq!((windows.len(), windows.starts()), (4, 2));
        // Trajectory 1, start 1: frames 1 and 2, then 3.
        let (inputs, targets) = windows.batch(&[3], &place).unwrap();
        assert_eq!(inputs.shape().dims(), [2, 1, 3, 1, 2]);
        let values = inputs.array().to_f64_vec().unwrap();
        let at =
            |frame: usize, point: usize, component: usize| (((4 + frame) * 3 + point) * 2 + component) as f64;
        assert_eq!(
            values[..4],
            [-10.0 * at(1, 0, 1), -10.0 * at(2, 0, 1), -10.0 * at(1, 1, 1), -10.0 * at(2, 1, 1)]
        );
        assert_eq!(values[6], 10.0 * at(1, 0, 0));
        assert_eq!(targets.array().to_f64_vec().unwrap()[0], -10.0 * at(3, 0, 1));
        let grid = FieldWindows::new(set.clone(), (2, 2), TimeAxis::Grid).unwrap();
        let (inputs, _) = grid.batch(&[0], &place).unwrap();
        assert_eq!(inputs.shape().dims(), [2, 1, 2, 3, 1, 1]);
        assert_eq!(grid.len(), 2);
        let apart = windows.every(2);
        assert_eq!((apart.starts(), apart.place(1)), (1, (1, 0)));
        assert!(FieldWindows::new(set, (4, 1), TimeAxis::Channels).is_err());
    }
}
