//! Losses. Each returns a scalar.

use crate::Result;
use gradewise_autograd::Tensor;

/// The mean of (prediction − target)² over all elements.
///
/// # Errors
/// Shapes that do not broadcast, different dtypes or devices.
pub fn mean_squared_error(prediction: &Tensor, target: &Tensor) -> Result<Tensor> {
    if prediction.shape() == target.shape() {
        return Ok(prediction.mean_squared_error(target)?);
    }
    Ok(prediction.sub(target)?.square()?.mean_all()?)
}

/// The mean of |prediction − target| over all elements.
///
/// # Errors
/// As [`mean_squared_error`].
pub fn mean_absolute_error(prediction: &Tensor, target: &Tensor) -> Result<Tensor> {
    Ok(prediction.sub(target)?.abs()?.mean_all()?)
}

/// The mean of the Huber loss: ½d² where |d| ≤ `delta`, `delta`·(|d| − ½`delta`) beyond (Huber 1964).
///
/// # Errors
/// As [`mean_squared_error`].
pub fn huber(prediction: &Tensor, target: &Tensor, delta: f64) -> Result<Tensor> {
    let distance = prediction.sub(target)?;
    let near = distance.clamp(-delta, delta)?;
    // near·(d − ½near) is both branches at once.
    Ok(near.mul(&distance.sub(&near.mul_scalar(0.5)?)?)?.mean_all()?)
}

/// The mean of `−log softmax(logits)[class]` over the rows of `logits` `[rows, classes]`, with `targets` the one-hot or
/// soft classes of the same shape.
///
/// # Errors
/// As [`mean_squared_error`]; logits that are not a matrix.
pub fn cross_entropy(logits: &Tensor, targets: &Tensor) -> Result<Tensor> {
    Ok(logits.log_softmax(1)?.mul(targets)?.sum(&[1], false)?.mean_all()?.neg()?)
}
