//! Batches for the n-body model, its predictions and its error on a data set.

use crate::data::nbody::NBodyData;
use crate::models::{NBody, NBodyBatch};
use gradewise_autograd::{Tensor, concat, no_grad};
use gradewise_kernels::Device;
use gradewise_nn::train::{Batch, Samples, for_each_batch};
use gradewise_nn::{Error, Placement, Result};

/// A batch with its targets.
#[derive(Clone, Debug)]
pub struct Example {
    /// The model's input.
    pub batch: NBodyBatch,
    /// True positions `[3, systems × particles]`, or these and true velocities `[6, systems × particles]`.
    pub targets: Tensor,
}

impl Example {
    /// Puts samples on a device.
    ///
    /// # Errors
    /// A dtype the device does not serve, or no memory.
    pub fn new(data: &NBodyData, placement: impl Into<Placement>) -> Result<Self> {
        let placement = &placement.into();
        let batch = NBodyBatch::new((data.loc(), data.vel(), data.charges()), data.particles(), placement)?;
        Self::of(batch, data)
    }

    /// A batch of samples with their targets.
    ///
    /// # Errors
    /// Targets of another number of systems or particles; from the device.
    pub fn of(batch: NBodyBatch, data: &NBodyData) -> Result<Self> {
        let mut targets = batch.targets(data.target())?;
        if let Some(vel) = data.target_vel() {
            targets = concat(&[&targets, &batch.targets(vel)?], 0)?;
        }
        Ok(Self { batch, targets })
    }
}

impl Batch for Example {
    fn to_device(&self, device: &Device) -> Result<Self> {
        Ok(Self {
            batch: self.batch.to_device(device)?,
            targets: Tensor::new(self.targets.array().to_device(device)?),
        })
    }

    fn overwrite(&self, source: &Self) -> Result<bool> {
        if self.targets.shape() != source.targets.shape() || !self.batch.overwrite(&source.batch)? {
            return Ok(false);
        }
        self.targets.array().overwrite_shared(source.targets.array())?;
        Ok(true)
    }

    fn scaled(&self, factor: f64) -> Result<Option<Self>> {
        Ok(Some(Self { batch: self.batch.scaled(factor)?, targets: self.targets.clone() }))
    }
}

impl Samples for NBodyData {
    type Batch = Example;

    fn len(&self) -> usize {
        NBodyData::len(self)
    }

    fn batch(&self, indices: &[usize], placement: &Placement) -> Result<Example> {
        Example::new(&self.select(indices)?, placement)
    }
}

/// Predicted positions, `[samples, 3, particles]` row-major, computed in batches of `batch_size`.
///
/// # Errors
/// [`Error::Argument`] for a batch size of zero; from the device.
pub fn predict(model: &NBody, data: &NBodyData, batch_size: usize) -> Result<Vec<f64>> {
    predict_by(data, batch_size, &model.placement(), |batch| model.forward(batch))
}

/// As [`predict`], with a function that maps a batch to positions `[3, systems × particles]`.
///
/// # Errors
/// As [`predict`].
pub fn predict_by(
    data: &impl Samples<Batch = Example>,
    batch_size: usize,
    placement: &Placement,
    forward: impl Fn(&NBodyBatch) -> Result<Tensor>,
) -> Result<Vec<f64>> {
    let mut predictions = Vec::new();
    for_each_batch(data, batch_size, placement, |example| {
        let rows = no_grad(|| forward(&example.batch))?;
        predictions.extend(example.batch.by_system(&rows)?);
        Ok(())
    })?;
    Ok(predictions)
}

/// Predicted positions and velocities, each `[samples, 3, particles]` row-major, computed in batches of `batch_size`.
///
/// # Errors
/// As [`predict`]; a model that predicts no velocities.
pub fn predict_states(model: &NBody, data: &NBodyData, batch_size: usize) -> Result<(Vec<f64>, Vec<f64>)> {
    let (mut loc, mut vel) = (Vec::with_capacity(data.loc().len()), Vec::with_capacity(data.loc().len()));
    for_each_batch(data, batch_size, &model.placement(), |example| {
        let (positions, velocities) = no_grad(|| model.forward_state(&example.batch))?;
        let (positions, velocities) =
            (example.batch.by_system(&positions)?, example.batch.by_system(&velocities)?);
        loc.extend(positions);
        vel.extend(velocities);
        Ok(())
    })?;
    Ok((loc, vel))
}

/// The squared error of the predictions for each sample, the mean over its coordinates and particles.
///
/// # Errors
/// As [`mean_squared_error`].
pub fn squared_errors(predictions: &[f64], data: &NBodyData) -> Result<Vec<f64>> {
    mean_squared_error(predictions, data)?;
    let width = 3 * data.particles();
    let samples = predictions.chunks_exact(width).zip(data.target().chunks_exact(width));
    let error = |(predicted, truth): (&[f64], &[f64])| {
        predicted.iter().zip(truth).map(|(p, t)| (p - t).powi(2)).sum::<f64>() / width as f64
    };
    Ok(samples.map(error).collect())
}

/// The mean over coordinates, particles and samples of the squared error of predictions.
///
/// # Errors
/// [`Error::Argument`] if there are not as many predictions as coordinates, or none.
pub fn mean_squared_error(predictions: &[f64], data: &NBodyData) -> Result<f64> {
    if predictions.len() != data.target().len() || predictions.is_empty() {
        return Err(Error::Argument {
            operation: "mean squared error",
            argument: "predictions",
            actual: format!("{} values", predictions.len()),
            expected: format!("{}, and at least one", data.target().len()),
        });
    }
    let squares = predictions.iter().zip(data.target()).map(|(p, t)| (p - t).powi(2));
    Ok(squares.sum::<f64>() / predictions.len() as f64)
}
